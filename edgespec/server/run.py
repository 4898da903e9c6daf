"""The HTTP server under the application."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

from edgespec.errors import UsageError
from edgespec.runtime import Runtime
from edgespec.server.app import make_app
from edgespec.server.guard import Rules

__all__ = ["listen", "serve_forever"]

_BACKLOG = 256
_LEAVE = 3  # seconds for open connections once the end was asked for


def listen(host: str, port: int) -> socket.socket:
    """Raises UsageError where nobody can listen."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        raise UsageError(f"cannot listen on {host}:{port} ({error.strerror}): choose another --port or --host") from error
    return listener


def serve_forever(
    runtime: Runtime, rules: Rules, listener: socket.socket, *, model: str, waiting: int, ready: Callable[[str], None]
) -> None:
    """Until the process is told to end; `ready` is told the address."""
    host, port = listener.getsockname()[:2]
    app = make_app(runtime, rules, model=model, waiting=waiting)
    config = uvicorn.Config(app, log_level="warning", lifespan="on", timeout_graceful_shutdown=_LEAVE)
    ready(f"http://{f'[{host}]' if ':' in host else host}:{port}")
    uvicorn.Server(config).run(sockets=[listener])
