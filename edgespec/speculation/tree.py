"""A tree of guessed tokens. Node 0 is the pending token: emitted already, but in no cache yet."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgespec.errors import UsageError

__all__ = ["DraftTree", "Draws", "shared_prefix"]


@dataclass(frozen=True)
class Draws:
    """Guesses at one node's successor that were drawn at random: `tokens` in the order drawn, twins included.

    They were drawn from the distribution that gives `ids[i]` the probability `probs[i]` and all other tokens none. What a
    verifier does with them is exact only if it uses all of them, whichever became nodes of the tree.
    """

    tokens: tuple[int, ...]
    ids: NDArray[np.int64]
    probs: NDArray[np.float64]

    def distribution(self, vocabulary: int) -> NDArray[np.float64]:
        """(vocabulary,)"""
        dense = np.zeros(vocabulary)
        dense[self.ids] = self.probs
        return dense


class DraftTree:
    """Tokens, parents and log-probabilities; a parent always comes before its children.

    One node is plain decoding, a path is a chain. `depths` count from 0 at the root.
    """

    def __init__(self, pending: int) -> None:
        self.tokens: list[int] = [pending]
        self.parents: list[int] = [-1]
        self.depths: list[int] = [0]
        self.logprobs: list[float] = [0.0]  # cumulative, of the path from the root
        self.leaves = 1
        self.draws: dict[int, Draws] = {}  # node -> guesses at its successor that were drawn, not chosen
        self.measured: set[int] = set()  # nodes whose probability is experience, not somebody's claim
        self._children: list[dict[int, int]] = [{}]

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, parent: int, token: int, logprob: float) -> int:
        """A new node below `parent`; `logprob` is cumulative. Raises UsageError for a twin or an unknown parent."""
        if not 0 <= parent < len(self) or token in self._children[parent]:
            raise UsageError(f"node {parent} cannot take child {token}")
        node = len(self)
        self.leaves += bool(self._children[parent])
        self.tokens.append(token)
        self.parents.append(parent)
        self.depths.append(self.depths[parent] + 1)
        self.logprobs.append(logprob)
        self._children.append({})
        self._children[parent][token] = node
        return node

    def child(self, node: int, token: int) -> int | None:
        """The child of `node` that guesses `token`."""
        return self._children[node].get(token)

    def children(self, node: int) -> list[int]:
        return list(self._children[node].values())

    def rest(self, node: int) -> float:
        """Log-probability that `node` is accepted and none of its children is: what another child could have at most."""
        taken = sum(math.exp(self.logprobs[child] - self.logprobs[node]) for child in self._children[node].values())
        return self.logprobs[node] + (math.log1p(-taken) if taken < 1 else -math.inf)

    def path(self, node: int) -> list[int]:
        """Nodes from the root down to `node`."""
        nodes = [node]
        while self.parents[nodes[-1]] >= 0:
            nodes.append(self.parents[nodes[-1]])
        return nodes[::-1]

    def is_path(self, nodes: Sequence[int]) -> bool:
        return bool(nodes) and nodes[0] == 0 and all(self.parents[b] == a for a, b in itertools.pairwise(nodes))

    def head(self, nodes: int) -> DraftTree:
        """A copy of the first `nodes` nodes; parents come first, so none of them is an orphan."""
        head = DraftTree(self.tokens[0])
        for node in range(1, nodes):
            head.add(self.parents[node], self.tokens[node], self.logprobs[node])
        head.draws = {node: drawn for node, drawn in self.draws.items() if node < nodes}
        head.measured = {node for node in self.measured if node < nodes}
        return head

    def cut(self, nodes: int) -> None:
        """Keep the first `nodes` nodes only."""
        for node in range(len(self) - 1, nodes - 1, -1):
            siblings = self._children[self.parents[node]]
            del siblings[self.tokens[node]]
            self.leaves -= bool(siblings)
            for row in (self.tokens, self.parents, self.depths, self.logprobs, self._children):
                row.pop()
            self.draws.pop(node, None)
            self.measured.discard(node)

    def below(self, root: int) -> tuple[DraftTree, list[int]]:
        """The subtree under `root`, log-probabilities relative to it, and which of our nodes its nodes were, in order."""
        tree, nodes = DraftTree(self.tokens[root]), [root]
        place = {root: 0}
        for node in range(root + 1, len(self)):
            if self.parents[node] in place:
                logprob = self.logprobs[node] - self.logprobs[root]
                place[node] = tree.add(place[self.parents[node]], self.tokens[node], logprob)
                nodes.append(node)
        tree.draws = {place[node]: drawn for node, drawn in self.draws.items() if node in place}
        tree.measured = {place[node] for node in self.measured if node in place}
        return tree, nodes

    def ancestor_mask(self) -> NDArray[np.bool_]:
        """(nodes, nodes); row i marks what node i may attend to within the tree: its ancestors and itself."""
        mask = np.eye(len(self), dtype=np.bool_)
        for node in range(1, len(self)):
            mask[node] |= mask[self.parents[node]]
        return mask


def shared_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two texts begin with in common."""
    shared = min(len(one), len(other))
    return next((place for place in range(shared) if one[place] != other[place]), shared)
