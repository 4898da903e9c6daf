"""One at a time, fairly: whoever waits is served in turn by client, so that one with many requests holds nobody up."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from edgespec.server.errors import Refused

__all__ = ["Turnstile"]


class Turnstile:
    """For one event loop. `waiting` requests at most wait; others are told to come again."""

    def __init__(self, waiting: int) -> None:
        self._most = waiting
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()  # by client, whose turn it is first
        self._taken = self._closed = False
        self._seconds = 1.0  # that a turn takes, averaged

    @property
    def waiting(self) -> int:
        return sum(map(len, self._queues.values()))

    @property
    def running(self) -> int:
        return int(self._taken)

    def close(self) -> None:
        """No more turns: whoever waits is told so."""
        self._closed = True
        while self._queues:
            for called in self._queues.popitem()[1]:
                if not called.done():
                    called.set_exception(_ending())

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Wait for a turn and have it while the block runs. Raises Refused, 503, when too many wait or none is to come."""
        if self._closed:
            raise _ending()
        if self._taken:
            if self.waiting >= self._most:
                again = str(max(1, round(self._seconds * (self.waiting + 1))))
                raise Refused(503, f"{self.waiting} requests are waiting: try again later", "busy", {"retry-after": again})
            await self._wait(client)
        self._taken = True
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            yield
        finally:
            self._seconds += 0.3 * (loop.time() - began - self._seconds)
            self._pass_on()

    async def _wait(self, client: str) -> None:
        called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(client, deque()).append(called)
        try:
            await called
        except asyncio.CancelledError:
            if called.done() and not called.cancelled() and not called.exception():
                self._pass_on()  # it was our turn already
            else:
                self._forget(client, called)
            raise

    def _forget(self, client: str, called: asyncio.Future[None]) -> None:
        queue = self._queues.get(client)
        if queue and called in queue:
            queue.remove(called)
            if not queue:
                del self._queues[client]

    def _pass_on(self) -> None:
        """The next client's first request is called; the client goes to the end of the line."""
        while self._queues:
            client, queue = self._queues.popitem(last=False)
            called = queue.popleft()
            if queue:
                self._queues[client] = queue
            if not called.done():  # it may be on its way out
                called.set_result(None)
                return
        self._taken = False


def _ending() -> Refused:
    return Refused(503, "the server is about to end: try again later", "busy", {"retry-after": "10"})
