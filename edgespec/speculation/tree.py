"""A tree of guessed tokens. Node 0 is the pending token: emitted already, but in no cache yet."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgespec.errors import UsageError

__all__ = ["DraftTree"]


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
        return head

    def below(self, root: int) -> tuple[DraftTree, list[int]]:
        """The subtree under `root`, log-probabilities relative to it, and which of our nodes its nodes were, in order."""
        tree, nodes = DraftTree(self.tokens[root]), [root]
        place = {root: 0}
        for node in range(root + 1, len(self)):
            if self.parents[node] in place:
                logprob = self.logprobs[node] - self.logprobs[root]
                place[node] = tree.add(place[self.parents[node]], self.tokens[node], logprob)
                nodes.append(node)
        return tree, nodes

    def ancestor_mask(self) -> NDArray[np.bool_]:
        """(nodes, nodes); row i marks what node i may attend to within the tree: its ancestors and itself."""
        mask = np.eye(len(self), dtype=np.bool_)
        for node in range(1, len(self)):
            mask[node] |= mask[self.parents[node]]
        return mask
