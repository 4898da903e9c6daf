"""One runtime for many clients: their turns, their answers, and an end to the work of those who left."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from edgespec.errors import EdgespecError
from edgespec.runtime import Runtime
from edgespec.server.errors import Refused, refusal_of
from edgespec.server.jobs import Job
from edgespec.server.metrics import Metrics
from edgespec.server.replies import Reply
from edgespec.server.responses import ResponseReply
from edgespec.server.tools import HeldText
from edgespec.server.turnstile import Turnstile
from edgespec.types import Chunk, Statistics

__all__ = ["EventStream", "Service"]


class Service:
    def __init__(self, runtime: Runtime, model: str, waiting: int) -> None:
        self.runtime, self.model = runtime, model
        self.turnstile, self.metrics = Turnstile(waiting), Metrics()

    def stop(self) -> None:
        """End what runs, and let nothing else begin."""
        self.turnstile.close()
        self.runtime.cancel()

    async def answer(self, job: Job, request: Request) -> Response | EventStream:
        """Raises Refused when it is not this request's turn and too many wait, EdgespecError when it fails."""
        client = request.client.host if request.client else ""
        reply = (ResponseReply if job.kind == "response" else Reply)(self.runtime, job, self.model)
        if not job.stream:
            chunks = await until_gone(request.receive, self._collect(job, client))
            return JSONResponse(reply.whole(chunks)) if chunks else Response(status_code=499)
        events = self._events(job, client, reply)
        first = await until_gone(request.receive, anext(events))  # a refusal must come before the head of the answer
        return EventStream(first, events, marked=job.kind != "response") if first else Response(status_code=499)

    async def _collect(self, job: Job, client: str) -> list[Chunk]:
        return [chunk async for chunk in self._chunks(job, client)]

    async def _chunks(self, job: Job, client: str) -> AsyncGenerator[Chunk, None]:
        async with self.turnstile.turn(client):
            done = Statistics()
            try:
                async with aclosing(self.runtime.astream(job.tokens, speculate=job.speculate, **job.sampling)) as chunks:
                    async for chunk in chunks:
                        done = self.metrics.last = chunk.statistics
                        yield chunk
            except (asyncio.CancelledError, GeneratorExit):
                self.metrics.cancelled += 1
                raise
            finally:
                self.metrics.ended(done)

    async def _events(self, job: Job, client: str, reply: Reply | ResponseReply) -> AsyncGenerator[dict[str, Any], None]:
        held = HeldText(job.tools)
        async with aclosing(self._chunks(job, client)) as chunks:
            begun = False
            async for chunk in chunks:
                if not begun:
                    begun = True
                    for event in reply.begin():
                        yield event
                if text := held.feed(chunk.text):
                    for event in reply.event(chunk) if text == chunk.text else reply.text_event(text):
                        yield event
        said, calls = held.rest()
        for event in [*(reply.text_event(said) if said else ()), *reply.end(chunk, calls)]:
            yield event


async def until_gone(receive: Receive, work: Awaitable[Any]) -> Any:
    """The result of `work`; None, and an end to it, when the client leaves first."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return await working if working.done() else None
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait({working})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream:
    """Server-sent events, as an ASGI application; the source is closed when the client leaves.

    `marked`: the last of them says that it is, as the older APIs have it.
    """

    def __init__(self, first: dict[str, Any], events: AsyncGenerator[dict[str, Any], None], *, marked: bool) -> None:
        self._first, self._events, self._marked = first, events, marked

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await until_gone(receive, self._send_all(send))

    async def _send_all(self, send: Send) -> None:
        async with aclosing(self._events) as events:
            try:
                await _event(send, self._first)
                async for event in events:
                    await _event(send, event)
            except EdgespecError as error:
                await _event(send, refusal_of(error).body)
            except Refused as refused:
                await _event(send, refused.body)
        if self._marked:
            await _send(send, "data: [DONE]")
        await send({"type": "http.response.body", "body": b""})


async def _event(send: Send, event: dict[str, Any]) -> None:
    name = f"event: {event['type']}\n" if "type" in event else ""
    await _send(send, f"{name}data: {json.dumps(event)}")


async def _send(send: Send, lines: str) -> None:
    await send({"type": "http.response.body", "body": f"{lines}\n\n".encode(), "more_body": True})
