"""One anonymous, page-aligned region backed by huge pages, cut into pieces that are written once and reused.

Fresh mappings would cost more than the arithmetic they serve: faults, zeroing and cgroup charging per page.
"""

from __future__ import annotations

import ctypes
import mmap

from edgespec.errors import UsageError
from edgespec.memory.layout import PAGE

__all__ = ["Arena", "Piece"]


class Piece:
    """`size` bytes at `address`; `view` is the same memory for reading into."""

    def __init__(self, view: memoryview, address: int) -> None:
        self.view, self.address, self.size = view, address, len(view)


class Arena:
    """`take` hands out page-aligned pieces until `size` is spent; `close` gives everything back at once."""

    def __init__(self, size: int) -> None:
        # Private, because shared anonymous memory (the default) is a file to the kernel and gets no huge pages.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._map = mmap.mmap(-1, max(PAGE, -(-size // PAGE) * PAGE), flags=flags)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self._anchor = ctypes.c_char.from_buffer(self._map)
        self._address = ctypes.addressof(self._anchor)
        self._view = memoryview(self._map)
        self._used = 0

    def __len__(self) -> int:
        return len(self._map)

    def take(self, size: int) -> Piece:
        """Raises UsageError when the arena is spent: the plan and its use disagree."""
        size = -(-size // PAGE) * PAGE
        if self._used + size > len(self._map):
            raise UsageError(f"arena of {len(self._map)} bytes cannot hold {size} more: the plan is wrong, please report it")
        piece = Piece(self._view[self._used : self._used + size], self._address + self._used)
        self._used += size
        return piece

    def close(self) -> None:
        """Give the memory back. The addresses stay taken while somebody holds a piece, whose bytes are gone."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)
        self._view.release()
        del self._anchor
        try:
            self._map.close()
        except BufferError:  # a piece is still referenced; the map goes with it
            return
