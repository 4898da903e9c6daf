"""Verification by matching the target: exact for any deterministic draft tree, whatever the sampler chain.

At each node the target's own sampler draws y from that node's row and y is emitted; if a child guessed y, the walk goes
on there, else it stops. Randomness is consumed once per emitted token, in order, exactly as in plain decoding, so the
same seed gives the same text with and without a tree (but for near-ties, where the engine rounds otherwise in wide passes).

Source: SpecInfer (Miao et al., 2023), the case of a deterministic tree; no second draw is made after a mismatch.
"""

from __future__ import annotations

from collections.abc import Callable

from edgespec.engines.base import Sampler
from edgespec.speculation.tree import DraftTree
from edgespec.speculation.verify.walk import walk
from edgespec.types import Acceptance, Floats

__all__ = ["match_target"]


def match_target(tree: DraftTree, rows: Floats, sampler: Sampler, *, ends: Callable[[int], bool], most: int) -> Acceptance:
    """Implements `Verifier`."""
    return walk(tree, sampler, lambda node: sampler.draw(rows[node]), ends=ends, most=most)
