"""What the decoder asks of whoever guesses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from edgespec.speculation.tree import DraftTree

__all__ = ["Drafter"]


class Drafter(Protocol):
    """Grows one tree per round. A drafter may be wrong or fail, never change the text."""

    def extend(self, tokens: Sequence[int]) -> None:
        """Tokens of the prompt, or emitted without a tree."""

    def begin(self, pending: int) -> DraftTree:
        """A new tree rooted at the pending token."""

    def step(self, nodes: int) -> bool:
        """One bounded piece of growth towards `nodes` drafted nodes; False when there is nothing worth adding."""

    def commit(self, path: Sequence[int], tokens: Sequence[int]) -> None:
        """The target kept `path` of the tree, whose tokens are `tokens`."""

    def rewind(self, length: int) -> int:
        """As `Session.rewind`."""
