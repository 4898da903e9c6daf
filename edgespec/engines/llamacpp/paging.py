"""A loaded model whose layers are paged: the self-check, the arena, and what happens at each layer boundary."""

from __future__ import annotations

import ctypes
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edgespec.engines.llamacpp.callbacks import Callbacks
from edgespec.engines.llamacpp.library import llama
from edgespec.engines.llamacpp.params import context_params, load_file
from edgespec.engines.llamacpp.pointers import Graph, Mark, Refusal, adopt, check_graph, check_weights, floats_at, mark_of, point
from edgespec.engines.llamacpp.repack import Repacker
from edgespec.engines.llamacpp.rows import EmbeddingRows
from edgespec.engines.llamacpp.standin import mappings, seal, stand_in, unpopulated
from edgespec.memory.layout import PARTS, Layout, cut, key_of
from edgespec.memory.pagefile import PageFile
from edgespec.memory.pager import Pager
from edgespec.memory.resident import Resident
from edgespec.memory.weightfile import WeightFile
from edgespec.timeline import OFF, Timeline
from edgespec.types import Floats, MemoryPlan, ModelHeader, TensorExtent

__all__ = ["Learned", "Loan", "Observer", "PagedWeights", "learn", "load_paged"]

_log = logging.getLogger(__name__)
Observer = Callable[[int, Floats], None]  # a layer, and what leaves it: (rows, width), valid during the call
_LEARN_WIDTHS = (1, 8)  # tokens per throw-away pass: the graphs of decoding and of batches


@dataclass(frozen=True)
class Learned:
    """Tensor addresses by weight, and where the process maps the stand-ins."""

    weights: dict[str, tuple[int, ...]]
    regions: list[tuple[int, int, int, int]]
    fine: bool  # whether layers can be paged in segments, or only whole


def load_paged(
    header: ModelHeader, plan: MemoryPlan, file: WeightFile, *,
    pages: PageFile | None = None, shift: int = 0, timeline: Timeline = OFF, observe: Observer | None = None,
) -> tuple[Any, PagedWeights]:  # fmt: skip
    """Load without reading, check every pointer, read what stays resident, start the pager.

    With `pages`, `file` is the page file. `shift` moves every expected address; tests use it to see the self-check refuse.
    `observe` is shown what leaves each layer. Raises Refusal.
    """
    source = pages.weights(header) if pages else header
    resident = Resident(source, plan, file, fine=True)
    model: Any = None
    try:
        with stand_in(header) as paths:
            with unpopulated(paths, header):
                model = load_file(paths[0], mapped=True, repack=False)
            learned = learn(header, model, paths, shift)
            seal(learned.regions)
        if not learned.fine:
            resident.close()
            resident = Resident(source, plan, file, fine=False)
        repacker = _adopt(pages, learned.weights) if pages else None
        resident.wait()
        return model, PagedWeights(source, file, learned.weights, resident, timeline, repacker, observe)
    except BaseException:
        resident.close()
        if model:
            llama().llama_model_free(model)
        raise


def _adopt(pages: PageFile, weights: dict[str, tuple[int, ...]]) -> Repacker:
    """Tell the engine's tensors that their bytes are repacked. Raises Refusal where this engine would not have done so."""
    repacker = Repacker()
    for weight in pages.tensors:
        if weight.name in pages.repacked and weight.name in weights:
            if not repacker.supports(weight):
                repacker.close()
                raise Refusal(f"{weight.name} is repacked in the page file but not by this engine")
            adopt(weights[weight.name], repacker.mark(weight))
    return repacker


def learn(header: ModelHeader, model: Any, paths: list[str], shift: int = 0) -> Learned:
    """Where the weights of a model that was loaded from stand-ins are. Raises Refusal."""
    regions = mappings(paths)

    def expected(extent: TensorExtent) -> int:
        for number, start, end, offset in regions:
            if number == extent.file and offset <= extent.offset < offset + end - start:
                return start + extent.offset - offset + shift
        raise Refusal(f"{extent.name} is not in the engine's mapping")

    graphs = [_watch(model, width) for width in _LEARN_WIDTHS]
    weights = check_weights(graphs, header.tensors, expected)
    fine = _visits_segments(header, graphs, weights)
    if unused := [extent.name for extent in header.tensors if extent.name not in weights]:
        _log.info("not used by the graph, so not paged: %s", ", ".join(unused))
    return Learned(weights, regions, fine)


def _visits_segments(header: ModelHeader, graphs: list[Graph], weights: dict[str, tuple[int, ...]]) -> bool:
    """Whether every graph visits the fine segments in order; if not, it must visit whole layers so. Raises Refusal."""
    try:
        for graph in graphs:
            check_graph(graph, weights, _segment_names(header, weights, fine=True))
    except Refusal as refusal:
        _log.info("paging whole layers, without overlap: %s", refusal)
        for graph in graphs:
            check_graph(graph, weights, _segment_names(header, weights, fine=False))
        return False
    return True


