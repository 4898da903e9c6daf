"""How likely emitted tokens were, by the target's own distribution before any sampler stage."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgespec.types import Acceptance, Floats, TokenLogprob

__all__ = ["logprobs_of"]


def logprobs_of(accepted: Acceptance, rows: Floats, top: int | None) -> tuple[TokenLogprob, ...]:
    """One for each emitted token, with the `top` likeliest tokens of its place; none at all where `top` is None."""
    if top is None:
        return ()
    return tuple(_logprob(rows[node], token, top) for node, token in zip(accepted.path, accepted.tokens, strict=True))


def _logprob(row: Floats, token: int, top: int) -> TokenLogprob:
    highest = float(row.max())
    total = highest + float(np.log(np.exp(row - highest, dtype=np.float64).sum()))

    def scored(tokens: Sequence[int]) -> tuple[tuple[int, float], ...]:
        return tuple((int(one), float(row[one]) - total) for one in tokens)

    return TokenLogprob(float(row[token]) - total, scored(_likeliest(row, top)))


def _likeliest(row: Floats, count: int) -> Sequence[int]:
    """By falling probability, the lower token first where two are equally likely."""
    if not count:
        return ()
    least = np.partition(row, -count)[-count]
    among = np.flatnonzero(row >= least)
    found: list[int] = among[np.argsort(-row[among], kind="stable")][:count].tolist()
    return found
