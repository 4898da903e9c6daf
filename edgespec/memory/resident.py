"""What stays in memory for good, read by a worker while the engine loads: embedding, head, norms and pinned segments."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from edgespec.memory.arena import Arena, Piece
from edgespec.memory.layout import PARTS, Layout, cut, lay_out
from edgespec.memory.weightfile import WeightFile
from edgespec.types import MemoryPlan, ModelHeader, TensorExtent

__all__ = ["ROW_BUDGET", "Resident", "embedding_by_rows"]

ROW_BUDGET = 32 << 20  # bytes kept of an embedding that is only looked up


def embedding_by_rows(header: ModelHeader) -> TensorExtent | None:
    """The embedding, if it is untied and so large that its rows are better read on first use."""
    extents = {extent.name: extent for extent in header.core_tensors}
    embedding = extents.get("token_embd.weight")
    if embedding is None or "output.weight" not in extents or embedding.size <= ROW_BUDGET:
        return None
    return embedding


class Resident:
    """The arena: the ring of the streamed segments, and `pinned` layouts with their pieces, filled after `wait`.

    `streamed` are the layouts of the other segments by key. Where only whole layers can be paged (`fine` false) a layer
    streams if any part of it was to.
    """

    def __init__(self, header: ModelHeader, plan: MemoryPlan, file: WeightFile, *, fine: bool) -> None:
        self._file, self._stop = file, threading.Event()
        self.streamed: dict[int, Layout] = {}
        by_rows = embedding_by_rows(header)
        layouts = [lay_out(extent for extent in header.core_tensors if extent != by_rows)]
        for layer in range(header.layers):
            for key, extents in cut(layer, header.layer_tensors(layer), fine=fine).items():
                if _streams(key, plan, fine=fine):
                    self.streamed[key] = lay_out(extents)
                else:
                    layouts.append(lay_out(extents))
        self._arena = Arena(plan.ring_bytes + sum(layout.size for layout in layouts))
        self.ring = self._arena.take(plan.ring_bytes)
        self.pinned: list[tuple[Layout, Piece]] = [(layout, self._arena.take(layout.size)) for layout in layouts]
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="edgespec-pin")
        self._reading = self._pool.submit(self._read)

    def _read(self) -> None:
        for layout, piece in self.pinned:
            for run in layout.runs:
                self._file.read(run, piece.view[run.place : run.place + run.size], self._stop)

    def wait(self) -> None:
        """Until all pinned bytes are there. Raises PagingError or ModelChanged."""
        self._reading.result()

    def close(self) -> None:
        """Stop reading and give the memory back."""
        self._stop.set()
        self._pool.shutdown()
        self._arena.close()


def _streams(key: int, plan: MemoryPlan, *, fine: bool) -> bool:
    return key in plan.streamed if fine else any(key // len(PARTS) == other // len(PARTS) for other in plan.streamed)
