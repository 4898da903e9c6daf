"""The HTTP server under the application."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

from edgespec.errors import UsageError
from edgespec.server.app import make_app
from edgespec.server.guard import Rules
from edgespec.server.service import Service

__all__ = ["Server", "listen", "serve_forever"]

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


def serve_forever(service: Service, rules: Rules, listener: socket.socket, *, ready: Callable[[str], None]) -> None:
    """Until the process is told to end; `ready` is told the address."""
    host, port = listener.getsockname()[:2]
    ready(f"http://{f'[{host}]' if ':' in host else host}:{port}")
    Server(service, rules).run(sockets=[listener])


class Server(uvicorn.Server):
    """Asked to end, it ends the answer that is being written first: that would hold its connection for long."""

    def __init__(self, service: Service, rules: Rules) -> None:
        app = make_app(service, rules)
        super().__init__(uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=_LEAVE))
        self._service = service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.stop()
        await super().shutdown(sockets)
