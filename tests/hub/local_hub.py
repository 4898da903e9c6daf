"""A hub on this machine that speaks the real one's protocol, and misbehaves on command."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class LocalHub:
    """Repositories by name, each with files by name. What goes wrong is set by the attributes."""

    def __init__(self) -> None:
        self.repos: dict[str, dict[str, bytes]] = {}
        self.digests: dict[str, str] = {}  # what the hub says of a file, if not the truth
        self.statuses: list[int] = []  # the next answers for files
        self.cut: list[int] = []  # bytes after which the next bodies end
        self.ranges = True
        self.wrong_begin = 0  # bytes by which partial answers begin too late
        self.token: str | None = None
        self.elsewhere: LocalHub | None = None  # where files are redirected to
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.sent: Counter[str] = Counter()  # bytes of bodies by path
        self.url = ""

    def add(self, repo: str, name: str, data: bytes) -> None:
        self.repos.setdefault(repo, {})[name] = data

    @property
    def file_requests(self) -> list[dict[str, str]]:
        return [headers for path, headers in self.requests if "/resolve/" in path or path.startswith("/cdn/")]


@contextmanager
def local_hub() -> Iterator[LocalHub]:
    hub = LocalHub()

    class Handler(_Handler):
        owner = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    owner: LocalHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        hub, path = self.owner, self.path.partition("?")[0]
        hub.requests.append((path, {name.lower(): value for name, value in self.headers.items()}))
        if hub.token and not path.startswith("/cdn/") and self.headers.get("authorization") != f"Bearer {hub.token}":
            self._error(401, "GatedRepo")
        elif path.startswith("/api/models/"):
            self._describe(path.removeprefix("/api/models/").partition("/revision/")[0])
        elif path.startswith("/cdn/"):
            repo, _, name = path.removeprefix("/cdn/").partition("|")
            self._file(path, hub.repos.get(repo, {}).get(name))
        else:
            repo, _, rest = path[1:].partition("/resolve/")
            name = rest.partition("/")[2]
            if hub.elsewhere:
                self._answer(302, b"", {"location": f"{hub.elsewhere.url}/cdn/{repo}|{name}"})
            else:
                self._file(path, hub.repos.get(repo, {}).get(name))

    def _describe(self, repo: str) -> None:
        files = self.owner.repos.get(repo)
        if files is None:
            self._error(404, "RepoNotFound")
            return
        siblings: list[dict[str, Any]] = [
            {
                "rfilename": name, "size": len(data), "blobId": "0" * 40,
                "lfs": {"sha256": self.owner.digests.get(name) or hashlib.sha256(data).hexdigest(), "size": len(data),
                        "pointerSize": 130},
            }
            for name, data in files.items()
        ]  # fmt: skip
        body = {"id": repo, "sha": COMMIT, "private": False, "siblings": siblings}
        self._answer(200, json.dumps(body).encode(), {"content-type": "application/json"})

    def _file(self, path: str, data: bytes | None) -> None:
        hub = self.owner
        if hub.statuses and (status := hub.statuses.pop(0)) != 200:
            self._answer(status, b"", {"retry-after": "0"})
            return
        if data is None:
            self._error(404, "EntryNotFound")
            return
        asked = self.headers.get("range", "").removeprefix("bytes=")
        first, _, last = asked.partition("-")
        start, stop = int(first or 0), min(int(last or len(data) - 1), len(data) - 1) + 1
        if not hub.ranges:
            start, stop = 0, len(data)
        head = {"content-range": f"bytes {start + hub.wrong_begin}-{stop - 1}/{len(data)}"} if asked and hub.ranges else {}
        self._body(path, 206 if head else 200, data[start:stop], head)

    def _body(self, path: str, status: int, data: bytes, headers: dict[str, str]) -> None:
        hub = self.owner
        self.send_response(status)
        for name, value in (headers | {"content-length": str(len(data))}).items():
            self.send_header(name, value)
        self.end_headers()
        cut = hub.cut.pop(0) if hub.cut else len(data)
        try:
            self.wfile.write(data[:cut])
        except OSError:
            cut = 0
        hub.sent[path] += min(cut, len(data))
        if cut < len(data):
            self.close_connection = True

    def _error(self, status: int, code: str) -> None:
        self._answer(status, b"{}", {"x-error-code": code, "x-error-message": "said the hub"})

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in (headers | {"content-length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
