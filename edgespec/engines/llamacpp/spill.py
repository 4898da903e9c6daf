"""Keys and values of committed tokens that left a context's cells for a file, and come back when they are looked at."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence

from edgespec.cache import cache_folder
from edgespec.engines.llamacpp.cells import Cells
from edgespec.errors import PagingError
from edgespec.speculation.retrieval import CHUNK

__all__ = ["Spill"]

_REMEDY = "free some disk space, or give the drafter a shorter --context"


class Spill:
    """Of `cells`, the sequence `keeper` has what is in memory; `porter` is for carrying and has nothing in between.

    The file has no name: nothing is left of it however the process ends. Raises PagingError when it cannot be used.
    """

    def __init__(self, cells: Cells, keeper: int, porter: int) -> None:
        self._cells, self._keeper, self._porter = cells, keeper, porter
        self._file = tempfile.TemporaryFile(dir=cache_folder())  # noqa: SIM115 (closed with the session)
        self._size = 0  # of a chunk in the file, the same for all
        self._stored: set[int] = set()
        self._away: set[int] = set()
        self.evicted = self.brought = 0  # chunks so far

    @property
    def resident(self) -> int:
        """Committed tokens in memory."""
        return self._cells.evaluated - CHUNK * len(self._away)

    def make_room(self, count: int) -> None:
        """Let `count` more cells fit: the oldest chunks go, but for the first, which attention leans on."""
        excess = self.resident + count - self._cells.capacity
        if excess > 0:
            here = [chunk for chunk in range(1, self._cells.evaluated // CHUNK) if chunk not in self._away]
            self._evict(here[: -(-excess // CHUNK)])

    def look(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Have the chunks of `ranges` in memory, and no other whole ones."""
        wanted = {chunk for start, stop in ranges for chunk in range(start // CHUNK, -(-stop // CHUNK))}
        whole = set(range(self._cells.evaluated // CHUNK))
        self._evict(sorted(whole - wanted - self._away))
        self._bring(sorted(wanted & self._away))

    def rewind(self, length: int) -> None:
        """Only the first `length` tokens count from now on; the last of these come back, as far as a half of the cells."""
        first = max(0, length - self._cells.capacity // 2) // CHUNK
        self._away = {chunk for chunk in self._away if chunk * CHUNK < length}
        self.look([(0, CHUNK), (first * CHUNK, length)])
        self._stored = {chunk for chunk in self._stored if (chunk + 1) * CHUNK <= length}

    def _evict(self, chunks: Iterable[int]) -> None:
        for chunk in chunks:
            start, end = chunk * CHUNK, (chunk + 1) * CHUNK
            if chunk not in self._stored:
                self._store(chunk)
            self._cells.remove_everywhere(start, end)
            self._away.add(chunk)
            self.evicted += 1

    def _bring(self, chunks: Iterable[int]) -> None:
        for chunk in chunks:
            self._cells.set_state(self._porter, self._read(chunk))
            self._cells.copy(self._porter, self._keeper, chunk * CHUNK, (chunk + 1) * CHUNK)
            self._cells.remove(self._porter, 0)
            self._away.remove(chunk)
            self.brought += 1

    def _store(self, chunk: int) -> None:
        self._cells.copy(self._keeper, self._porter, chunk * CHUNK, (chunk + 1) * CHUNK)
        try:
            self._write(chunk, self._cells.state(self._porter))
        finally:
            self._cells.remove(self._porter, 0)
        self._stored.add(chunk)

    def _write(self, chunk: int, state: bytes) -> None:
        self._size = self._size or len(state)
        try:
            written = os.pwrite(self._file.fileno(), state, chunk * self._size)
        except OSError as error:
            raise PagingError(f"keys and values cannot be put aside ({error.strerror}): {_REMEDY}") from error
        if written != self._size:
            raise PagingError(f"keys and values were put aside in part only: {_REMEDY}")

    def _read(self, chunk: int) -> bytes:
        try:
            state = os.pread(self._file.fileno(), self._size, chunk * self._size)
        except OSError as error:
            raise PagingError(f"keys and values cannot be read back ({error.strerror}): check the disk") from error
        if len(state) != self._size:
            raise PagingError("keys and values cannot be read back whole: check the disk")
        return state

    def close(self) -> None:
        self._file.close()
