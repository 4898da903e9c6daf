"""A model's own chat template, which is a program from an unknown author: sandboxed, bounded in time and output.

CVE-2024-34359 is what happens without the sandbox.
"""

from __future__ import annotations

import datetime
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEnvironment

from edgespec.errors import ModelError, UsageError

__all__ = ["ChatTemplate", "Message"]

Message = Mapping[str, Any]
_SECONDS = 2.0
_MOST_CHARACTERS = 1 << 22
_ROLES = ("system", "user", "assistant", "tool")
_PLAIN = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


class _Sandbox(ImmutableSandboxedEnvironment):
    """Also refuses the operators and methods that make a huge object in one step."""

    intercepted_binops = frozenset({"*", "**", "%"})
    _GROWING = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs", "format", "format_map"})

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return attr not in self._GROWING and super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" or isinstance(left, str | list | tuple) or isinstance(right, str | list | tuple):
            raise jinja2.exceptions.SecurityError(f"operator {operator} is not allowed here")
        return SandboxedEnvironment.call_binop(self, context, operator, left, right)


class ChatTemplate:
    """`render` turns messages into the prompt text the model was trained on. Without a template, plain role lines."""

    def __init__(self, source: str | None, *, bos: str = "", eos: str = "") -> None:
        environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
        for name in ("center", "format", "indent", "wordwrap"):  # filters that grow without bound
            del environment.filters[name]
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(str(form)[:100])
        self._tokens = {"bos_token": bos, "eos_token": eos}
        self._has_tools = bool(re.search(r"\btools\b", source or ""))
        try:
            self._template = environment.from_string(source or _PLAIN)
        except (jinja2.TemplateError, RecursionError) as error:
            raise ModelError(f"the model's chat template is broken ({error}): use `run` without chat, or another file") from error

    def render(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """Text that ends where the assistant is to speak, told of the `tools` it may call.

        Raises UsageError for bad messages, ModelError for a bad template.
        """
        if tools and not self._has_tools:
            raise UsageError("this model's chat template knows no tools: leave them out, or use another model")
        for message in messages:
            if message.get("role") not in _ROLES or not isinstance(message.get("content"), str):
                raise UsageError(f"a message needs a role of {', '.join(_ROLES)} and text as content")
        try:
            return _within(_SECONDS, lambda: self._collect(messages, tools))
        except (jinja2.TemplateError, RecursionError, OverflowError, TypeError, ValueError, ArithmeticError) as error:
            raise ModelError(f"the model's chat template failed ({error}): check the messages' roles and their order") from error

    def _collect(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> str:
        """Piece by piece, so that a template which never ends is stopped by its length."""
        given = {"messages": [dict(message) for message in messages], "tools": [dict(tool) for tool in tools] or None}
        pieces = self._template.generate(**given, add_generation_prompt=True, **self._tokens)
        text: list[str] = []
        total = 0
        for piece in pieces:
            total += len(piece)
            if total > _MOST_CHARACTERS:
                raise ModelError("the model's chat template writes without end: use another file")
            text.append(piece)
        return "".join(text)


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(str(message)[:200])


def _within(seconds: float, work: Callable[[], str]) -> str:
    """Run `work` in this thread; Python code that runs longer is stopped by a trace function."""
    deadline = time.monotonic() + seconds

    def watch(frame: FrameType, event: str, arg: object) -> Any:
        if time.monotonic() > deadline:
            raise ModelError("the model's chat template runs without end: use another file")
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        return work()
    finally:
        sys.settrace(before)
