"""The routes, and the one place where an error becomes an answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgespec.errors import EdgespecError
from edgespec.runtime import Runtime
from edgespec.server.errors import Refused, answer, refusal_of
from edgespec.server.guard import Guard, Rules
from edgespec.server.jobs import Job, chat_job, completion_job
from edgespec.server.metrics import Metrics
from edgespec.server.openapi import document
from edgespec.server.replies import statistics
from edgespec.server.responses import response_job
from edgespec.server.schema import CHAT, COMPLETION, RESPONSE, Schema, checked, parsed
from edgespec.server.service import EventStream, Service

__all__ = ["make_app"]

_PAGE = Path(__file__).parent / "page"
_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'"


def make_app(service: Service, rules: Rules) -> ASGIApp:
    """An ASGI application that answers for `service`, to whom `rules` allow."""
    routes = _Routes(service)
    app = Starlette(
        routes=[
            Route("/", routes.page),
            Mount("/page", StaticFiles(directory=_PAGE)),
            Route("/health", routes.health),
            Route("/metrics", routes.metrics),
            Route("/openapi.json", routes.openapi),
            Route("/v1/models", routes.models),
            Route("/v1/models/{name:path}", routes.model),
            Route("/v1/edgespec", routes.status),
            Route("/v1/chat/completions", routes.chat, methods=["POST"]),
            Route("/v1/completions", routes.completions, methods=["POST"]),
            Route("/v1/responses", routes.responses, methods=["POST"]),
        ],
        exception_handlers={Refused: _refused, EdgespecError: _failed, HTTPException: _http},
    )
    return _Counted(Guard(app, rules), service.metrics)


class _Routes:
    def __init__(self, service: Service) -> None:
        self.service = service
        self._since = int(time.time())

    async def page(self, request: Request) -> Response:
        return FileResponse(_PAGE / "index.html", headers={"content-security-policy": _POLICY})

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def metrics(self, request: Request) -> Response:
        turns = self.service.turnstile
        text = self.service.metrics.text(self.service.runtime, turns.running, turns.waiting)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(document())

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        if request.path_params["name"] != self.service.model:
            raise Refused(404, f"there is no model {request.path_params['name']!r} here", "model_not_found")
        return JSONResponse(self._model())

    def _model(self) -> dict[str, Any]:
        return {"id": self.service.model, "object": "model", "created": self._since, "owned_by": "edgespec"}

    async def status(self, request: Request) -> Response:
        """What the page's meters show."""
        runtime, turns = self.service.runtime, self.service.turnstile
        return JSONResponse({
            "model": self.service.model,
            "paging": runtime.paging,
            "context": runtime.plan.context,
            "stages": list(runtime.stages),
            "budget_bytes": runtime.plan.budget,
            "resident_bytes": runtime.memory_used,
            "running": turns.running,
            "waiting": turns.waiting,
            "last": statistics(self.service.metrics.last),
        })  # fmt: skip

    async def chat(self, request: Request) -> Response | EventStream:
        return await self._answer(request, CHAT, chat_job)

    async def completions(self, request: Request) -> Response | EventStream:
        return await self._answer(request, COMPLETION, completion_job)

    async def responses(self, request: Request) -> Response | EventStream:
        return await self._answer(request, RESPONSE, response_job)

    async def _answer(
        self, request: Request, schema: Schema, make: Callable[[Runtime, dict[str, Any]], Job]
    ) -> Response | EventStream:
        asked = checked(parsed(await request.body()), schema)
        job = await asyncio.to_thread(make, self.service.runtime, asked)
        return await self.service.answer(job, request)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return answer(error)


async def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, EdgespecError)
    return answer(refusal_of(error))


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return answer(Refused(error.status_code, error.detail, "not_found" if error.status_code == 404 else "invalid_request",
                          dict(error.headers or {})))  # fmt: skip


class _Counted:
    """Counts answers by status."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.requests[message["status"]] += 1
            await send(message)

        await self._app(scope, receive, counting)
