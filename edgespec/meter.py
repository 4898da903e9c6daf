"""Adds up rounds into the statistics of one generation, and computes the ceiling it could have reached.

The ceiling is tokens over the seconds that its rounds should take by calibrated costs (`memory.costs`), corrected by what
earlier rounds under this plan took: the sizes of the trees and the tokens are the run's own, the times are not.
"""

from __future__ import annotations

import time
from dataclasses import replace

from edgespec.loading import Loaded
from edgespec.memory.costs import SHORT_CONTEXT, Corrections
from edgespec.speculation.decoder import Policy
from edgespec.types import Round, Statistics

__all__ = ["Meter"]


class Meter:
    """`begin` is what is known before the first round; `corrections` are learned from the rounds, for later generations."""

    def __init__(self, loaded: Loaded, policy: Policy, begin: Statistics, corrections: Corrections) -> None:
        self._loaded, self._policy, self._totals, self._corrections = loaded, policy, begin, corrections
        self._costs = loaded.prepared.costs.corrected(corrections)
        self._kept = (0, 0)  # nodes drafted ahead that trees could use: until the round before, and until this one
        self._before = self._counters()
        self._phase_began = time.perf_counter()
        self._best_seconds = 0.0  # that the decode rounds should take

    def cached(self, tokens: int) -> None:
        """So much of the prompt need not be read again."""
        self._totals = replace(self._totals, cached_tokens=tokens)

    def add(self, done: Round) -> None:
        """Count one round: the first ends the prefill, the others are decoding; each takes the time since the one before."""
        now, totals = time.perf_counter(), self._totals
        phase = "decode" if totals.passes else "prefill"
        spent, self._phase_began = now - self._phase_began, now
        if phase == "decode":
            best = self._best(done)
            self._best_seconds += best
            self._corrections.learn(spent, best / self._costs.scale)
        self._kept = self._kept[1], done.kept_ahead
        self._totals = replace(
            totals,
            tokens=totals.tokens + len(done.tokens),
            passes=totals.passes + 1,
            drafted=totals.drafted + done.nodes,
            accepted=totals.accepted + done.accepted,
            near_ties=totals.near_ties + done.near_ties,
            prefill_seconds=totals.prefill_seconds + (spent if phase == "prefill" else 0),
            decode_seconds=totals.decode_seconds + (spent if phase == "decode" else 0),
            draft_seconds=totals.draft_seconds + done.draft_seconds,
            drafted_ahead=done.drafted_ahead,
            kept_ahead=done.kept_ahead,
        )

    def _best(self, done: Round) -> float:
        """Seconds of the sweep, and of drafting what was not drafted in stalls; guesses that nobody computed take none."""
        cells = max(0, self._totals.prompt_tokens + self._totals.tokens - SHORT_CONTEXT)
        drafted = max(0, done.nodes - (self._kept[1] - self._kept[0]))
        return self._costs.sweep(done.nodes + 1, cells) + min(done.draft_seconds, self._costs.drafting(drafted, cells))

    def statistics(self) -> Statistics:
        paged, waited, idle, read, callbacks = (now - then for now, then in zip(self._counters(), self._before, strict=True))
        return replace(
            self._totals,
            bytes_paged=int(paged),
            wait_seconds=waited,
            idle_seconds=idle,
            read_seconds=read,
            callback_seconds=callbacks,
            ceiling_tokens_per_second=self._ceiling(),
            policy_reason=self._policy.reason,
        )

    def _counters(self) -> tuple[float, ...]:
        target = self._loaded.target
        return target.bytes_read, target.wait_seconds, target.idle_seconds, target.read_seconds, target.callback_seconds

    def _ceiling(self) -> float:
        return (self._totals.tokens - 1) / self._best_seconds if self._best_seconds else self._costs.plain_rate
