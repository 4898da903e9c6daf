"""A real server on a real socket, with the embedded pair behind it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx2
import pytest

import edgespec
from edgespec import Runtime
from edgespec.server.guard import Rules
from edgespec.server.run import Server, listen
from edgespec.server.service import Service

WAITING, LOCAL = 8, Rules()


@dataclass
class Running:
    url: str
    runtime: Runtime
    port: int


@contextmanager
def served(runtime: Runtime, rules: Rules = LOCAL, waiting: int = WAITING) -> Iterator[Running]:
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    server = Server(Service(runtime, "pair", waiting), rules)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield Running(f"http://127.0.0.1:{port}", runtime, port)
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@pytest.fixture(scope="session")
def runtime() -> Iterator[Runtime]:
    with edgespec.load(budget="1GiB", context=1024, conversations=4) as runtime:
        yield runtime


@pytest.fixture(scope="session")
def server(runtime: Runtime) -> Iterator[Running]:
    with served(runtime) as running:
        yield running


@pytest.fixture
def http(server: Running) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.url, timeout=60) as client:
        yield client
