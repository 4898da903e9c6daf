"""Tool calls: models write them as JSON in a manner of their own, the API has them as objects."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgespec.runtime import Runtime

__all__ = ["HeldText", "grammar_of_calls", "tool_calls_in", "with_objects"]

_TAGGED = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)  # Hermes, Qwen
_BARE = re.compile(r"^\s*(?:<\|python_tag\|>|\[TOOL_CALLS\])?\s*(\{.*\}|\[.*\])\s*$", re.DOTALL)  # Llama 3, Mistral
_TAG, _STARTS = "<tool_call>", ("{", "[", "<|python_tag|>")
_ID_LENGTH = 9  # Mistral's templates take no other


@dataclass(frozen=True)
class _Manner:
    """What a model writes around the JSON of a call, and how it names the arguments."""

    before: str = ""
    after: str = ""
    arguments: str = "arguments"


def tool_calls_in(text: str, names: Collection[str]) -> tuple[str, list[dict[str, Any]]]:
    """What is said beside the calls of functions `names`, and the calls; all of the text where there is none."""
    tagged = [(match, _calls(match[1], names)) for match in _TAGGED.finditer(text)]
    if tagged and all(calls for _, calls in tagged):
        return _TAGGED.sub("", text).strip(), [call for _, calls in tagged for call in calls]
    bare = _BARE.match(text)
    calls = _calls(bare[1], names) if bare else []
    return ("", calls) if calls else (text, [])


class HeldText:
    """An answer as it comes: what may be a call of one of `names` is held back until the end, the rest goes out at once."""

    def __init__(self, names: Collection[str]) -> None:
        self._names, self._held, self._spoken = names, "", False

    def feed(self, text: str) -> str:
        """What of the answer so far can go out now."""
        self._held += text
        safe = self._safe() if self._names else len(self._held)
        out, self._held = self._held[:safe], self._held[safe:]
        self._spoken = self._spoken or bool(out)
        return out

    def rest(self) -> tuple[str, list[dict[str, Any]]]:
        """What was held back at the end, as `tool_calls_in` has it."""
        return tool_calls_in(self._held, self._names)

    def _safe(self) -> int:
        begun = self._held.lstrip()
        if not self._spoken and any(begun.startswith(start) or start.startswith(begun) for start in _STARTS):
            return 0
        place = self._held.find(_TAG)
        if place >= 0:
            return place
        sizes = range(min(len(_TAG) - 1, len(self._held)), 0, -1)
        return len(self._held) - next((size for size in sizes if self._held.endswith(_TAG[:size])), 0)


def grammar_of_calls(runtime: Runtime, tools: Sequence[Mapping[str, Any]]) -> str:
    """The grammar of a call of one of `tools`, in the manner of the model's template. Raises UsageError as `grammar_of`."""
    manner = _manner(runtime.header.chat_template or "")
    schemas = [
        {
            "type": "object",
            "properties": {
                "name": {"const": tool["function"]["name"]},
                manner.arguments: tool["function"].get("parameters", {"type": "object"}),
            },
            "required": ["name", manner.arguments],
            "additionalProperties": False,
        }
        for tool in tools
    ]
    call = re.sub(r"^root ::=", "call ::=", runtime.grammar_of({"anyOf": schemas}), flags=re.MULTILINE)
    return f"{call}\nroot ::= {json.dumps(manner.before)} call {json.dumps(manner.after)}"


def with_objects(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message whose calls have their arguments as templates want them: as objects, not as the API's JSON text."""
    calls = [
        call | {"function": call["function"] | {"arguments": _parsed(call["function"]["arguments"])}}
        for call in message.get("tool_calls") or []
    ]
    return {**message, "tool_calls": calls} if calls else dict(message)


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments  # whatever a client made of them


def _manner(template: str) -> _Manner:
    if "<tool_call>" in template:
        return _Manner("<tool_call>\n", "\n</tool_call>")
    if "[TOOL_CALLS]" in template:
        return _Manner("[TOOL_CALLS] [", "]")
    return _Manner(arguments="parameters" if '"parameters"' in template else "arguments")


def _calls(text: str, names: Collection[str]) -> list[dict[str, Any]]:
    """None at all where one of them is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    calls = [_call(one, names) for one in (found if isinstance(found, list) else [found])]
    return [call for call in calls if call] if all(calls) else []


def _call(found: Any, names: Collection[str]) -> dict[str, Any] | None:
    if not isinstance(found, dict) or found.get("name") not in names:
        return None
    arguments = found.get("arguments", found.get("parameters", {}))
    if not isinstance(arguments, dict):
        return None
    function = {"name": found["name"], "arguments": json.dumps(arguments)}
    return {"id": secrets.token_hex(_ID_LENGTH)[:_ID_LENGTH], "type": "function", "function": function}
