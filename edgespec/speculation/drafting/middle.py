"""Three levels: a small model's chains are checked by a middle model, whose checked tree the target gets (Sun et al.,
"TriForce: Lossless Acceleration of Long Sequence Generation with Hierarchical Speculative Decoding", 2024).

The middle model is the target itself looking at part of its context, where a pass of several tokens costs little more than
one of one. Each level has the last word over the one below it, so none changes what the next would say.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgespec.engines.base import Session
from edgespec.errors import ContextFull
from edgespec.speculation.drafting.base import DrafterAround, Worth
from edgespec.speculation.drafting.model import ModelDrafter, likeliest
from edgespec.speculation.tree import DraftTree, shared_prefix

__all__ = ["ChainGuesser", "MiddleDrafter"]

_LENGTH = 6  # tokens of a chain
_SURE = -1.2  # log-probability below which a chain is not worth going on with


class ChainGuesser:
    """Greedy chains of a small model, below paths that are not committed yet."""

    def __init__(self, session: Session, vocabulary: int) -> None:
        self._session, self._vocabulary = session, vocabulary
        self._chain = DraftTree(0)
        self._best: list[tuple[int, float]] = []  # what follows each scored node, and its log-probability
        self._lag: list[int] = []  # tokens not handed to the session yet

    def extend(self, tokens: Sequence[int]) -> None:
        self._lag += tokens

    def guess(self, path: Sequence[int]) -> tuple[int, ...]:
        """What follows the committed tokens and `path`; nothing where the context has no room for it."""
        if self._lag:
            self._session.extend(self._lag)
            self._lag = []
        self._follow(path)
        sure, first = 0.0, len(self._chain)
        try:
            while len(self._chain) < first + _LENGTH:
                token, logprob = self._next()
                sure += logprob
                if sure < _SURE:
                    break
                self._chain.add(len(self._chain) - 1, token, 0.0)
        except ContextFull:
            return ()
        except BaseException:
            self._best = []  # the session dropped what was scored
            raise
        return tuple(self._chain.tokens[first:])

    def commit(self, tokens: Sequence[int]) -> None:
        """The target went on with `tokens`, the first of which every path began with."""
        if self._lag or not self._best:
            self._lag += tokens
            return
        same = shared_prefix(self._chain.tokens[: len(self._best)], tokens)
        self._session.commit(range(same), tokens)
        self._best = []

    def rewind(self, length: int) -> int:
        del self._lag[max(0, length - self._session.length) :]
        self._best = []
        return self._session.rewind(min(length, self._session.length)) + len(self._lag)

    def _follow(self, path: Sequence[int]) -> None:
        """Let the chain be `path`, what is scored of it kept."""
        same = min(shared_prefix(self._chain.tokens, path), len(self._best))
        if same == 0:
            self._chain, same = DraftTree(path[0]), 1
            self._best = []
        else:
            self._chain.cut(same)
            self._session.trim(same)
            del self._best[same:]
        for token in path[same:]:
            self._chain.add(len(self._chain) - 1, token, 0.0)

    def _next(self) -> tuple[int, float]:
        """The likeliest token at the chain's end."""
        if len(self._best) < len(self._chain):
            rows = self._session.score(self._chain, len(self._best))
            self._best += [likeliest(row[: self._vocabulary]) for row in rows]
        return self._best[-1]


class MiddleDrafter(DrafterAround):
    """Implements `Drafter`: `inner` grows its tree, `small` says ahead of it what it will want to add."""

    def __init__(self, inner: ModelDrafter, small: ChainGuesser) -> None:
        super().__init__(inner)
        self._model, self._small = inner, small
        self._tree = DraftTree(0)

    def extend(self, tokens: Sequence[int]) -> None:
        self._inner.extend(tokens)
        self._small.extend(tokens)

    def begin(self, pending: int) -> DraftTree:
        self._tree = self._inner.begin(pending)
        return self._tree

    def catch_up(self) -> None:
        """Left to the first step: the middle model's pass over the pending token is one over a chain too."""

    def step(self, worth: Worth) -> bool:
        if not worth(len(self._tree) - 1, self.promise):
            return False
        if (tip := self._model.tip) is not None:
            guess = self._small.guess([self._tree.tokens[node] for node in self._tree.path(tip)])
            if guess:
                self._inner.check(guess, tip)
        return self._inner.step(worth)

    def commit(self, path: Sequence[int], pending: int) -> DraftTree:
        self._small.commit([self._tree.tokens[node] for node in path])
        self._tree = self._inner.commit(path, pending)
        return self._tree

    def rewind(self, length: int) -> int:
        kept = self._small.rewind(self._inner.rewind(length))
        return self._inner.rewind(kept)
