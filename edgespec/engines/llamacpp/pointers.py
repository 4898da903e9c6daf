"""All pointer work there is: finding the engine's weight tensors and telling them where their bytes now lie.

llama.cpp has no call for "this weight has moved". But a weight's bytes are reached only through the `data` field of its
`ggml_tensor`, read when a graph node computes; so between two nodes that field may be pointed elsewhere. Writing into
another library's struct is only as safe as our knowledge of its layout, so nothing is written before all of this held:

1. a throw-away pass showed every graph node, and with the assumed layout the sources of the nodes are tensors whose
   names, as the engine's own `ggml_get_name` tells them, are names in the validated header;
2. for every one of them the size the engine tells (`ggml_nbytes`) is the header's, and both the engine (`ggml_get_data`)
   and the assumed field say that its bytes lie exactly at (mapping + offset in the file): no field of another meaning
   can agree with a few hundred different addresses;
3. in the order of the graph, every user of a segment lies after the node that ends the segment before and not after the
   node that ends its own, and no node is a view of a weight (a view would carry a stale copy of the pointer).

Whoever fails one of them is not paged; `Refusal` says which, and the caller falls back to plain mmap, announced.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from edgespec.engines.llamacpp.library import ggml
from edgespec.memory.layout import PARTS
from edgespec.types import Floats, TensorExtent

__all__ = ["Graph", "Mark", "Refusal", "adopt", "check_graph", "check_weights", "floats_at", "mark_of", "point"]

_MAX_SOURCES = 10


class _Tensor(ctypes.Structure):
    """`struct ggml_tensor` as of ggml 0.25 on a 64-bit machine; verified at run time, see the module's text."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("ne", ctypes.c_int64 * 4),
        ("nb", ctypes.c_size_t * 4),
        ("op", ctypes.c_int),
        ("op_params", ctypes.c_int32 * 16),
        ("flags", ctypes.c_int32),
        ("src", ctypes.c_void_p * _MAX_SOURCES),
        ("view_src", ctypes.c_void_p),
        ("view_offs", ctypes.c_size_t),
        ("data", ctypes.c_void_p),
        ("name", ctypes.c_char * 64),
        ("extra", ctypes.c_void_p),
    ]


class Refusal(Exception):
    """The engine does not lay its tensors out as expected; the message says what differs."""


@dataclass
class Graph:
    """What one pass showed: per node its name, its sources (address, name) and the address it is a view of.

    Names are taken while the pass runs: afterwards only the weights still exist.
    """

    nodes: list[tuple[str, tuple[tuple[int, str], ...], int]] = field(default_factory=list)

    def record(self, address: int) -> None:
        tensor = _Tensor.from_address(address)
        sources = tuple((source, _name(source)) for source in tensor.src if source)
        self.nodes.append((_name(address), sources, tensor.view_src or 0))


def _name(address: int) -> str:
    text: bytes | None = ggml().get_name(address)
    return (text or b"").decode("utf-8", "replace")


def check_weights(
    graphs: Iterable[Graph], extents: Iterable[TensorExtent], expected: Callable[[TensorExtent], int]
) -> dict[str, tuple[int, ...]]:
    """Tensor addresses by weight name (a tied weight may have two), each proven to be where `expected` says.

    Raises Refusal at the first that is not. Header tensors that no graph uses are absent from the result.
    """
    by_name = {extent.name: extent for extent in extents}
    found: dict[str, set[int]] = {}
    for graph in graphs:
        for _, sources, _ in graph.nodes:
            for source, name in sources:
                if name in by_name:
                    found.setdefault(name, set()).add(source)
    if not found:
        raise Refusal("no weight of the header was met in the graph")
    for name, addresses in found.items():
        for address in addresses:
            _check_one(address, by_name[name], expected(by_name[name]))
    return {name: tuple(sorted(addresses)) for name, addresses in found.items()}


def _check_one(address: int, extent: TensorExtent, expected: int) -> None:
    told, seen = ggml().get_data(address), _Tensor.from_address(address).data
    if told != expected or seen != expected:
        raise Refusal(f"{extent.name} is not where the file's header puts it")
    if ggml().nbytes(address) != extent.size:
        raise Refusal(f"{extent.name} has another size than the file's header says")


def check_graph(graph: Graph, weights: Mapping[str, tuple[int, ...]], segments: Mapping[int, Iterable[str]]) -> None:
    """Raise Refusal unless the graph visits the segments (key -> weight names) one after another, each ending in its node."""
    owner = {address: key for key, names in segments.items() for name in names for address in weights.get(name, ())}
    owned = {address for addresses in weights.values() for address in addresses}
    order = sorted(segments)
    ends = Counter(name for name, _, _ in graph.nodes)
    place = 0
    for name, sources, view in graph.nodes:
        if view in owned:
            raise Refusal(f"node {name} is a view of a weight")
        for source, weight in sources:
            if source in owner and (place == len(order) or owner[source] != order[place]):
                raise Refusal(f"node {name} uses {weight} outside its segment")
        if place < len(order) and name == _end(order[place]):
            if ends[name] != 1:
                raise Refusal(f"several nodes are named {name}")
            place += 1
    if place != len(order):
        raise Refusal(f"the graph has no node {_end(order[place])} where one was expected")


def _end(key: int) -> str:
    return f"{PARTS[key % len(PARTS)]}-{key // len(PARTS)}"


@dataclass(frozen=True)
class Mark:
    """By what the engine's CPU backend knows a repacked tensor: its buffer, and the kernels' traits (0: it has none)."""

    buffer: int
    traits: int


def mark_of(address: int) -> Mark:
    """The mark of a tensor. Raises Refusal when the struct's tail, where the traits are, is not laid out as assumed."""
    tensor = _Tensor.from_address(address)
    told: bytes = ggml().get_name(address)
    if tensor.name != told or ggml().get_data(address) != tensor.data:
        raise Refusal("the engine's tensors do not end as expected")
    return Mark(tensor.buffer or 0, tensor.extra or 0)


def adopt(addresses: Iterable[int], mark: Mark) -> None:
    """Let the tensors at `addresses` be computed as repacked ones. Only before any context of their model exists."""
    for address in addresses:
        tensor = _Tensor.from_address(address)
        tensor.buffer, tensor.extra = mark.buffer, mark.traits


def point(addresses: Iterable[int], target: int) -> None:
    """Let the tensors at `addresses` find their bytes at `target`. Only for addresses `check_weights` returned."""
    for address in addresses:
        _Tensor.from_address(address).data = target


def floats_at(tensor: int, width: int) -> Floats:
    """(rows, width), what a float32 tensor holds right now; not a copy."""
    count = ggml().nbytes(tensor) // 4
    values = np.ctypeslib.as_array(ctypes.cast(ggml().get_data(tensor), ctypes.POINTER(ctypes.c_float)), (count,))
    return values.reshape(-1, width)
