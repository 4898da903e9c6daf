"""The walk every verifier but one makes: down the tree along tokens that are chosen one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from edgespec.engines.base import Sampler
from edgespec.speculation.tree import DraftTree
from edgespec.types import Acceptance, Floats

__all__ = ["Verifier", "walk"]

Ends = Callable[[int], bool]


class Verifier(Protocol):
    def __call__(self, tree: DraftTree, rows: Floats, sampler: Sampler, *, ends: Ends, most: int) -> Acceptance:
        """At most `most` tokens after `tree`'s root, none after one that `ends`; `rows` is (nodes, vocabulary), row i node i's.

        Returns the accepted path and the emitted tokens, as many as its nodes.
        """


def walk(tree: DraftTree, sampler: Sampler, choose: Callable[[int], int], *, ends: Ends, most: int) -> Acceptance:
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
    return Acceptance(tuple(path), tuple(tokens), sampler.near_ties - before)
