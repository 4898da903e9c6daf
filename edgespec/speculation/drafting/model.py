"""Best-first trees from a small model (the greedy case of Sequoia and SpecExec, grown in batches).

The candidate with the highest cumulative probability is added next. A step adds every candidate nearly as good as the
best, at most a batch of them, and scores them in one pass, because a pass of four nodes costs little more than one.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from edgespec.engines.base import Session
from edgespec.errors import ContextFull
from edgespec.speculation.tree import DraftTree
from edgespec.types import Floats

__all__ = ["ModelDrafter"]

_NEARLY = float(np.log(0.4))  # a candidate this close to the best joins its step
_BATCH = 6  # nodes added per step
_BRANCH = 6  # candidates taken from one row
_FLOOR = float(np.log(1e-3))  # a path less likely than this is not worth a node


class ModelDrafter:
    """`branch=1` grows chains. `temperature` is the target's: at 0 the drafter's own distribution ranks candidates."""

    def __init__(self, session: Session, *, vocabulary: int, branch: int = _BRANCH, temperature: float = 0.0) -> None:
        self._session, self._vocabulary, self._branch = session, vocabulary, branch
        self._sharpness = 1.0 / temperature if temperature > 0 else 1.0
        self._tree = DraftTree(0)
        self._heap: list[tuple[float, int, int]] = []  # (-cumulative logprob, parent, token)
        self._scored = 0
        self._lag: list[int] = []  # tokens not handed to the session yet: none are, as long as nothing is drafted

    def extend(self, tokens: Sequence[int]) -> None:
        self._lag += tokens

    def begin(self, pending: int) -> DraftTree:
        self._session.extend(self._lag)
        self._lag = []
        self._tree, self._heap, self._scored = DraftTree(pending), [], 0
        return self._tree

    def step(self, nodes: int) -> bool:
        tree = self._tree
        missing = nodes - (len(tree) - 1)
        if missing <= 0:
            return False
        if self._scored < len(tree):
            self._score()
        added = 0
        best = -self._heap[0][0] if self._heap else 0.0
        limit = 1 if self._branch == 1 else min(_BATCH, missing)
        while self._heap and added < limit and -self._heap[0][0] >= max(best + _NEARLY, _FLOOR):
            cost, parent, token = heapq.heappop(self._heap)
            tree.add(parent, token, -cost)
            added += 1
        return added > 0

    def commit(self, path: Sequence[int], tokens: Sequence[int]) -> None:
        self._session.commit(path, tokens)

    def rewind(self, length: int) -> int:
        del self._lag[max(0, length - self._session.length) :]
        return self._session.rewind(length) + len(self._lag)

    def _score(self) -> None:
        """One pass over the nodes added last; their likeliest successors become candidates."""
        tree, start = self._tree, self._scored
        try:
            rows = self._session.score(tree, start)
        except ContextFull:
            return
        self._scored = len(tree)
        for node, row in zip(range(start, len(tree)), rows, strict=True):
            for token, logprob in self._candidates(row):
                heapq.heappush(self._heap, (-(tree.logprobs[node] + logprob), node, token))

    def _candidates(self, row: Floats) -> list[tuple[int, float]]:
        row = row[: self._vocabulary] * self._sharpness
        if not np.isfinite(row).all():
            return []
        count = min(self._branch, len(row))
        best = np.argpartition(row, -count)[-count:]
        top = float(row[best].max())
        normaliser = top + float(np.log(np.exp(row - top).sum()))
        return [(int(token), float(row[token]) - normaliser) for token in best]
