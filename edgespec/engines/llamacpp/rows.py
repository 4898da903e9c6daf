"""An embedding that is only looked up, never multiplied: its rows are read when a token first needs them.

A 152k-token embedding is hundreds of megabytes of which a conversation touches a few. The region is as large as the
tensor but untouched pages cost nothing; when too many were touched, all are given back and read again on demand.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable

from edgespec.memory.layout import PAGE, Run
from edgespec.memory.resident import ROW_BUDGET, embedding_by_rows
from edgespec.memory.weightfile import WeightFile
from edgespec.types import ModelHeader, TensorExtent

__all__ = ["EmbeddingRows"]


class EmbeddingRows:
    def __init__(self, extent: TensorExtent, file: WeightFile) -> None:
        self.name, self._extent, self._file = extent.name, extent, file
        self._skew = extent.offset % PAGE
        self._row_bytes = extent.size // extent.shape[1]
        size = -(-(extent.size + self._skew) // PAGE) * PAGE
        self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._view = memoryview(self._map)
        self._anchor = ctypes.c_char.from_buffer(self._map)
        self._present: set[int] = set()  # pages
        self._held: set[int] = set()  # of these, what the running pass looks up

    @classmethod
    def for_model(cls, header: ModelHeader, file: WeightFile) -> EmbeddingRows | None:
        """Rows for an embedding that is better read on demand, else None (it is then simply resident)."""
        embedding = embedding_by_rows(header)
        return cls(embedding, file) if embedding else None

    @property
    def address(self) -> int:
        """Where row 0 lies."""
        return ctypes.addressof(self._anchor) + self._skew

    def ensure(self, tokens: Iterable[int]) -> None:
        """Have the rows of `tokens` in place, for a pass of the model itself. Raises PagingError or ModelChanged."""
        self._held = set()
        self._held = self.ensure_beside(tokens)

    def ensure_beside(self, tokens: Iterable[int]) -> set[int]:
        """The same for a pass of another graph inside the model's own, whose rows stay in place too."""
        needed = {page for token in tokens for page in self._pages(token)}
        wanted = needed | self._held
        if len(self._present | wanted) * PAGE > ROW_BUDGET:
            self._map.madvise(mmap.MADV_DONTNEED)
            self._present.clear()
        base = self._extent.offset - self._skew
        for page in sorted(wanted - self._present):
            run = Run(self._extent.file, base + page * PAGE, PAGE, page * PAGE)
            self._file.read(run, self._view[page * PAGE : (page + 1) * PAGE])
            self._present.add(page)
        return needed

    def _pages(self, token: int) -> range:
        start = self._skew + token * self._row_bytes
        return range(start // PAGE, (start + self._row_bytes - 1) // PAGE + 1)

    def close(self) -> None:
        self._view.release()
        del self._anchor
        self._map.close()
