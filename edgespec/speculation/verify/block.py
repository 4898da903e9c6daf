"""Block verification (Sun et al., "Block Verification Accelerates Speculative Decoding", 2024), for chains.

The whole block is judged at once instead of token by token, which never accepts less. With drafts x_1..x_g and
p_0 = 1, p_i = min(p_{i-1} p(x_i) / q(x_i), 1), the first i drafts may be kept with

    h_i = Z / (Z + 1 - p_i),  Z = sum over x of max(p_i p(x) - q(x), 0) at place i + 1,   h_g = p_g

and the longest i with u_i <= h_i is. (Ending at the first that fails is a different, wrong rule.) What follows is drawn
from norm(max(p_i p - q, 0)), and from p after a block that was kept whole.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import numpy as np

from edgespec.engines.base import Sampler
from edgespec.speculation.tree import DraftTree
from edgespec.speculation.verify.rejection import Distribution, drawn_from, residual
from edgespec.types import Acceptance, Floats

__all__ = ["Block"]


class Block:
    """Implements `Verifier` for trees in which every node has one drawn guess at most, with randomness of its own."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def __call__(self, tree: DraftTree, rows: Floats, sampler: Sampler, *, ends: Callable[[int], bool], most: int) -> Acceptance:
        chain = _chain(tree, ends, most)
        drawn = [tree.draws[node] for node in chain if node in tree.draws]
        wanted = _distributions(chain, tree, rows, sampler)
        proposed = [draw.distribution(rows.shape[1]) for draw in drawn]
        drafts = [draw.tokens[0] for draw in drawn]
        kept, share = self._longest(drafts, wanted, proposed)
        tokens = drafts[:kept]
        if kept < len(drafts):
            tokens.append(drawn_from(residual(share * wanted[kept], proposed[kept]), self._rng))
        elif kept < len(chain):
            tokens.append(drawn_from(wanted[kept], self._rng))
        for token in tokens:
            sampler.accept(token)
        return Acceptance(tuple(chain[: len(tokens)]), tuple(tokens), 0)

    def _longest(self, drafts: list[int], wanted: list[Distribution], proposed: list[Distribution]) -> tuple[int, float]:
        """How many drafts are kept, and p of that place."""
        share, kept = 1.0, (0, 1.0)
        for place, token in enumerate(drafts, 1):
            share = min(share * wanted[place - 1][token] / proposed[place - 1][token], 1.0)
            if place == len(drafts):
                chance = share
            else:
                rest = float(np.maximum(share * wanted[place] - proposed[place], 0.0).sum())
                chance = rest / (rest + 1 - share) if rest else 0.0
            if self._rng.random() <= chance:
                kept = (place, share)
        return kept


def _chain(tree: DraftTree, ends: Callable[[int], bool], most: int) -> list[int]:
    """Nodes of the block, the root first. A draft that is no node of the tree, or ends the text, is the block's last."""
    nodes = [0]
    while len(nodes) < most and (drawn := tree.draws.get(nodes[-1])):
        child = tree.child(nodes[-1], drawn.tokens[0])
        if child is None or ends(drawn.tokens[0]):
            break
        nodes.append(child)
    return nodes


def _distributions(chain: list[int], tree: DraftTree, rows: Floats, sampler: Sampler) -> list[Distribution]:
    """The target's at every node of the block, had all before it been emitted."""
    with closing(sampler.clone()) as ahead:
        found = [ahead.probs(rows[0])]
        for node in chain[1:]:
            ahead.accept(tree.tokens[node])
            found.append(ahead.probs(rows[node]))
    return found
