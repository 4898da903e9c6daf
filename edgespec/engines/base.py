"""The seam between speculation and whatever runs a model. Everything above speaks these protocols alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edgespec.speculation.tree import DraftTree
from edgespec.types import Floats

__all__ = ["Idle", "Sampler", "Session", "Tokenizer", "ViewableSession"]

Idle = Callable[[float], bool]
"""What to do with `seconds` of waiting: one bounded piece of other work; False when there is none that would fit."""


class Session(Protocol):
    """One mutable timeline over one loaded model: committed tokens, then the scored nodes of one tree.

    A pass that raises (EngineError, PagingError, ModelChanged, Cancelled) leaves the committed timeline as it was.
    """

    @property
    def length(self) -> int:
        """Tokens committed so far, deferred ones included."""

    @property
    def capacity(self) -> int:
        """The largest `length` plus tree that fits."""

    @property
    def rows(self) -> int:
        """The most nodes that one pass scores, and the most leaves of a tree."""

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens; in wide chunks, the last of which may wait for the next `score` and share its pass."""

    def score(self, tree: DraftTree, start: int = 0) -> Floats:
        """One pass for nodes `start`..; float32 (nodes, vocabulary), row i predicting the successor of node start + i.

        Nodes below `start` must have been scored since the last commit, or kept by it. Rows stay valid until the next pass.
        """

    def trim(self, nodes: int) -> None:
        """Forget all scored nodes but the first `nodes`."""

    def commit(self, path: Sequence[int], tokens: Sequence[int], keep: Sequence[int] = ()) -> None:
        """Keep the nodes of `path` (from node 0 down, `tokens` being their tokens) and drop the rest of the tree.

        Nodes that were never scored are appended as by `extend`. `keep` is a child of the path's end and all that is below
        it, ascending: the next tree, in that order; those of its nodes that were scored stay scored.
        """

    def offer(self, idle: Idle | None) -> None:
        """What passes of this session may do while they wait for the disk, until told otherwise."""

    def rewind(self, length: int) -> int:
        """Drop everything from token `length` on; returns the length really kept (0 if the engine must start over)."""

    def close(self) -> None:
        """Free the timeline; idempotent."""


class ViewableSession(Session, Protocol):
    """A session that can look at part of what was committed, which stays in memory."""

    @property
    def evaluated(self) -> int:
        """Committed tokens that are not deferred."""

    def attend(self, ranges: Sequence[tuple[int, int]] | None) -> None:
        """Let passes see these ranges of the evaluated tokens alone, and whatever is added later; None: everything.

        The last evaluated token must be in view. What was scored stays scored, by what was seen then.
        """

    def attention(self, chunk: int) -> tuple[Floats, Floats]:
        """What a choice can be made by: the newest queries, (queries, layers, heads, size), and the mean key of every whole
        chunk of evaluated tokens, (chunks, layers, key heads, size), as attended with in some layers."""


class Sampler(Protocol):
    """One chain of samplers with its own randomness, consumed exactly once per emitted token."""

    def probs(self, row: Floats) -> NDArray[np.float64]:
        """(vocabulary,), the distribution that `draw` would draw from; neither row nor chain are changed."""

    def draw(self, row: Floats) -> int:
        """The next token given one row of logits (unchanged by the call). Counts a near-tie if it was one.

        Tokens share [0, 1) in the order of their ids, and one number is drawn: rounding cannot change that order.
        """

    def accept(self, token: int) -> None:
        """Tell the chain that `token` was emitted; penalties look back on it."""

    def clone(self) -> Sampler:
        """Another chain that has accepted the same tokens, to look ahead with; its draws begin anew. Close it too."""

    @property
    def near_ties(self) -> int:
        """Draws so far that rounding could have turned, by what is known of the engine's; see `engines.near_ties`."""

    def close(self) -> None:
        """Free the chain; idempotent."""


class Tokenizer(Protocol):
    @property
    def adds_bos(self) -> bool:
        """Whether a document begins with a BOS token."""

    def encode(self, text: str, *, special: bool = False, bos: bool = False) -> list[int]:
        """Tokens of `text`; with `special`, markup such as <|user|> is read as control tokens."""

    def piece(self, token: int) -> bytes:
        """The bytes a token stands for; empty for control tokens."""

    def ends(self, token: int) -> bool:
        """Whether this token ends a generation."""
