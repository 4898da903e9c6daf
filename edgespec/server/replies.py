"""What came out, in the shapes of the OpenAI API; what only edgespec knows is under `edgespec`."""

from __future__ import annotations

import dataclasses
import itertools
import secrets
import time
from collections.abc import Sequence
from typing import Any

from edgespec.runtime import Runtime
from edgespec.server.jobs import Job
from edgespec.server.tools import tool_calls_in
from edgespec.types import Chunk, Statistics, TokenLogprob

__all__ = ["Reply", "extension", "spans_of", "statistics"]

_FINISH = {"stop": "stop", "length": "length", "cancelled": "stop"}


def extension(chunks: Sequence[Chunk]) -> dict[str, Any]:
    """The field `edgespec` of a whole answer."""
    return statistics(chunks[-1].statistics) | {"spans": spans_of(chunks)}


def statistics(stats: Statistics) -> dict[str, Any]:
    """The fields of `Statistics`, and what follows from them."""
    derived = ("draft_acceptance", "tokens_per_pass", "tokens_per_second")
    return dataclasses.asdict(stats) | {name: getattr(stats, name) for name in derived}


class Reply:
    """One answer, whole or as events."""

    def __init__(self, runtime: Runtime, job: Job, model: str) -> None:
        self._runtime, self._job, self._chat = runtime, job, job.kind == "chat"
        self._offset = 0  # characters said so far
        kind = "chat.completion" if self._chat else "text_completion"
        self._head = {
            "id": f"{'chatcmpl' if self._chat else 'cmpl'}-{secrets.token_hex(12)}",
            "object": kind + (".chunk" if job.stream and self._chat else ""),
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": runtime.engine,
        }

    def whole(self, chunks: Sequence[Chunk]) -> dict[str, Any]:
        text, last = "".join(chunk.text for chunk in chunks), chunks[-1]
        choice: dict[str, Any] = {"index": 0, "logprobs": self._logprobs(chunks)}
        if self._chat:
            said, calls = tool_calls_in(text, self._job.tools)
            message: dict[str, Any] = {"role": "assistant", "content": said if said or not calls else None}
            choice |= {"message": message | ({"tool_calls": calls} if calls else {})}
            choice["finish_reason"] = "tool_calls" if calls else _finish(last)
        else:
            choice |= {"text": text, "finish_reason": _finish(last)}
        return self._head | {"choices": [choice], "usage": _usage(last.statistics), "edgespec": extension(chunks)}

    def begin(self) -> list[dict[str, Any]]:
        """Events before anything is said."""
        return [self._event({"role": "assistant", "content": ""}, None, [])] if self._chat else []

    def event(self, chunk: Chunk) -> list[dict[str, Any]]:
        """Of a piece of the answer that is not the last."""
        return [self._event(chunk.text, None, [chunk]) | {"edgespec": {"spans": spans_of([chunk])}}]

    def end(self, chunk: Chunk, calls: Sequence[dict[str, Any]] = ()) -> list[dict[str, Any]]:
        """The last events, of the last chunk and of the calls that were found."""
        events = []
        if calls:
            events.append(self._event({"tool_calls": [{"index": i, **call} for i, call in enumerate(calls)]}, None, []))
        closing = self._event({} if self._chat else "", "tool_calls" if calls else _finish(chunk), [])
        events.append(closing | {"edgespec": statistics(chunk.statistics)})
        if self._job.usage:
            events.append(self._head | {"choices": [], "usage": _usage(chunk.statistics)})
        return events

    def text_event(self, text: str) -> list[dict[str, Any]]:
        """Of text that was held back."""
        return [self._event(text, None, [])]

    def _event(self, said: str | dict[str, Any], finish: str | None, chunks: Sequence[Chunk]) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish, "logprobs": self._logprobs(chunks) if chunks else None}
        if self._chat:
            choice["delta"] = {"content": said} if isinstance(said, str) else said
        else:
            choice["text"] = said
        return self._head | {"choices": [choice]} | ({"usage": None} if self._job.usage else {})

    def _logprobs(self, chunks: Sequence[Chunk]) -> dict[str, Any] | None:
        if not self._job.logprobs:
            return None
        said = [pair for chunk in chunks for pair in zip(chunk.tokens, chunk.logprobs, strict=True)]
        if self._chat:
            return {"content": [self._chat_logprob(token, found) for token, found in said]}
        texts = [self._text(token) for token, _ in said]
        *offsets, self._offset = itertools.accumulate(map(len, texts), initial=self._offset)
        return {
            "tokens": texts, "token_logprobs": [found.logprob for _, found in said], "text_offset": offsets,
            "top_logprobs": [{self._text(token): value for token, value in found.top_logprobs} for _, found in said],
        }  # fmt: skip

    def _chat_logprob(self, token: int, found: TokenLogprob) -> dict[str, Any]:
        top = [self._scored(*pair) for pair in found.top_logprobs]
        return self._scored(token, found.logprob) | {"top_logprobs": top}

    def _scored(self, token: int, logprob: float) -> dict[str, Any]:
        return {"token": self._text(token), "logprob": logprob, "bytes": list(self._runtime.piece(token))}

    def _text(self, token: int) -> str:
        return self._runtime.detokenize([token])


def _finish(chunk: Chunk) -> str:
    return _FINISH[chunk.finish_reason or "stop"]


def spans_of(chunks: Sequence[Chunk]) -> list[list[Any]]:
    """Texts, each with whether it was drafted."""
    return [[text, drafted] for chunk in chunks for text, drafted in chunk.spans]


def _usage(stats: Statistics) -> dict[str, Any]:
    return {
        "prompt_tokens": stats.prompt_tokens,
        "completion_tokens": stats.tokens,
        "total_tokens": stats.prompt_tokens + stats.tokens,
        "prompt_tokens_details": {"cached_tokens": stats.cached_tokens},
        "completion_tokens_details": {
            "accepted_prediction_tokens": stats.accepted,
            "rejected_prediction_tokens": stats.drafted - stats.accepted,
        },
    }
