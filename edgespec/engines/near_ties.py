"""When rounding could have decided a token.

Kernels that sum in another order round otherwise, so logits of the same place may differ between passes by up to `rounding`,
which the engine's self-test measures for each build. A draw is a near-tie when logits that differ so much could have turned it.
Those are counted and shown, never hidden. Penalties and grammars leave differences of logits as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgespec.types import SamplingParams

__all__ = ["draw_near_tie", "greedy_near_tie"]

_Flags = NDArray[np.bool_]
_Logits = NDArray[np.floating[Any]]


def greedy_near_tie(logits: _Logits, rounding: float) -> bool:
    """Whether the best two logits are less than twice `rounding` apart."""
    if not rounding or logits.size < 2:
        return False
    second, first = np.partition(logits, -2)[-2:]
    return bool(first - second < 2 * rounding)


def draw_near_tie(logits: _Logits, params: SamplingParams, token: int, drawn: float, rounding: float) -> bool:
    """Whether other logits within `rounding` give another token than `token`, which `drawn`, a number of [0, 1), fell on.

    `logits` are those of the whole vocabulary, before top-k, top-p, min-p and temperature; tokens share [0, 1) in the order of
    their ids. What comes before the token is taken to be as likely as it may be and the rest as unlikely, then the other
    way round. So a boundary moves by 2 rounding / temperature F (1 - F) at most where F is below it, and a candidate that may or
    may not be cut makes a near-tie where its share moves a boundary past `drawn`, and nowhere else.
    """
    if not rounding:
        return False
    known = _Candidates.of(logits, params.top_k, rounding).top_p(params.top_p, rounding).min_p(params.min_p, rounding)
    before, after = known.ids < token, known.ids > token
    if not known.stays[~before & ~after].any():
        return True
    weights = np.exp((known.logits - known.logits[0]) / params.temperature)
    surely = weights * known.stays
    shrink = float(np.exp(-2 * rounding / params.temperature))
    begin = _share(weights[before].sum(), surely[~before].sum() * shrink)
    end = 1 - _share(weights[after].sum(), surely[~after].sum() * shrink)
    return not begin <= drawn < end


def _share(part: float, rest: float) -> float:
    return part / (part + rest) if part else 0.0


@dataclass(frozen=True)
class _Candidates:
    """Tokens that may be left, by falling logits in double precision; `stays` says which are, however logits are rounded."""

    ids: NDArray[np.intp]
    logits: NDArray[np.float64]
    stays: _Flags

    @classmethod
    def of(cls, logits: _Logits, count: int, rounding: float) -> _Candidates:
        """Those that may be among the best `count`, 0 for all; without what a grammar forbids."""
        last = -np.inf
        if 0 < count < len(logits):
            last = np.partition(logits, -count)[-count]
        ids = np.flatnonzero((logits > -np.inf) & (logits > last - 2 * rounding))
        ids = ids[np.argsort(-logits[ids], kind="stable")]
        falling = logits[ids].astype(np.float64)
        next_ = falling[count] if 0 < count < len(ids) else -np.inf
        return cls(ids, falling, falling > next_ + 2 * rounding)

    def _left(self, may: _Flags, stays: _Flags) -> _Candidates:
        return _Candidates(self.ids[may], self.logits[may], (self.stays & stays)[may])

    def top_p(self, mass: float, rounding: float) -> _Candidates:
        """A candidate is left when those ahead of it have less than `mass`."""
        if mass >= 1:
            return self
        weights, shrink = np.exp(self.logits - self.logits[0]), np.exp(-2 * rounding)
        may, stays = _sums(weights), _sums(weights * self.stays)
        near = np.searchsorted(-self.logits, 2 * rounding - self.logits, side="left")  # as many may be ahead, itself counted
        ahead, behind = may[near] - weights, stays[-1] - stays[near] + weights
        most = ahead / (ahead + behind * shrink)
        far = np.searchsorted(-self.logits, -2 * rounding - self.logits, side="right")  # as many are ahead in any case
        least = stays[far] * shrink / (stays[far] * shrink + may[-1] - may[far])
        return self._left(least < mass, most < mass)

    def min_p(self, share: float, rounding: float) -> _Candidates:
        if not share:
            return self
        best, cut = np.full(len(self.ids), self.logits[0]), float(np.log(share))
        best[0] = self.logits[1] if len(self.ids) > 1 else -np.inf  # of the others
        above = self.logits - best - cut
        return self._left(above > -2 * rounding, above >= 2 * rounding)


def _sums(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of the first 0, 1, 2 ... of them."""
    return np.concatenate([[0.0], np.cumsum(weights)])
