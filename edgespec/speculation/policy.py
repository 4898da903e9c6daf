"""How many nodes to draft: the size with the most expected tokens per second, from what was measured so far.

A best-first tree of 8 nodes is the beginning of the one of 16, so every verified tree tells for every smaller size how
many of its drafts would have been accepted. Costs are running averages of real passes and draft steps, begun with the
calibration. Where no size beats plain decoding, speculation is off, and is tried again now and then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

__all__ = ["SIZES", "AutoPolicy", "FixedPolicy"]

SIZES = (0, 4, 8, 16, 32)
_MEMORY = 0.15  # weight of the newest measurement
_PRIOR_WEIGHT = 2  # rounds that the prior counts for
_TRIALS = 2  # a size nearly as promising as the best is tried this often before it is judged
_NEARLY = 0.7
_PRIOR_AGREEMENT = 0.55
_EXPLORE_EVERY = 16  # rounds between looks at a neighbouring size
_MARGIN = 1.03  # a change must promise this much


@dataclass
class FixedPolicy:
    """Always the same size; `nodes=0` is plain decoding."""

    nodes: int
    reason: str = "as asked"

    def size(self) -> int:
        return self.nodes

    def learn(self, nodes: int, accepted: Sequence[int], draft_seconds: float, sweep_seconds: float) -> None:
        """Nothing to learn."""


@dataclass
class AutoPolicy:
    """`sweep_cost(n)` and `draft_cost(n)` predict seconds for n drafted nodes until they have been measured."""

    sweep_cost: Callable[[int], float]
    draft_cost: Callable[[int], float]
    largest: int = SIZES[-1]
    reason: str = "not measured yet"
    _step: dict[int, float] = field(default_factory=dict)  # size -> drafts accepted per round beyond the next smaller size
    _seen: dict[int, int] = field(default_factory=dict)  # size -> rounds that told about it
    _sweep: dict[int, float] = field(default_factory=dict)
    _draft: dict[int, float] = field(default_factory=dict)
    _rounds: int = 0

    def tables(self) -> dict[str, dict[int, float]]:
        """What was measured so far, for `begin_with` of a later policy on the same models and machine."""
        return {"sweep": self._sweep, "draft": self._draft, "step": self._step}

    def begin_with(self, tables: dict[str, dict[int, float]]) -> None:
        """Start from measurements instead of predictions."""
        for name, own in self.tables().items():
            own.update({size: value for size, value in tables.get(name, {}).items() if size in SIZES})
        self._seen = {size: _PRIOR_WEIGHT for size in self._step}

    def size(self) -> int:
        """The number of nodes to draft in the next round."""
        rates = {size: self.rate(size) for size in self.sizes}
        best = max(rates, key=lambda size: rates[size])
        if best and rates[best] < _MARGIN * rates[0]:
            best = 0
        self.reason = self._explain(best, rates)
        self._rounds += 1
        untried = [s for s in self.sizes if s > best and self._seen.get(s, 0) < _TRIALS and rates[s] > _NEARLY * rates[best]]
        if best and untried:
            return untried[0]
        if self._rounds % _EXPLORE_EVERY == 0:
            return self._neighbour(best)
        return best

    @property
    def sizes(self) -> list[int]:
        return [size for size in SIZES if size <= self.largest]

    def rate(self, size: int) -> float:
        """Expected tokens per second with trees of `size`."""
        return (1.0 + self._expected_gain(size)) / max(1e-9, self._sweep_seconds(size) + self._draft_seconds(size))

    def learn(self, nodes: int, accepted: Sequence[int], draft_seconds: float, sweep_seconds: float) -> None:
        """One round: `nodes` were drafted, `accepted` are the indices of the accepted ones, root not counted."""
        for smaller, size in pairwise(SIZES):
            if size <= self._rung(nodes):
                self._observe(smaller, size, sum(1 for node in accepted if smaller < node <= size))
        self._blend(self._sweep, self._rung(nodes), sweep_seconds)
        if nodes:
            self._blend(self._draft, self._rung(nodes), draft_seconds)

    @staticmethod
    def _rung(nodes: int) -> int:
        return next((size for size in SIZES if nodes <= size), SIZES[-1])

    @staticmethod
    def _blend(table: dict[int, float], key: int, value: float) -> None:
        table[key] = value if key not in table else (1 - _MEMORY) * table[key] + _MEMORY * value

    def _observe(self, smaller: int, size: int, accepted: int) -> None:
        seen = self._seen[size] = self._seen.get(size, 0) + 1
        weight = max(_MEMORY, 1 / (seen + _PRIOR_WEIGHT))
        before = self._step.get(size, _prior_gain(size) - _prior_gain(smaller))
        self._step[size] = before + weight * (accepted - before)

    def _expected_gain(self, size: int) -> float:
        """Steps up to `size`; one that was never seen is the prior's, scaled by how the seen ones compare with theirs."""
        measured = expected = total = 0.0
        for smaller, rung in pairwise(SIZES):
            if rung > size:
                break
            prior = _prior_gain(rung) - _prior_gain(smaller)
            if rung in self._step:
                total += self._step[rung]
                measured, expected = measured + self._step[rung], expected + prior
            else:
                total += prior * (measured / expected if expected else 1.0)
        return total

    def _sweep_seconds(self, size: int) -> float:
        return self._scaled(self._sweep, self.sweep_cost, size)

    def _draft_seconds(self, size: int) -> float:
        return self._scaled(self._draft, self.draft_cost, size) if size else 0.0

    @staticmethod
    def _scaled(measured: dict[int, float], predicted: Callable[[int], float], size: int) -> float:
        """The measurement at `size`, or the prediction corrected by the nearest measurement."""
        if size in measured:
            return measured[size]
        if not measured:
            return predicted(size)
        known = min(measured, key=lambda other: abs(other - size))
        return measured[known] * predicted(size) / max(1e-9, predicted(known))

    def _neighbour(self, size: int) -> int:
        """Alternately one rung up and one down, so that a wrong belief is found out."""
        sizes = self.sizes
        step = 1 if (self._rounds // _EXPLORE_EVERY) % 2 else -1
        index = sizes.index(size) + step
        return sizes[index] if 0 <= index < len(sizes) else sizes[sizes.index(size) - step]

    def _explain(self, best: int, rates: dict[int, float]) -> str:
        seen = ", ".join(f"{size}: {rate:.2f}" for size, rate in rates.items())
        if best == 0:
            return f"off: no tree promises more tokens/s than plain decoding ({seen})"
        return f"{best} nodes: most expected tokens/s ({seen})"


def _prior_gain(size: int) -> float:
    """Accepted drafts of a best-first tree at the prior agreement: the chain's limit, and a share per doubling beyond."""
    if size == 0:
        return 0.0
    return _PRIOR_AGREEMENT / (1 - _PRIOR_AGREEMENT) * (0.8 + 0.22 * math.log2(size / 4 + 1))
