"""Verification by matching the target: exact for any deterministic draft tree, whatever the sampler chain.

At each node the target's own sampler draws y from that node's row and y is emitted; if a child guessed y, the walk goes
on there, else it stops. Randomness is consumed once per emitted token, in order, exactly as in plain decoding, so the
same seed gives the same text with and without a tree (up to batch numerics).

Source: SpecInfer (Miao et al., 2023), the case of a deterministic tree; no second draw is made after a mismatch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgespec.engines.base import Sampler
from edgespec.speculation.tree import DraftTree
from edgespec.types import Acceptance, Floats

__all__ = ["match_target"]


def match_target(
    tree: DraftTree, rows: Floats, sampler: Sampler, *, ends: Callable[[int], bool], most: int, logprobs: bool = False
) -> Acceptance:
    """Walk `tree` along the target's own draws; at most `most` tokens, none after one that `ends`.

    `rows` is (nodes, vocabulary). Returns the accepted path and the emitted tokens, one more than the drafts accepted
    unless the walk was cut short.
    """
    path: list[int] = []
    tokens: list[int] = []
    scores: list[float] = []
    before = sampler.near_ties
    node: int | None = 0
    while node is not None and len(tokens) < most:
        token = sampler.draw(rows[node])
        sampler.accept(token)
        path.append(node)
        tokens.append(token)
        if logprobs:
            scores.append(_logprob(rows[node], token))
        node = None if ends(token) else tree.child(node, token)
    return Acceptance(tuple(path), tuple(tokens), sampler.near_ties - before, tuple(scores))


def _logprob(row: Floats, token: int) -> float:
    """Of the model's own distribution, before any sampler stage."""
    top = float(row.max())
    return float(row[token]) - top - float(np.log(np.exp(row - top, dtype=np.float64).sum()))
