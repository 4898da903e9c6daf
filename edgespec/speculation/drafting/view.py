"""A drafter's session that looks at part of its context: chosen by `speculation.retrieval`, applied by the engine."""

from __future__ import annotations

from collections.abc import Sequence

from edgespec.engines.base import Idle, ViewableSession
from edgespec.speculation.retrieval import CHUNK, Rebuild, Shape, chunk_scores, ranges_of
from edgespec.speculation.tree import DraftTree
from edgespec.types import Floats

__all__ = ["ViewedSession"]

_PROMPT = 32  # tokens added at once are read with everything in sight


class ViewedSession:
    """Implements `Session`. Prompts are read in full; what is drafted sees the view, chosen anew now and then."""

    def __init__(self, session: ViewableSession, shape: Shape, rebuild: Rebuild | None = None) -> None:
        self._session, self._shape, self._rebuild = session, shape, rebuild or Rebuild(stride=shape.spare)
        self._stale = True  # whether all is in sight that the view would leave out
        self.rebuilds = 0

    @property
    def length(self) -> int:
        return self._session.length

    @property
    def capacity(self) -> int:
        return self._session.capacity

    @property
    def rows(self) -> int:
        return self._session.rows

    def extend(self, tokens: Sequence[int]) -> None:
        if len(tokens) >= _PROMPT and not self._stale:
            self._session.attend(None)
            self._stale = True
        self._session.extend(tokens)

    def score(self, tree: DraftTree, start: int = 0) -> Floats:
        return self._session.score(tree, start)

    def trim(self, nodes: int) -> None:
        self._session.trim(nodes)

    def commit(self, path: Sequence[int], tokens: Sequence[int], keep: Sequence[int] = ()) -> None:
        self._session.commit(path, tokens, keep)
        if self._rebuild.due(len(path)) or self._stale:
            self._choose()

    def _choose(self) -> None:
        """Look at what matters now. What waits to be evaluated is not there yet: it will be seen when it is."""
        length = self._session.evaluated
        if self._shape.view == "full" or length <= self._shape.cells - self._shape.spare:
            return
        scores = None
        if self._shape.view == "retrieval":
            queries, means = self._session.attention(CHUNK)
            scores = chunk_scores(queries, means) if len(queries) else None
        self._session.attend(ranges_of(self._shape, length, scores))
        self._rebuild.done()
        self._stale = False
        self.rebuilds += 1

    def offer(self, idle: Idle | None) -> None:
        self._session.offer(idle)

    def rewind(self, length: int) -> int:
        self._stale = True
        return self._session.rewind(length)

    def close(self) -> None:
        self._session.close()