def _segments(
    header: ModelHeader, weights: dict[str, tuple[int, ...]], layer: int, *, fine: bool
) -> dict[int, list[TensorExtent]]:
    """The layer's segments, less what the graph does not use."""
    return cut(layer, [extent for extent in header.layer_tensors(layer) if extent.name in weights], fine=fine)


def _segment_names(header: ModelHeader, weights: dict[str, tuple[int, ...]], *, fine: bool) -> dict[int, list[str]]:
    return {
        key: [extent.name for extent in extents]
        for layer in range(header.layers)
        for key, extents in _segments(header, weights, layer, fine=fine).items()
    }


def _watch(model: Any, width: int) -> Graph:
    """Show every node of a pass of `width` tokens to a recorder; the pass itself is aborted after one node."""
    lib, graph, errors = llama(), Graph(), []
    params = context_params(context=256, chunk=width, lanes=1, outputs=width, threads=1)

    def ask(tensor: int, _ask: bool, _user: object) -> bool:
        try:
            graph.record(tensor)
        except Exception as error:  # nothing may leave a callback
            errors.append(error)
        return False

    params.cb_eval = type(params.cb_eval)(ask)
    params.abort_callback = lib.ggml_abort_callback(lambda _user: True)
    context = lib.llama_init_from_model(model, params)
    if not context:
        raise Refusal("the engine refuses a context")
    try:
        token = (ctypes.c_int32 * width)(*range(width))
        code = lib.llama_decode(context, lib.llama_batch_get_one(token, width))
    finally:
        lib.llama_free(context)
    if errors or code != 2:
        raise Refusal(f"the throw-away pass ended with code {code}" + (f" and {errors[0]!r}" if errors else ""))
    return graph


@dataclass(frozen=True)
class Loan:
    """Where a weight lies for good, and as what it is computed (None: as it is in the model file)."""

    address: int
    mark: Mark | None


class PagedWeights:
    """Core and pinned segments in the arena, streamed ones behind the pager, and the handler that ties them together."""

    def __init__(
        self, header: ModelHeader, file: WeightFile, weights: dict[str, tuple[int, ...]], resident: Resident,
        timeline: Timeline, repacker: Repacker | None, observe: Observer | None = None,
    ) -> None:  # fmt: skip
        self._weights, self._resident, self._timeline, self._repacker = weights, resident, timeline, repacker
        self._observe, self._width = observe, header.width
        self._lent: dict[str, int] = {}
        self._since = 0.0  # when the engine last went on computing
        self.rows = EmbeddingRows.for_model(header, file)
        for layout, piece in resident.pinned:
            for addresses, place in self._targets(layout):
                point(addresses, piece.address + place)
            self._lent |= {name: piece.address + place for name, place in layout.places}
        if self.rows:
            point(weights[self.rows.name], self.rows.address)
            self._lent[self.rows.name] = self.rows.address
        self._places = {key: self._targets(layout) for key, layout in resident.streamed.items()}
        streamed = sorted(resident.streamed)  # none where all of it fits in the plain layout
        self.pager = Pager(file, resident.streamed, streamed, resident.ring, timeline) if streamed else None
        ends = [key_of(layer, len(PARTS) - 1) for layer in range(header.layers)] if observe else []
        self.callbacks = Callbacks(header.layers, {*resident.streamed, *ends}, self._at_boundary)

    def _targets(self, layout: Layout) -> list[tuple[tuple[int, ...], int]]:
        """Tensor addresses and places in the slot; what the graph does not use keeps pointing at the sealed mapping."""
        return [(self._weights[name], place) for name, place in layout.places if name in self._weights]

    def lend(self, name: str) -> Loan:
        """A weight for another graph to compute with, until `close`. Raises Refusal for one that is streamed."""
        if name not in self._lent:
            raise Refusal(f"{name} does not stay in memory")
        mark = mark_of(self._weights[name][0]) if self._repacker else None
        return Loan(self._lent[name], mark if mark and mark.traits else None)

    def _at_boundary(self, key: int, before: bool, tensor: int) -> None:
        if self._observe and not before and key % len(PARTS) == len(PARTS) - 1:
            self._observe(key // len(PARTS), floats_at(tensor, self._width))
        if self.pager and key in self._places:
            self._page(self.pager, key, before)

    def _page(self, pager: Pager, key: int, before: bool) -> None:
        arrived = time.perf_counter()
        layer, part = divmod(key, len(PARTS))
        name = "compute up to {}" if before else "compute {} {}"
        self._timeline.add("target", max(self._since, self.callbacks.began), arrived, name, layer, PARTS[part])
        if before:
            slot = pager.acquire(key, self.callbacks.idle)
            for addresses, place in self._places[key]:
                point(addresses, slot + place)
        else:
            pager.release(key)
        self._since = time.perf_counter()

    def stop(self) -> None:
        """End the reading, before the model goes."""
        if self.pager:
            self.pager.close()

    def close(self) -> None:
        """After the contexts and the model: give the memory back."""
        self.stop()
        self._resident.close()
        if self._repacker:
            self._repacker.close()
        if self.rows:
            self.rows.close()
