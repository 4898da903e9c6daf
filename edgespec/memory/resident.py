"""What stays in memory for good, read by a worker while the engine loads: embedding, head, norms and pinned segments."""

from __future__ import annotations

import threading
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

from edgespec.memory.arena import Arena, Piece
from edgespec.memory.layout import PARTS, Layout, cut, key_of, lay_out, segment_sizes, spread
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

    `streamed` are the layouts of the other segments by key. Where only whole layers can be paged (`fine` false) as many stay
    as fit into the bytes that the plan has for segments.
    """

    def __init__(self, header: ModelHeader, plan: MemoryPlan, file: WeightFile, *, fine: bool) -> None:
        self._file, self._stop = file, threading.Event()
        self.streamed: dict[int, Layout] = {}
        by_rows = embedding_by_rows(header)
        layouts = [lay_out(extent for extent in header.core_tensors if extent != by_rows)]
        streamed = plan.streamed if fine else _whole_layers(header, plan)
        for layer in range(header.layers):
            for key, extents in cut(layer, header.layer_tensors(layer), fine=fine).items():
                if key in streamed:
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


def _whole_layers(header: ModelHeader, plan: MemoryPlan) -> Collection[int]:
    """Keys of the layers to stream so that the others take no more than the segments that were to stay."""
    room = sum(size for key, size in segment_sizes(header).items() if key not in plan.streamed)
    sizes = {layer: lay_out(header.layer_tensors(layer)).size for layer in range(header.layers)}
    room -= sum(sizes.pop(layer) for layer in plan.kept)  # whole in any case
    layers = list(sizes)
    return {key_of(layers[index], len(PARTS) - 1) for index in spread(list(sizes.values()), room)}
