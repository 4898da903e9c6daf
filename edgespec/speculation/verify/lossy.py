"""Lossy acceptance: more tokens a pass, not the target's distribution any more. Only ever used when asked for by name.

- typical (Cai et al., "Medusa", 2024): a guess x passes if p(x) > min(eps, delta exp(-H(p))): the surer the target is,
  the likelier it wants the guess to be.
- bild (Kim et al., "Speculative Decoding with Big Little Decoder", 2023): a guess passes as long as the target's
  surprise -log p(x) is below the rollback threshold.
- lenience (Leviathan et al., 2023, appendix A.5): a drawn guess passes with probability min(1, p(x) / (l q(x))), l < 1.

p is the model's own distribution, before any sampler stage. Where no guess passes the target's sampler draws, as it does
without speculation.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from edgespec.engines.base import Sampler
from edgespec.speculation.tree import DraftTree
from edgespec.speculation.verify.walk import walk
from edgespec.types import Acceptance, Floats

__all__ = ["Lossy", "bild", "lenience", "typical"]

Distribution = NDArray[np.float64]
Passes = Callable[[Distribution, int, DraftTree, int], bool]
_EPSILON, _DELTA = 0.09, 0.3  # Medusa's
_SURPRISE = 2.0  # BiLD's rollback threshold
_LENIENCE = 0.5


class Lossy:
    """Implements `Verifier`: the likeliest guess that `passes` is taken."""

    def __init__(self, passes: Passes) -> None:
        self._passes = passes

    def __call__(self, tree: DraftTree, rows: Floats, sampler: Sampler, *, ends: Callable[[int], bool], most: int) -> Acceptance:
        def choose(node: int) -> int:
            probs = _softmax(rows[node])
            guesses = sorted((tree.tokens[child] for child in tree.children(node)), key=lambda token: -probs[token])
            good = (token for token in guesses if self._passes(probs, token, tree, node))
            found = next(good, None)
            return sampler.draw(rows[node]) if found is None else found

        return walk(tree, sampler, choose, ends=ends, most=most)


def _softmax(row: Floats) -> Distribution:
    weights = np.exp(row - row.max(), dtype=np.float64)
    share: Distribution = weights / weights.sum()
    return share


def typical(probs: Distribution, token: int, tree: DraftTree, node: int) -> bool:
    some = probs[probs > 0]
    entropy = -float((some * np.log(some)).sum())
    return bool(probs[token] > min(_EPSILON, _DELTA * np.exp(-entropy)))


def bild(probs: Distribution, token: int, tree: DraftTree, node: int) -> bool:
    return bool(probs[token] > np.exp(-_SURPRISE))


def lenience(seed: int) -> Passes:
    rng = np.random.default_rng(seed)

    def passes(probs: Distribution, token: int, tree: DraftTree, node: int) -> bool:
        drawn = tree.draws.get(node)
        proposed = drawn.distribution(len(probs))[token] if drawn else 1.0
        return bool(rng.random() * _LENIENCE * proposed < probs[token])

    return passes
