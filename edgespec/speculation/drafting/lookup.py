"""Guesses without a model: what followed the last few tokens when they were said before.

Prompt lookup decoding (Saxena, 2023) over this conversation and earlier ones, several continuations at a time; the same
question put to a store of the user's own files is REST (He et al., 2023), see `drafting.datastore`.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["BREAK", "LONGEST", "Guess", "Source", "SpokenText", "distinct", "following"]

LONGEST = 16  # tokens of context that are compared
_PLACES = 8  # newest occurrences of a pair of tokens that are looked at
BREAK = -1  # between texts that have nothing to do with each other


@dataclass(frozen=True)
class Guess:
    """What may come next, and how many tokens before it were the same."""

    tokens: tuple[int, ...]
    matched: int


class Source(Protocol):
    @property
    def name(self) -> str: ...

    def guesses(self, recent: Sequence[int], most: int) -> Iterator[Guess]:
        """Continuations of `recent`, up to `most` tokens each, the longest match first; no two begin alike."""


class SpokenText:
    """All tokens of a runtime's conversations, and where each pair of them occurred; the oldest half goes when it is full."""

    name = "ngram"

    def __init__(self, largest: int) -> None:
        """`largest`: tokens that are remembered."""
        self._largest = largest
        self._tokens = array("i", [BREAK])
        self._after: dict[int, list[int]] = {}  # pair -> places right behind it, oldest first

    def __len__(self) -> int:
        return len(self._tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            if len(self._tokens) >= self._largest:
                self._forget_half()
            self._append(token)

    def end(self) -> None:
        """What comes next does not follow what came last."""
        if self._tokens[-1] != BREAK:
            self._append(BREAK)

    def guesses(self, recent: Sequence[int], most: int) -> Iterator[Guess]:
        places = self._after.get(_pair(recent[-2], recent[-1]), []) if len(recent) > 1 else []
        found = [(self._matched(place, recent), place) for place in places[-_PLACES:] if place < len(self._tokens)]
        found.sort(reverse=True)  # the longest match, of these the newest
        return distinct(Guess(self._said(place, most), matched) for matched, place in found)

    def _forget_half(self) -> None:
        newest = self._tokens[len(self._tokens) // 2 :]
        self._tokens, self._after = array("i", [BREAK]), {}
        for token in newest:
            self._append(token)

    def _append(self, token: int) -> None:
        before = self._tokens[-1]
        self._tokens.append(token)
        if before != BREAK and token != BREAK:
            places = self._after.setdefault(_pair(before, token), [])
            places.append(len(self._tokens))
            if len(places) > 2 * _PLACES:
                del places[:_PLACES]

    def _matched(self, place: int, recent: Sequence[int]) -> int:
        """How many tokens before `place` are the last ones of `recent`; `place` itself is the present if all are."""
        most = min(LONGEST, len(recent), place)
        return next((n for n in range(2, most) if self._tokens[place - 1 - n] != recent[-1 - n]), most)

    def _said(self, place: int, most: int) -> tuple[int, ...]:
        """What followed; a guess that reaches the present goes on with itself, as text that repeats does."""
        said = following(self._tokens, place, most)
        if place + len(said) < len(self._tokens):
            return said
        return tuple(itertools.islice(itertools.cycle(said), most))


def _pair(before: int, token: int) -> int:
    """One number, a third of a tuple's size."""
    return before << 32 | token


def following(tokens: array[int] | NDArray[np.int32], place: int, most: int) -> tuple[int, ...]:
    """Up to `most` tokens from `place` on, none beyond the end of the text they are in."""
    said = tokens[place : place + most].tolist()
    return tuple(said[: said.index(BREAK)] if BREAK in said else said)


def distinct(guesses: Iterator[Guess]) -> Iterator[Guess]:
    """Those whose first token no earlier one has."""
    seen: set[int] = set()
    for guess in guesses:
        if guess.tokens and guess.tokens[0] not in seen:
            seen.add(guess.tokens[0])
            yield guess
