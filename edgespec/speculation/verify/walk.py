"""The walk every verifier but one makes: down the tree along tokens that are chosen one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from edgespec.engines.base import Sampler
from edgespec.speculation.tree import DraftTree
from edgespec.types import Acceptance, Floats

__all__ = ["Verifier", "emitted", "walk"]

Ends = Callable[[int], bool]


class Verifier(Protocol):
    def __call__(
        self, tree: DraftTree, rows: Floats, sampler: Sampler, *, ends: Ends, most: int, logprobs: bool = False
    ) -> Acceptance:
        """At most `most` tokens after `tree`'s root, none after one that `ends`; `rows` is (nodes, vocabulary), row i node i's.

        Returns the accepted path and the emitted tokens, as many as its nodes.
        """


def walk(
    tree: DraftTree, rows: Floats, sampler: Sampler, choose: Callable[[int], int], *, ends: Ends, most: int, logprobs: bool
) -> Acceptance:
    """Emit `choose(node)`, go on at the child that guessed it, end where there is none."""
    path: list[int] = []
    tokens: list[int] = []
    before = sampler.near_ties
    node: int | None = 0
    while node is not None and len(tokens) < most:
        token = choose(node)
        sampler.accept(token)
        path.append(node)
        tokens.append(token)
        node = None if ends(token) else tree.child(node, token)
    return emitted(path, tokens, rows, sampler.near_ties - before, logprobs=logprobs)


def emitted(path: list[int], tokens: list[int], rows: Floats, near_ties: int, *, logprobs: bool) -> Acceptance:
    scores = [_logprob(rows[node], token) for node, token in zip(path, tokens, strict=True)] if logprobs else []
    return Acceptance(tuple(path), tuple(tokens), near_ties, tuple(scores))


def _logprob(row: Floats, token: int) -> float:
    """Of the model's own distribution, before any sampler stage."""
    top = float(row.max())
    return float(row[token]) - top - float(np.log(np.exp(row - top, dtype=np.float64).sum()))
