"""The Responses API: its requests as those of a chat, its answers and events in shapes of their own. Nothing is stored."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from edgespec.runtime import Runtime
from edgespec.server.jobs import Job, chat_job
from edgespec.server.replies import extension, spans_of, statistics
from edgespec.server.tools import tool_calls_in
from edgespec.types import Chunk, Statistics

__all__ = ["ResponseReply", "response_job"]

_SAME = ("temperature", "top_p", "top_k", "min_p", "repeat_penalty", "seed", "stop", "stream", "parallel_tool_calls", "edgespec")
_ECHOED = ("instructions", "metadata", "max_output_tokens", "temperature", "top_p", "tools", "tool_choice", "text")
_EMPTY: dict[str, Any] = {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "metadata": {}}


def response_job(runtime: Runtime, request: Mapping[str, Any]) -> Job:
    """Raises what `chat_job` does."""
    given = request["input"]
    messages = [{"role": "user", "content": given}] if isinstance(given, str) else [_message(item) for item in given]
    if "instructions" in request:
        messages = [{"role": "system", "content": request["instructions"]}, *messages]
    chat = {name: request[name] for name in _SAME if name in request} | {"messages": messages}
    if "max_output_tokens" in request:
        chat["max_tokens"] = request["max_output_tokens"]
    if "tools" in request:
        chat["tools"] = [{"type": "function", "function": _without(tool, "type")} for tool in request["tools"]]
    if "tool_choice" in request:
        chat["tool_choice"] = _choice(request["tool_choice"])
    if form := request.get("text", {}).get("format"):
        chat["response_format"] = _format(form)
    echo = _EMPTY | {name: request[name] for name in _ECHOED if name in request}
    return chat_job(runtime, chat, kind="response", echo=echo)


class ResponseReply:
    """As `replies.Reply`."""

    def __init__(self, runtime: Runtime, job: Job, model: str) -> None:
        self._job, self._numbers = job, itertools.count()
        self._message, self._said = _name("msg"), ""
        self._head = job.echo | {"id": _name("resp"), "object": "response", "created_at": int(time.time()), "model": model}

    def whole(self, chunks: Sequence[Chunk]) -> dict[str, Any]:
        self._said, calls = tool_calls_in("".join(chunk.text for chunk in chunks), self._job.tools)
        return self._ended(chunks[-1], calls) | {"edgespec": extension(chunks)}

    def begin(self) -> list[dict[str, Any]]:
        begun = self._head | {"status": "in_progress", "output": []}
        return [self._event(f"response.{name}", response=begun) for name in ("created", "in_progress")]

    def event(self, chunk: Chunk) -> list[dict[str, Any]]:
        *opening, delta = self.text_event(chunk.text)
        return [*opening, delta | {"edgespec": {"spans": spans_of([chunk])}}]

    def text_event(self, text: str) -> list[dict[str, Any]]:
        opening = [] if self._said else self._opened()
        self._said += text
        return [*opening, self._part("response.output_text.delta", delta=text, logprobs=[])]

    def end(self, chunk: Chunk, calls: Sequence[dict[str, Any]] = ()) -> list[dict[str, Any]]:
        done = self._ended(chunk, calls)
        events = self._closed(done["output"][0]) if self._said else []
        first = len(done["output"]) - len(calls)
        for place, item in enumerate(done["output"][first:], first):
            events += self._called(place, item)
        name = "response.completed" if done["status"] == "completed" else "response.incomplete"
        return [*events, self._event(name, response=done) | {"edgespec": statistics(chunk.statistics)}]

    def _ended(self, last: Chunk, calls: Sequence[dict[str, Any]]) -> dict[str, Any]:
        cut = last.finish_reason == "length" and not calls
        output = [self._item("incomplete" if cut else "completed")] if self._said or not calls else []
        return self._head | {
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "error": None,
            "output": output + [_call_item(call) for call in calls],
            "usage": _usage(last.statistics),
        }

    def _item(self, status: str) -> dict[str, Any]:
        content = [] if status == "in_progress" else [_text_part(self._said)]
        return {"type": "message", "id": self._message, "role": "assistant", "status": status, "content": content}

    def _opened(self) -> list[dict[str, Any]]:
        item = self._event("response.output_item.added", output_index=0, item=self._item("in_progress"))
        return [item, self._part("response.content_part.added", part=_text_part(""))]

    def _closed(self, item: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            self._part("response.output_text.done", text=self._said, logprobs=[]),
            self._part("response.content_part.done", part=_text_part(self._said)),
            self._event("response.output_item.done", output_index=0, item=item),
        ]

    def _called(self, place: int, item: dict[str, Any]) -> list[dict[str, Any]]:
        where = {"output_index": place, "item_id": item["id"]}
        return [
            self._event("response.output_item.added", output_index=place, item=item | {"arguments": "", "status": "in_progress"}),
            self._event("response.function_call_arguments.delta", **where, delta=item["arguments"]),
            self._event("response.function_call_arguments.done", **where, name=item["name"], arguments=item["arguments"]),
            self._event("response.output_item.done", output_index=place, item=item),
        ]

    def _part(self, name: str, /, **fields: Any) -> dict[str, Any]:
        return self._event(name, item_id=self._message, output_index=0, content_index=0, **fields)

    def _event(self, name: str, /, **fields: Any) -> dict[str, Any]:
        return {"type": name, "sequence_number": next(self._numbers), **fields}


def _name(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(16)}"


def _without(item: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in names and value is not None}


def _message(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item of the input as a message of a chat."""
    if item.get("type") == "function_call":
        function = {"name": item["name"], "arguments": item["arguments"]}
        call = {"id": item["call_id"], "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    if item.get("type") == "function_call_output":
        return {"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]}
    content = item["content"]
    text = content if isinstance(content, str) else "".join(part["text"] for part in content)
    return {"role": item["role"], "content": text}


def _choice(choice: Any) -> Any:
    return choice if isinstance(choice, str) else {"type": "function", "function": {"name": choice["name"]}}


def _format(form: Mapping[str, Any]) -> dict[str, Any]:
    if form["type"] != "json_schema":
        return dict(form)
    return {"type": "json_schema", "json_schema": _without(form, "type")}


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _call_item(call: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "function_call", "id": _name("fc"), "call_id": call["id"], "status": "completed", **call["function"]}


def _usage(stats: Statistics) -> dict[str, Any]:
    read = stats.prompt_tokens - stats.cached_tokens
    return {
        "input_tokens": stats.prompt_tokens,
        "input_tokens_details": {"cached_tokens": stats.cached_tokens, "cache_write_tokens": read},
        "output_tokens": stats.tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": stats.prompt_tokens + stats.tokens,
    }
