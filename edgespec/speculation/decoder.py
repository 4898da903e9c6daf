"""The decode loop. It knows protocols, never which engine, drafter, verifier or pager it drives."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from edgespec.engines.base import Sampler, Session
from edgespec.errors import ContextFull, EngineError
from edgespec.speculation.drafting.base import Drafter
from edgespec.speculation.logprobs import logprobs_of
from edgespec.speculation.tree import DraftTree
from edgespec.speculation.verify.match import match_target
from edgespec.speculation.verify.walk import Verifier
from edgespec.timeline import OFF, Timeline
from edgespec.types import Acceptance, Floats, Round

__all__ = ["Decoder", "Policy"]


class Policy(Protocol):
    @property
    def reason(self) -> str: ...

    def worth(self, nodes: int, logprob: float, *, drafted: bool = False, measured: bool = False) -> bool: ...

    def learn(self, tree: DraftTree, accepted: Acceptance, draft_seconds: float, sweep_seconds: float) -> None: ...


@dataclass
class Decoder:
    """One target and a drafter, introduced to each other: the target's stalls are the drafter's time."""

    target: Session
    drafter: Drafter
    policy: Policy
    sampler: Sampler
    ends: Callable[[int], bool]
    verify: Verifier = match_target
    top: int | None = None  # likeliest tokens that come with each token's log-probability; None: no log-probabilities
    timeline: Timeline = OFF

    def rounds(self, prompt: Sequence[int], most: int) -> Iterator[Round]:
        """Emit up to `most` tokens after `prompt`, one sweep a round, until one that `ends`. Sessions stay in step.

        The target has been given what comes before `prompt`, the drafter all but its last token. The first round ends the
        prompt and is plain: its token waits for no drafter.
        """
        tree, room = self.drafter.begin(prompt[-1]), 0
        self.target.offer(self._idle)
        self.target.extend(prompt[:-1])
        while most > 0:
            started = time.perf_counter()
            head, drafting = self._grow(tree, room)
            drafted = time.perf_counter()
            head, accepted = self._verify(head, most)
            swept = time.perf_counter()
            self.target.commit(accepted.path, [head.tokens[node] for node in accepted.path])
            tree = self.drafter.commit(accepted.path, accepted.tokens[-1])
            if room:
                self.policy.learn(head, accepted, drafting, time.perf_counter() - drafted)  # keeping what was accepted too
            most -= len(accepted.tokens)
            room = min(most - 1, self.target.capacity - self.target.length - 1)
            yield self._round(head, accepted, started, drafted, swept)
            if self.ends(accepted.tokens[-1]):
                return

    def _grow(self, tree: DraftTree, room: int) -> tuple[DraftTree, float]:
        """What of the tree is worth verifying, grown until nothing more is; and the seconds that growing took."""

        def worth(nodes: int, logprob: float) -> bool:
            return nodes < min(room, self.target.rows - 1) and self.policy.worth(nodes, logprob)

        nodes = 1
        while nodes < min(len(tree), room + 1, self.target.rows) and self.policy.worth(
            nodes - 1, tree.logprobs[nodes], drafted=True, measured=nodes in tree.measured
        ):
            nodes += 1
        if nodes < len(tree) or not worth(nodes - 1, self.drafter.promise):
            return tree.head(nodes), 0.0
        self.drafter.catch_up()
        ready = time.perf_counter()
        while self.drafter.step(worth):
            pass
        seconds = time.perf_counter() - ready
        return tree.head(min(len(tree), self.target.rows)), seconds  # a copy: the tree grows on while the target works

    def _idle(self, seconds: float) -> bool:
        """In the target's stalls: draft ahead, unless drafting does not pay at all."""
        if not self.policy.worth(0, 0.0):
            return False
        with self.timeline.span("drafter", "ahead"):
            return self.drafter.idle(seconds)

    def _verify(self, tree: DraftTree, most: int) -> tuple[DraftTree, Acceptance]:
        """Score and walk the tree. A failed or non-finite pass is tried once more, plain, before it is an error."""
        try:
            rows = self.target.score(tree)
            broken = not _finite(rows)
        except ContextFull:
            raise
        except EngineError:
            broken = True
        if broken:
            tree = DraftTree(tree.tokens[0])
            rows = self.target.score(tree)
            if not _finite(rows):
                raise EngineError("the target's logits are not finite: the model file is damaged, download it again")
        accepted = self.verify(tree, rows, self.sampler, ends=self.ends, most=most)
        return tree, replace(accepted, logprobs=logprobs_of(accepted, rows, self.top))

    def _round(self, tree: DraftTree, accepted: Acceptance, started: float, drafted: float, swept: float) -> Round:
        self.timeline.add("drafter", started, drafted, "draft {}", len(tree) - 1)
        self.timeline.add("decode", drafted, swept, "sweep of {}: {} tokens", len(tree), len(accepted.tokens))
        guessed = len(accepted.path) - 1
        return Round(
            tokens=accepted.tokens,
            from_draft=tuple(index < guessed for index in range(len(accepted.tokens))),
            nodes=len(tree) - 1,
            accepted=guessed,
            near_ties=accepted.near_ties,
            logprobs=accepted.logprobs,
            draft_seconds=drafted - started,
            sweep_seconds=swept - drafted,
            drafted_ahead=self.drafter.ahead,
            kept_ahead=self.drafter.kept,
        )


def _finite(rows: Floats) -> bool:
    """One sum a row finds any NaN or infinity in it."""
    with np.errstate(invalid="ignore", over="ignore"):
        return bool(np.isfinite(rows.sum(axis=1, dtype=np.float64)).all())
