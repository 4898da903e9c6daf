"""Pure: how one layer's weights lie in a slot, and which layers stay resident.

A slot holds the layer's bytes exactly as the file does, cut at page boundaries, so that one direct read fills it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgespec.types import TensorExtent

__all__ = ["PAGE", "Layout", "Run", "lay_out", "spread"]

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
    """A layer in a slot of `size` bytes: what to read, and where each tensor then starts."""

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


def spread(sizes: Sequence[int], room: int) -> tuple[int, ...]:
    """Layers to stream so that the others fit into `room` bytes: as few as possible, evenly spaced.

    Even spacing lets the reader work while pinned layers compute. Returns ascending layer numbers.
    """
    count = len(sizes)
    for streamed in range(count + 1):
        chosen = tuple(sorted({(2 * i + 1) * count // (2 * streamed) for i in range(streamed)}))
        if sum(sizes) - sum(sizes[layer] for layer in chosen) <= room:
            return chosen
    return tuple(range(count))
