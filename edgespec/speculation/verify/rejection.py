"""Verification by rejection sampling, for guesses that were drawn from a known distribution: the emitted token has the
target's distribution p exactly, and the better the drafter's q, the more often it is one of the guesses.

One rule serves three methods. With R = p, every guess x is tried in the order drawn:

    accept x with probability min(1, R(x) / D(x));  else  R <- norm(max(R - D, 0))  and D <- D', what the next was drawn from

and when none is left the token is drawn from R. D is q for

- one guess: speculative sampling (Leviathan et al., 2023; Chen et al., 2023);
- several independent ones: SpecInfer's multi-step speculative sampling (Miao et al., 2023), D' = D;
- several without replacement: recursive rejection sampling (Jeon et al., 2024; Yang et al., 2024), D'(x) = 0, renormalised.

Guesses that nobody drew (an n-gram's) are tried first, as draws from a distribution that knows nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from edgespec.engines.base import Sampler
from edgespec.engines.draws import place_of
from edgespec.speculation.tree import DraftTree
from edgespec.speculation.verify.walk import walk
from edgespec.types import Acceptance, Floats

__all__ = ["Rejection", "drawn_from", "residual"]

Distribution = NDArray[np.float64]


class Rejection:
    """Implements `Verifier`, with randomness of its own; `replacement` is how the guesses were drawn."""

    def __init__(self, seed: int, *, replacement: bool) -> None:
        self._rng, self._replacement = np.random.default_rng(seed), replacement

    def __call__(self, tree: DraftTree, rows: Floats, sampler: Sampler, *, ends: Callable[[int], bool], most: int) -> Acceptance:
        def choose(node: int) -> int:
            return self._emit(sampler.probs(rows[node]), tree, node)

        return walk(tree, sampler, choose, ends=ends, most=most)

    def _emit(self, left: Distribution, tree: DraftTree, node: int) -> int:
        """A token with distribution `left`, one of the guesses as often as that is possible."""
        drawn = tree.draws.get(node)
        guesses = drawn.tokens if drawn else ()
        for child in tree.children(node):
            token = tree.tokens[child]
            if token in guesses:
                continue
            if self._rng.random() < left[token]:
                return token
            left = _without(left, token)
        if drawn:
            proposal = drawn.distribution(len(left))
            for token in guesses:
                if self._rng.random() * proposal[token] < left[token]:
                    return token
                left = residual(left, proposal)
                if not self._replacement:
                    proposal = _without(proposal, token)
        return drawn_from(left, self._rng)


def residual(left: Distribution, proposal: Distribution) -> Distribution:
    """norm(max(left - proposal, 0))."""
    rest: Distribution = np.maximum(left - proposal, 0.0)
    total = rest.sum()
    return rest / total if total > 0 else left  # equal but for rounding: whatever was rejected was so by rounding alone


def drawn_from(distribution: Distribution, rng: np.random.Generator) -> int:
    return place_of(distribution, rng.random())


def _without(distribution: Distribution, token: int) -> Distribution:
    rest = distribution.copy()
    rest[token] = 0.0
    total = rest.sum()
    return rest / total if total > 0 else rest
