"""The decode loop. It knows protocols, never which engine, drafter, verifier or pager it drives."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from edgespec.engines.base import Sampler, Session
from edgespec.errors import ContextFull, EngineError
from edgespec.speculation.drafting.base import Drafter
from edgespec.speculation.tree import DraftTree
from edgespec.speculation.verify.match import match_target
from edgespec.types import Acceptance, Floats, Round

__all__ = ["Decoder", "Policy"]


class Policy(Protocol):
    reason: str

    def size(self) -> int: ...

    def learn(self, nodes: int, accepted: tuple[int, ...], draft_seconds: float, sweep_seconds: float) -> None: ...


@dataclass
class Decoder:
    """One target, perhaps a drafter; both have committed everything before `pending`."""

    target: Session
    drafter: Drafter | None
    policy: Policy
    sampler: Sampler
    ends: Callable[[int], bool]
    logprobs: bool = False

    def rounds(self, pending: int, most: int) -> Iterator[Round]:
        """Emit up to `most` tokens after `pending`, one sweep a round, until one that `ends`. Sessions stay in step."""
        while most > 0:
            started = time.perf_counter()
            tree = self._grow(pending, most)
            drafted = time.perf_counter()
            tree, accepted = self._verify(tree, most)
            swept = time.perf_counter()
            self._commit(tree, accepted)
            self.policy.learn(len(tree) - 1, accepted.path[1:], drafted - started, swept - drafted)
            most -= len(accepted.tokens)
            pending = accepted.tokens[-1]
            yield self._round(tree, accepted, drafted - started, swept - drafted)
            if self.ends(pending):
                return

    def _grow(self, pending: int, most: int) -> DraftTree:
        nodes = min(self.policy.size(), self.target.capacity - self.target.length - 1) if self.drafter and most > 1 else 0
        if not self.drafter or nodes <= 0:
            return DraftTree(pending)
        tree = self.drafter.begin(pending)
        while self.drafter.step(nodes):
            pass
        return tree

    def _verify(self, tree: DraftTree, most: int) -> tuple[DraftTree, Acceptance]:
        """Score and walk the tree. A failed or non-finite pass is tried once more, plain, before it is an error."""
        try:
            rows = self.target.score(tree)
            broken = not _finite(rows)
        except ContextFull:
            raise
        except EngineError:
            if len(tree) == 1:
                raise
            broken = True
        if broken:
            tree = DraftTree(tree.tokens[0])
            rows = self.target.score(tree)
            if not _finite(rows):
                raise EngineError("the target's logits are not finite: the model file is damaged, download it again")
        return tree, match_target(tree, rows, self.sampler, ends=self.ends, most=most, logprobs=self.logprobs)

    def _commit(self, tree: DraftTree, accepted: Acceptance) -> None:
        tokens = [tree.tokens[node] for node in accepted.path]
        self.target.commit(accepted.path, tokens)
        if self.drafter:
            if len(tree) > 1:
                self.drafter.commit(accepted.path, tokens)
            else:
                self.drafter.extend(tokens)

    def _round(self, tree: DraftTree, accepted: Acceptance, draft_seconds: float, sweep_seconds: float) -> Round:
        guessed = len(accepted.path) - 1
        return Round(
            tokens=accepted.tokens,
            from_draft=tuple(index < guessed for index in range(len(accepted.tokens))),
            nodes=len(tree) - 1,
            accepted=guessed,
            near_ties=accepted.near_ties,
            logprobs=accepted.logprobs,
            draft_seconds=draft_seconds,
            sweep_seconds=sweep_seconds,
        )


def _finite(rows: Floats) -> bool:
    """One sum a row finds any NaN or infinity in it."""
    with np.errstate(invalid="ignore", over="ignore"):
        return bool(np.isfinite(rows.sum(axis=1, dtype=np.float64)).all())
