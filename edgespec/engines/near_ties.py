"""When the last bit of a logit could have decided a token.

Kernels for one row and for many differ in rounding, so greedy text is not bit-identical across batch shapes. A draw
is a near-tie when its outcome lies within what rounding can move; those are counted and shown, never hidden.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from edgespec.types import Floats

__all__ = ["DRAW_MARGIN", "GREEDY_MARGIN", "greedy_near_tie", "mirrored_uniforms"]

GREEDY_MARGIN = 0.05  # logits between the best two
DRAW_MARGIN = 1e-3  # probability between the draw and the next token's interval


def greedy_near_tie(logits: Floats) -> bool:
    """Whether the best two logits are less than the margin apart."""
    if logits.size < 2:
        return False
    second, first = np.partition(logits, -2)[-2:]
    return bool(first - second < GREEDY_MARGIN)


def mirrored_uniforms(seed: int) -> Iterator[float]:
    """The uniform numbers that `std::uniform_real_distribution<double>` over `std::mt19937(seed)` yields.

    Both generators are the same Mersenne Twister; each double takes two 32-bit words, low one first.
    """
    twister = np.random.RandomState(seed)
    while True:
        low, high = (int(word) for word in np.frombuffer(twister.bytes(8), "<u4"))
        yield (low + high * 4294967296.0) / 18446744073709551616.0
