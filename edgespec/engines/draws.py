"""The draw itself: tokens share [0, 1) in the order of their ids, which rounding cannot change as it can that of their logits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["place_of"]


def place_of(distribution: NDArray[np.float64], drawn: float) -> int:
    """Where `drawn`, a number of [0, 1), falls in the (not necessarily normalised) `distribution`; never where it is 0."""
    edges = np.cumsum(distribution)
    place = int(np.searchsorted(edges, drawn * edges[-1], side="right"))
    return place if place < len(edges) else int(np.flatnonzero(distribution)[-1])
