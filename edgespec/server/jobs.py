"""From a checked request to what the runtime is asked for."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from edgespec.runtime import Runtime
from edgespec.server.errors import Refused
from edgespec.server.tools import grammar_of_calls, with_objects

__all__ = ["Job", "Kind", "chat_job", "completion_job"]

_SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "repeat_penalty", "frequency_penalty", "presence_penalty", "seed",
)  # fmt: skip
_TEMPERATURE = 1.0  # the API's default
_UNTIL_FULL = 2**31 - 1


Kind = Literal["chat", "completion", "response"]


@dataclass(frozen=True)
class Job:
    """`tools` are the names that may be called; `usage` asks for a last event that counts tokens; `echo` is said back."""

    tokens: list[int]
    sampling: dict[str, Any]
    speculate: bool
    kind: Kind
    stream: bool
    usage: bool
    logprobs: bool
    tools: frozenset[str] = field(default_factory=frozenset)
    echo: dict[str, Any] = field(default_factory=dict)


def chat_job(runtime: Runtime, request: Mapping[str, Any], kind: Kind = "chat", echo: dict[str, Any] | None = None) -> Job:
    """Raises UsageError, ContextFull or ModelError as the runtime does."""
    tools, forced = _tools(request)
    tokens = runtime.prompt_tokens([_message(message) for message in request["messages"]], tools=tools)
    most = request.get("max_completion_tokens", request.get("max_tokens"))
    grammar = _grammar(runtime, request.get("response_format", {"type": "text"}))
    if forced:
        if grammar:
            raise Refused(400, "tool_choice and response_format both say what may be said: send one", "invalid_value")
        grammar = grammar_of_calls(runtime, forced)
    names = frozenset(tool["function"]["name"] for tool in tools)
    job = _job(request, tokens, most, kind, grammar=grammar, top=_top_of_chat(request))
    return replace(job, tools=names, echo=echo or {})


def _tools(request: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """The tools that may be called, and those of which one must be. Raises Refused."""
    choice, tools = request.get("tool_choice", "auto"), request.get("tools", [])
    if choice in ("auto", "none"):
        return ([] if choice == "none" else tools), []
    wanted = tools if choice == "required" else [tool for tool in tools if tool["function"]["name"] == choice["function"]["name"]]
    if not wanted:
        raise Refused(400, "tool_choice: there is no such tool among tools", "invalid_value")
    return tools, wanted


def completion_job(runtime: Runtime, request: Mapping[str, Any]) -> Job:
    """Raises UsageError or ContextFull."""
    prompt = request["prompt"]
    tokens = runtime.prompt_tokens(prompt if isinstance(prompt, str) else [int(token) for token in prompt])
    return _job(request, tokens, request.get("max_tokens", 16), "completion", top=request.get("logprobs"))


def _job(
    request: Mapping[str, Any], tokens: list[int], most: int | None, kind: Kind, *, top: int | None, grammar: str = ""
) -> Job:  # fmt: skip
    """`top`: the likeliest tokens that come with each token's log-probability; None: no log-probabilities."""
    only_ours = request.get("edgespec", {})
    if grammar and only_ours.get("grammar"):
        raise Refused(400, "response_format and edgespec.grammar both say what may be said: send one", "invalid_value")
    stop = request.get("stop", [])
    sampling = {name: request[name] for name in _SAMPLING if name in request}
    sampling = {"temperature": _TEMPERATURE, "seed": secrets.randbelow(2**32 - 1)} | sampling
    sampling |= {
        "max_tokens": most or _UNTIL_FULL,
        "stop": [stop] if isinstance(stop, str) else stop,
        "grammar": grammar or only_ours.get("grammar", ""),
        "logprobs": top is not None,
        "top_logprobs": top or 0,
    }
    return Job(
        tokens, sampling, only_ours.get("speculation", True), kind, request.get("stream", False),
        request.get("stream_options", {}).get("include_usage", False), top is not None,
    )  # fmt: skip


def _top_of_chat(request: Mapping[str, Any]) -> int | None:
    if not request.get("logprobs"):
        if request.get("top_logprobs"):
            raise Refused(400, "top_logprobs: needs logprobs to be true", "invalid_value")
        return None
    return int(request.get("top_logprobs", 0))


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """As chat templates want it: text as one string, and the role `developer` by its older name."""
    content = message.get("content") or ""
    text = content if isinstance(content, str) else "".join(part["text"] for part in content)
    made = {name: value for name, value in message.items() if value is not None}
    return with_objects(made) | {"role": "system" if message["role"] == "developer" else message["role"], "content": text}


def _grammar(runtime: Runtime, form: Mapping[str, Any]) -> str:
    if form["type"] == "text":
        return ""
    if form["type"] == "json_object":
        return runtime.grammar_of({"type": "object"})
    wanted = form["json_schema"]
    return runtime.grammar_of(wanted["schema"], strict=bool(wanted.get("strict")))
