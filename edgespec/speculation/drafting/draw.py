"""Guesses drawn from the drafter's distribution, which rejection sampling needs to know: with or without replacement."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from edgespec.speculation.tree import Draws
from edgespec.types import Floats

__all__ = ["Drawer"]


class Drawer:
    """Draws up to `count` guesses at a row's successor from `proposal(row)`, a distribution over the vocabulary.

    Without replacement the order is that of drawing one by one and renormalising: the largest of log p + Gumbel noise
    (Kool et al., "Stochastic Beams and Where to Find Them", 2019).
    """

    def __init__(
        self, proposal: Callable[[Floats], NDArray[np.float64]], count: int, seed: int,
        replacement: Literal["with", "without"] = "without",
    ) -> None:  # fmt: skip
        self._proposal, self._count, self._replacement = proposal, count, replacement
        self._rng = np.random.default_rng(seed)

    def __call__(self, row: Floats, taken: Collection[int]) -> Draws:
        """Guesses at what follows `row`, none of them in `taken`."""
        dense = self._proposal(row)
        dense[list(taken)] = 0.0
        ids = np.flatnonzero(dense)
        if not ids.size:
            return Draws((), ids, dense[ids])
        probs = dense[ids] / dense[ids].sum()
        if self._replacement == "with":
            drawn = self._rng.choice(ids, size=self._count, p=probs)
        else:
            keys = np.log(probs) + self._rng.gumbel(size=ids.size)
            drawn = ids[np.argsort(-keys)[: self._count]]
        return Draws(tuple(drawn.tolist()), ids, probs)
