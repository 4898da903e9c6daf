"""Which part of a long context a drafter looks at: pure scoring and choice.

Three views behind one interface. `full` sees everything. `window` sees the first few tokens, which attention leans on
whatever they say, and the most recent ones (Xiao et al., "Efficient Streaming Language Models with Attention Sinks",
2023). `retrieval` adds to a shorter window those chunks of the context whose mean key the present queries attend to most
(Sun et al., "TriForce: Lossless Acceleration of Long Sequence Generation with Hierarchical Speculative Decoding", 2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from edgespec.errors import UsageError

__all__ = ["CHUNK", "Rebuild", "Shape", "View", "chunk_scores", "ranges_of"]

View = Literal["full", "window", "retrieval"]
Ranges = tuple[tuple[int, int], ...]

CHUNK = 16  # tokens that are chosen together
_SINKS = 16
_WINDOW_SHARE = 0.4  # of the cells beside the sinks, where chunks are retrieved too


@dataclass(frozen=True)
class Shape:
    """`cells` tokens in all may be looked at; `spare` of them are for what is said until the next choice."""

    view: View
    cells: int
    spare: int = 64

    def __post_init__(self) -> None:
        least = _SINKS + self.spare + 4 * CHUNK
        if self.view != "full" and self.cells < least:
            raise UsageError(f"a view of {self.cells} cells is too small: at least {least}")

    @property
    def window(self) -> int:
        """Most recent tokens that are always in view."""
        rest = self.cells - self.spare - _SINKS
        return rest if self.view == "window" else int(rest * _WINDOW_SHARE)

    @property
    def chunks(self) -> int:
        """Chunks that can be chosen."""
        return (self.cells - self.spare - _SINKS - self.window) // CHUNK if self.view == "retrieval" else 0


def ranges_of(shape: Shape, length: int, scores: NDArray[np.float64] | None = None) -> Ranges:
    """Token ranges, ascending and disjoint, to look at in a context of `length`; all of it where that fits.

    `scores[i]` is that of tokens i * CHUNK to (i + 1) * CHUNK, for whole chunks; unknown ones are not chosen.
    """
    if shape.view == "full" or length <= shape.cells - shape.spare:
        return ((0, length),) if length else ()
    start = length - shape.window
    chosen: list[tuple[int, int]] = []
    if scores is not None:
        first, last = _SINKS // CHUNK, min(start // CHUNK, len(scores))  # between the sinks and the window
        best = first + np.argsort(-scores[first:last], kind="stable")[: shape.chunks]
        chosen = [(int(chunk) * CHUNK, int(chunk + 1) * CHUNK) for chunk in np.sort(best)]
    return _merged([(0, _SINKS), *chosen, (start, length)])


def _merged(ranges: Sequence[tuple[int, int]]) -> Ranges:
    """Neighbours become one range."""
    merged = [ranges[0]]
    for start, stop in ranges[1:]:
        if start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], stop)
        else:
            merged.append((start, stop))
    return tuple(merged)


def chunk_scores(queries: NDArray[np.float32], means: NDArray[np.float32]) -> NDArray[np.float64]:
    """(chunks,): the attention every query and head would give to a chunk of that mean key, added up.

    `queries` is (queries, layers, heads, size), `means` (chunks, layers, key heads, size); heads share key heads in order.
    Each head's attention is normalised over the chunks, so that heads with large keys have no louder voice.
    """
    count, layers, heads, size = queries.shape
    key_heads = means.shape[2]
    grouped = queries.reshape(count, layers, key_heads, heads // key_heads, size).transpose(1, 2, 0, 3, 4)
    rows = grouped.reshape(layers, key_heads, -1, size)
    logits = (rows @ means.transpose(1, 2, 3, 0)).astype(np.float64) / np.sqrt(size)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    scores: NDArray[np.float64] = weights.sum(axis=(0, 1, 2))
    return scores


@dataclass
class Rebuild:
    """When to choose anew: every `stride` tokens, or when drafts are accepted much less often than before."""

    stride: int = 64
    _since: int = 0
    _usual: float = field(default=0.0)  # tokens a round, slowly averaged
    _recent: float = field(default=0.0)

    _DROP, _SOONEST, _SLOW, _FAST = 0.6, 8, 0.05, 0.3

    def due(self, tokens: int) -> bool:
        """After a round of `tokens`."""
        self._since += tokens
        self._usual += self._SLOW * (tokens - self._usual) if self._usual else tokens
        self._recent += self._FAST * (tokens - self._recent) if self._recent else tokens
        dropped = self._recent < self._DROP * self._usual and self._since >= self._SOONEST
        return self._since >= self.stride or dropped

    def done(self) -> None:
        self._since, self._recent = 0, self._usual
