"""Streamed segments pass through a ring that one reader thread fills in sweep order.

A sweep visits the segments cyclically, so the reader knows what comes next without being told, and runs on across
sweeps: while the drafter works, the next sweep's first segments load. They differ in size; the ring is cut by bytes.
A wait is offered to whoever can use it, as long as the reader stays busy by itself: work done then costs no time.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from edgespec.errors import EdgespecError, PagingError
from edgespec.memory.arena import Piece
from edgespec.memory.layout import Layout
from edgespec.memory.weightfile import WeightFile
from edgespec.timeline import OFF, Timeline

__all__ = ["Pager"]


@dataclass
class _Slot:
    key: int
    start: int
    size: int
    ready: bool = False
    error: EdgespecError | None = None


@dataclass
class _Ring:
    """Slots in the order they were filled, each contiguous; the space of the oldest is the next to come free."""

    size: int
    slots: deque[_Slot] = field(default_factory=deque)

    def place(self, size: int) -> int | None:
        """Where `size` bytes fit now, or None."""
        if not self.slots:
            return 0 if size <= self.size else None
        head, tail = self.slots[0].start, self.slots[-1].start + self.slots[-1].size
        wrapped = self.slots[-1].start < head
        if wrapped:
            return tail if head - tail >= size else None
        if self.size - tail >= size:
            return tail
        return 0 if head >= size else None

    @property
    def free(self) -> int:
        """Bytes no slot holds; those behind the last slot may be too few for the next one."""
        return self.size - sum(slot.size for slot in self.slots)


class Pager:
    """`acquire` waits for a streamed segment and tells where it lies; `release` lets the reader overwrite it.

    Used from one computing thread. Errors of the reader are raised by the `acquire` that needed the segment.
    """

    def __init__(
        self, file: WeightFile, layouts: Mapping[int, Layout], order: Sequence[int], ring: Piece, timeline: Timeline = OFF
    ) -> None:
        largest = max(layouts[key].size for key in order)
        if ring.size < largest:
            raise PagingError(f"a ring of {ring.size} bytes cannot hold a segment of {largest}: please report it")
        self._file, self._layouts, self._order, self._piece = file, layouts, tuple(order), ring
        self._timeline = timeline
        self._ring = _Ring(ring.size)
        self._changed = threading.Condition()
        self._next = 0  # index into the order
        self._reading = False
        self._paused = False  # after an error, until the next acquire
        self._stop = threading.Event()
        self._flush = threading.Event()
        self._began = 0.0  # when the running read began
        self._bytes = 0  # read so far
        self.wait_seconds = 0.0  # of the computing thread, for the disk
        self.idle_seconds = 0.0  # of such waits put to use
        self.read_seconds = 0.0  # of the reader, reading
        self._thread = threading.Thread(target=self._run, name="edgespec-reader", daemon=True)
        self._thread.start()

    def acquire(self, key: int, idle: Callable[[float], bool] | None = None) -> int:
        """Address of the slot of segment `key`, valid until `release(key)`. Raises PagingError or ModelChanged.

        While the segment is not there `idle` is called with the seconds for which the reader will not need us; it does a
        bounded piece of work, or answers False and is not called again. What it raises leaves here.
        """
        started, used = time.perf_counter(), 0.0
        with self._changed:
            if not self._expects(key):
                self._restart_at(key)
            while idle and not self._stop.is_set() and not self._arrived(key):
                began = time.perf_counter()
                if not self._unlocked(idle, self._unattended(began)):
                    break
                used += time.perf_counter() - began
            self._changed.wait_for(lambda: self._stop.is_set() or self._arrived(key))
            self._count_wait(started, used, key)
            if self._stop.is_set():
                raise PagingError("the pager is closed: load the model again")
            slot = self._ring.slots[0]
            if slot.error:
                self._ring.slots.clear()
                self._paused = True
                raise slot.error
            return self._piece.address + slot.start

    def _unlocked(self, idle: Callable[[float], bool], seconds: float) -> bool:
        self._changed.release()
        try:
            return idle(seconds)
        finally:
            self._changed.acquire()

    def _unattended(self, now: float) -> float:
        """Seconds until the reader has finished its read and filled what is free of the ring, at its speed so far."""
        if not self._bytes or not self._ring.slots:
            return 0.0
        seconds_per_byte = self.read_seconds / self._bytes
        running = self._ring.slots[-1].size * seconds_per_byte - (now - self._began) if self._reading else 0.0
        return max(0.0, running) + self._ring.free * seconds_per_byte

    def _count_wait(self, started: float, used: float, key: int) -> None:
        ended = time.perf_counter()
        self.idle_seconds += used
        self.wait_seconds += ended - started - used
        self._timeline.add("target", started, ended, "wait {}", key)

    def release(self, key: int) -> None:
        with self._changed:
            if not self._ring.slots or self._ring.slots[0].key != key:
                raise PagingError(f"segment {key} was released out of order: please report it")
            self._ring.slots.popleft()
            self._changed.notify_all()

    def close(self) -> None:
        """Stop the reader; idempotent."""
        self._stop.set()
        self._flush.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join()

    def _expects(self, key: int) -> bool:
        if self._paused:
            return False
        return (self._ring.slots[0].key if self._ring.slots else self._order[self._next]) == key

    def _arrived(self, key: int) -> bool:
        return bool(self._ring.slots) and self._ring.slots[0].key == key and self._ring.slots[0].ready

    def _restart_at(self, key: int) -> None:
        """An aborted sweep left the reader elsewhere: drop what it has and begin at `key`."""
        self._flush.set()
        self._changed.wait_for(lambda: not self._reading or self._stop.is_set())
        self._flush.clear()
        self._ring.slots.clear()
        self._next = self._order.index(key)
        self._paused = False
        self._changed.notify_all()

    def _claim(self) -> _Slot | None:
        """The next segment's slot if there is room for it now."""
        if self._paused or self._flush.is_set():
            return None
        key = self._order[self._next]
        start = self._ring.place(self._layouts[key].size)
        if start is None:
            return None
        slot = _Slot(key, start, self._layouts[key].size)
        self._ring.slots.append(slot)
        self._began = time.perf_counter()
        self._next = (self._next + 1) % len(self._order)
        self._reading = True
        return slot

    def _run(self) -> None:
        while not self._stop.is_set():
            with self._changed:
                slot: _Slot | None = None
                while not self._stop.is_set() and (slot := self._claim()) is None:
                    self._changed.wait()
            if slot is None:
                return
            error = self._fill(slot)
            with self._changed:
                ended = time.perf_counter()
                self.read_seconds += ended - self._began
                self._bytes += slot.size
                self._timeline.add("disk", self._began, ended, "read {}", slot.key)
                slot.error, slot.ready, self._reading = error, True, False
                self._paused = self._paused or error is not None
                self._changed.notify_all()

    def _fill(self, slot: _Slot) -> EdgespecError | None:
        try:
            for run in self._layouts[slot.key].runs:
                start = slot.start + run.place
                self._file.read(run, self._piece.view[start : start + run.size], self._flush)
        except EdgespecError as error:
            return error
        except Exception as error:  # anything else in this thread must still reach the caller
            return PagingError(f"reading segment {slot.key} failed: {error!r}: please report it")
        return None
