"""Before any request is read: who may ask, from where, and how much.

A page of another site must not reach a server on this machine, neither by its name (DNS rebinding, CVE-2024-28224) nor
from its own origin; beyond this machine only who has the key may.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgespec.errors import UsageError
from edgespec.server.errors import Refused, answer

__all__ = ["Guard", "Rules", "is_loopback"]

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_MOST_BODY = 8 << 20
_HEADERS = ["authorization", "content-type"]
_OPEN = ("/", "/health", "/page/")  # what nobody needs a key for: it says nothing


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Rules:
    """`host` is where the server listens; `names` are other names it is known by; `origins` are other sites that may ask."""

    host: str = "127.0.0.1"
    key: str | None = None
    names: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.key and not is_loopback(self.host):
            raise UsageError(f"{self.host} can be reached from other machines: set a key with --api-key, or use --host 127.0.0.1")

    @property
    def hosts(self) -> Collection[str]:
        return {*_LOOPBACK, self.host.strip("[]"), *self.names}


class Guard:
    """Pure ASGI, so that streams are not buffered."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self._app, self._rules = app, rules
        if rules.origins:
            self._app = CORSMiddleware(app, rules.origins, allow_methods=["GET", "POST"], allow_headers=_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            self._check(scope, headers)
        except Refused as refused:
            await answer(refused)(scope, receive, send)
            return
        await self._app(scope, _bounded(receive), send)

    def _check(self, scope: Scope, headers: Headers) -> None:
        """Raises Refused."""
        host = _host_of(headers.get("host", ""))
        wildcard = self._rules.key is not None and self._rules.host in ("0.0.0.0", "::")  # any name may be this machine's
        if host not in self._rules.hosts and not wildcard:
            raise Refused(421, f"this server is not known as {host!r}: add it with --allow-host", "wrong_host")
        origin = headers.get("origin")
        foreign = origin is not None and urlsplit(origin).netloc != headers.get("host")
        if foreign and origin not in self._rules.origins:
            raise Refused(403, f"requests from {origin!r} are not allowed: add it with --allow-origin", "wrong_origin")
        if int(headers.get("content-length") or 0) > _MOST_BODY:
            raise Refused(413, f"the body is larger than {_MOST_BODY >> 20} MiB", "too_large")
        if self._rules.key and scope["method"] != "OPTIONS" and not _is_open(scope["path"]):
            given = headers.get("authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(given.encode(), self._rules.key.encode()):
                raise Refused(401, "the key is missing or wrong: send it as `Authorization: Bearer KEY`", "wrong_key")


def _is_open(path: str) -> bool:
    return path in _OPEN or path.startswith("/page/")


def _host_of(header: str) -> str:
    """Without the port."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return header


def _bounded(receive: Receive) -> Receive:
    """Bodies without a length are counted while they come in."""
    total = 0

    async def counted() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > _MOST_BODY:
            raise Refused(413, f"the body is larger than {_MOST_BODY >> 20} MiB", "too_large")
        return message

    return counted
