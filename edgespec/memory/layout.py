"""Pure: how weights lie in a slot, how a layer is cut into segments, and which layers stay resident.

A slot holds a segment's bytes exactly as the file does, cut at page boundaries, so that one direct read fills it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from edgespec.types import ModelHeader, TensorExtent

__all__ = ["PAGE", "PARTS", "Layout", "Run", "cut", "key_of", "lay_out", "pin_layers", "segment_sizes", "spread"]

PAGE = 4096  # direct reads want offsets, lengths and addresses aligned to this


@dataclass(frozen=True)
class Run:
    """`size` bytes of file number `file` from `offset`, read to `place` in the slot; all page-aligned."""

    file: int
    offset: int
    size: int
    place: int


@dataclass(frozen=True)
class Layout:
    """A segment in a slot of `size` bytes: what to read, and where each tensor then starts."""

    runs: tuple[Run, ...]
    places: tuple[tuple[str, int], ...]
    size: int


def lay_out(tensors: Iterable[TensorExtent], gap: int = 1 << 16) -> Layout:
    """Merge the tensors' extents into page-aligned runs; holes shorter than `gap` bytes are read over."""
    runs: list[Run] = []
    places: list[tuple[str, int]] = []
    size = 0
    for tensor in sorted(tensors, key=lambda t: (t.file, t.offset)):
        start, end = tensor.offset // PAGE * PAGE, -(-(tensor.offset + tensor.size) // PAGE) * PAGE
        last = runs[-1] if runs else None
        if last and last.file == tensor.file and start <= last.offset + last.size + gap:
            end = max(end, last.offset + last.size)
            runs[-1] = Run(last.file, last.offset, end - last.offset, last.place)
        else:
            runs.append(Run(tensor.file, start, end - start, size))
        run = runs[-1]
        places.append((tensor.name, run.place + tensor.offset - run.offset))
        size = run.place + run.size
    return Layout(tuple(runs), tuple(places), size)


# The graph nodes that end the segments of a layer: attention, gate, up, and the rest. Four small segments overlap reading
# with computing in the space of one layer, where whole layers would need two or three.
PARTS = ("ffn_inp", "ffn_gate", "ffn_up", "l_out")


def key_of(layer: int, part: int) -> int:
    """Segments are numbered in the order of a sweep."""
    return layer * len(PARTS) + part


def cut(layer: int, tensors: Iterable[TensorExtent], *, fine: bool) -> dict[int, list[TensorExtent]]:
    """The tensors of a layer by segment key; with `fine` false all in the last segment, which ends with the layer."""
    tensors = list(tensors)
    kinds = {tensor.name.split(".")[2] for tensor in tensors}
    segments: dict[int, list[TensorExtent]] = {}
    for tensor in tensors:
        part = _part(tensor.name.split(".")[2], gated="ffn_gate" in kinds) if fine else len(PARTS) - 1
        segments.setdefault(key_of(layer, part), []).append(tensor)
    return dict(sorted(segments.items()))


def _part(kind: str, *, gated: bool) -> int:
    if kind.startswith(("attn", "post_attention")):
        return 0
    if kind == "ffn_norm":
        return 1 if gated else 2
    return {"ffn_gate": 1, "ffn_up": 2}.get(kind, 3)


def segment_sizes(header: ModelHeader) -> dict[int, int]:
    """Bytes of each fine segment's slot, in sweep order."""
    return {
        key: lay_out(tensors).size
        for layer in range(header.layers)
        for key, tensors in cut(layer, header.layer_tensors(layer), fine=True).items()
    }


def spread(sizes: Sequence[int], room: int) -> tuple[int, ...]:
    """Which of these to stream so that the others fit into `room` bytes: few bytes, evenly spaced.

    Even spacing lets the reader work while pinned segments compute. As sizes differ, room may be left over: the largest
    that fit it are pinned too. Returns ascending indices.
    """
    count, total = len(sizes), sum(sizes)
    chosen = list(range(count))
    for streamed in range(count + 1):
        even = sorted({(2 * i + 1) * count // (2 * streamed) for i in range(streamed)})
        if total - sum(sizes[index] for index in even) <= room:
            chosen = even
            break
    left = room - total + sum(sizes[index] for index in chosen)
    for index in sorted(chosen, key=lambda index: -sizes[index]):
        if sizes[index] <= left:
            chosen.remove(index)
            left -= sizes[index]
    return tuple(chosen)


def pin_layers(sizes: Mapping[int, int], order: Sequence[int], extra: int, room: int) -> tuple[tuple[int, ...], int]:
    """Which whole layers to pin, the first of `order` first, and the room that is left.

    `sizes` are those of the segments, by key; a layer takes `extra` bytes more than its segments.
    """
    kept: list[int] = []
    for layer in order:
        size = extra + sum(size for key, size in sizes.items() if key // len(PARTS) == layer)
        if size > room:
            break
        kept.append(layer)
        room -= size
    return tuple(sorted(kept)), room
