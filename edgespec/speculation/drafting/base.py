"""What the decoder asks of whoever guesses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from edgespec.speculation.tree import DraftTree

__all__ = ["Drafter", "DrafterAround", "NoDrafter", "Worth"]

Worth = Callable[[int, float], bool]
"""Whether one more node is wanted, given how many were drafted and its cumulative log-probability."""


class Drafter(Protocol):
    """Grows one tree per round. A drafter may be wrong or fail, never change the text."""

    @property
    def ahead(self) -> int:
        """Nodes drafted so far in time that nobody else could use."""

    @property
    def kept(self) -> int:
        """Nodes of these that survived a commit: the guess they were drafted on held."""

    @property
    def promise(self) -> float:
        """What a node that is not in the tree yet could have as its log-probability at most."""

    def extend(self, tokens: Sequence[int]) -> None:
        """Tokens of the prompt."""

    def begin(self, pending: int) -> DraftTree:
        """A new tree rooted at the pending token. It grows with every `step` and `idle`, at its end only."""

    def catch_up(self) -> None:
        """Read what no stall had time for, so that steps take what steps take."""

    def step(self, worth: Worth) -> bool:
        """One bounded piece of growth; False when there is nothing worth adding."""

    def check(self, guess: Sequence[int], at: int = 0) -> None:
        """Somebody else's guess at what follows node `at`: whatever of it seems likely joins the tree."""

    def idle(self, seconds: float) -> bool:
        """A piece of work for later that should fit `seconds`; False when there is none. See `engines.base.Idle`."""

    def commit(self, path: Sequence[int], pending: int) -> DraftTree:
        """The target kept `path` of the tree and went on with `pending`: the next tree, with what is drafted below it."""

    def rewind(self, length: int) -> int:
        """As `Session.rewind`."""


class NoDrafter:
    """Implements `Drafter` by never guessing."""

    ahead = kept = 0
    promise = -math.inf

    def extend(self, tokens: Sequence[int]) -> None: ...

    def begin(self, pending: int) -> DraftTree:
        return DraftTree(pending)

    def catch_up(self) -> None: ...

    def step(self, worth: Worth) -> bool:
        return False

    def check(self, guess: Sequence[int], at: int = 0) -> None: ...

    def idle(self, seconds: float) -> bool:
        return False

    def commit(self, path: Sequence[int], pending: int) -> DraftTree:
        return DraftTree(pending)

    def rewind(self, length: int) -> int:
        return length


class DrafterAround:
    """Implements `Drafter` by asking another one, for drafters that add to what it does."""

    def __init__(self, inner: Drafter) -> None:
        self._inner = inner

    @property
    def ahead(self) -> int:
        return self._inner.ahead

    @property
    def kept(self) -> int:
        return self._inner.kept

    @property
    def promise(self) -> float:
        return self._inner.promise

    def extend(self, tokens: Sequence[int]) -> None:
        self._inner.extend(tokens)

    def begin(self, pending: int) -> DraftTree:
        return self._inner.begin(pending)

    def catch_up(self) -> None:
        self._inner.catch_up()

    def step(self, worth: Worth) -> bool:
        return self._inner.step(worth)

    def check(self, guess: Sequence[int], at: int = 0) -> None:
        self._inner.check(guess, at)

    def idle(self, seconds: float) -> bool:
        return self._inner.idle(seconds)

    def commit(self, path: Sequence[int], pending: int) -> DraftTree:
        return self._inner.commit(path, pending)

    def rewind(self, length: int) -> int:
        return self._inner.rewind(length)
