"""Stages: sources that guess without computing, then the drafter, then the target (Spector and Re, "Accelerating LLM
Inference with Staged Speculative Decoding", 2023), each exact towards the next because the target has the last word.

A guess that has mostly been right goes straight into the tree, where its nodes compete with the drafter's by their
probability; one in doubt is handed to the drafter, which looks at all of it in one pass and keeps what it finds likely.
How often guesses are right is measured, per source and length of the match. Without a drafter every guess is straight.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from edgespec.speculation.drafting.base import Drafter, DrafterAround, Worth
from edgespec.speculation.drafting.lookup import LONGEST, Guess, Source, SpokenText
from edgespec.speculation.tree import DraftTree

__all__ = ["StagedDrafter", "Trust"]

_LENGTH = 24  # tokens of a guess that are looked at
_CHECKED = 7  # of a guess in doubt: with the root, what the drafter scores at the price of little more than a step
_CHOICES = 3  # continuations of one place
_STRAIGHT = 0.6  # a guess this likely to go on right needs no check
_FLOOR = math.log(0.1)  # a node less likely than this is not worth a place
_PRIOR = 3.0  # guesses' worth of trust in the table below
_FADE = 0.995  # of older experience, per guess
_BEGIN = {0: 0.25, 1: 0.45, 2: 0.6, 3: 0.75, 4: 0.85}  # class of match -> share of guesses that go on right
Kind = tuple[str, int, int]  # source, class of match, how many likelier guesses there were


@dataclass
class Trust:
    """How often guesses of each kind went on right; lives as long as the runtime."""

    _tries: dict[Kind, float] = field(default_factory=dict)
    _hits: dict[Kind, float] = field(default_factory=dict)

    def chance(self, kind: Kind) -> float:
        """Of one more token of such a guess, all before it having been right."""
        begin = _BEGIN[kind[1]] / (1 + 2 * kind[2])
        return (self._hits.get(kind, 0.0) + _PRIOR * begin) / (self._tries.get(kind, 0.0) + _PRIOR)

    def learn(self, kind: Kind, right: bool) -> None:
        self._tries[kind] = _FADE * self._tries.get(kind, 0.0) + 1
        self._hits[kind] = _FADE * self._hits.get(kind, 0.0) + right

    def summary(self) -> list[tuple[str, float, float]]:
        """Per source: its name, the share of its guesses that went on right, and how many count."""
        found = []
        for name in dict.fromkeys(kind[0] for kind in self._tries):
            kinds = [kind for kind in self._tries if kind[0] == name]
            tried = sum(self._tries[kind] for kind in kinds)
            found.append((name, sum(self._hits[kind] for kind in kinds) / tried, tried))
        return found


class StagedDrafter(DrafterAround):
    """Implements `Drafter` around `inner`, which may be a `NoDrafter`. `spoken` is told of every token.

    Guesses fill a tree to `most` nodes, and as many leaves.
    """

    def __init__(
        self, inner: Drafter, spoken: SpokenText, sources: Sequence[Source], trust: Trust, *, alone: bool, most: int = 32
    ) -> None:  # fmt: skip
        super().__init__(inner)
        self._most = most
        self._spoken, self._sources, self._trust, self._alone = spoken, sources, trust, alone
        self._recent: list[int] = []
        self._tree = DraftTree(0)
        self._guesses: list[tuple[Kind, Guess]] = []  # at what follows the root
        self._doubtful: tuple[int, ...] = ()  # a guess at what follows the root, for the drafter to look at
        spoken.end()

    def extend(self, tokens: Sequence[int]) -> None:
        self._inner.extend(tokens)
        self._hear(tokens)

    def begin(self, pending: int) -> DraftTree:
        self._hear([pending])
        return self._guess(self._inner.begin(pending))

    def step(self, worth: Worth) -> bool:
        doubtful, self._doubtful = self._doubtful, ()
        if doubtful and worth(len(self._tree) - 1, 0.0):
            self._inner.check(doubtful)
        return self._inner.step(worth)

    def commit(self, path: Sequence[int], pending: int) -> DraftTree:
        said = [*(self._tree.tokens[node] for node in path[1:]), pending]
        self._learn(said)
        self._hear(said)
        return self._guess(self._inner.commit(path, pending))

    def rewind(self, length: int) -> int:
        self._spoken.end()
        self._recent = []
        return self._inner.rewind(length)

    def _hear(self, tokens: Sequence[int]) -> None:
        self._spoken.extend(tokens)
        self._recent = [*self._recent, *tokens][-LONGEST:]

    def _learn(self, said: Sequence[int]) -> None:
        """What the target said shows of every guess how far it was right, whether it was verified or not."""
        for kind, guess in self._guesses:
            for token, right in zip(guess.tokens, said, strict=False):
                self._trust.learn(kind, token == right)
                if token != right:
                    break

    def _guess(self, tree: DraftTree) -> DraftTree:
        """The same tree with the guesses that need no check; the best of the others waits for the drafter."""
        self._tree, self._guesses, self._doubtful = tree, [], ()
        for source in self._sources:
            for rank, guess in enumerate(itertools.islice(source.guesses(self._recent, _LENGTH), _CHOICES)):
                kind = (source.name, _class(guess.matched), rank)
                self._guesses.append((kind, guess))
                chance = self._trust.chance(kind)
                if self._alone or chance >= _STRAIGHT:
                    self._add(guess, math.log(chance))
                elif not self._doubtful:
                    self._doubtful = guess.tokens[:_CHECKED]
        return tree

    def _add(self, guess: Guess, step: float) -> None:
        tree, node = self._tree, 0
        for token in guess.tokens:
            child = tree.child(node, token)
            if child is None:
                logprob = min(tree.logprobs[node] + step, tree.rest(node))
                full = len(tree) > self._most or (tree.leaves >= self._most and bool(tree.children(node)))
                if logprob < _FLOOR or full or node in tree.draws:  # draws were made without knowing of it
                    return
                child = tree.add(node, token, logprob)
                tree.measured.add(child)
            node = child


def _class(matched: int) -> int:
    """2, 3, 4 to 5, 6 to 9, 10 and more tokens alike."""
    return sum(matched >= bound for bound in (3, 4, 6, 10))
