"""Adds up rounds into the statistics of one generation, and computes the ceiling it could have reached."""

from __future__ import annotations

import time
from dataclasses import replace

from edgespec.loading import Loaded
from edgespec.speculation.decoder import Policy
from edgespec.types import Round, Statistics

__all__ = ["Meter"]


class Meter:
    """`begin` is what is known before the first round."""

    def __init__(self, loaded: Loaded, policy: Policy, begin: Statistics) -> None:
        self._loaded, self._policy, self._totals = loaded, policy, begin
        self._before = self._counters()
        self._phase_began = time.perf_counter()
        self._best_seconds = 0.0  # that the decode rounds would take at the calibrated speeds

    def cached(self, tokens: int) -> None:
        """So much of the prompt need not be read again."""
        self._totals = replace(self._totals, cached_tokens=tokens)

    def add(self, done: Round) -> None:
        """Count one round: the first ends the prefill, the others are decoding; each takes the time since the one before."""
        now, totals = time.perf_counter(), self._totals
        phase = "decode" if totals.passes else "prefill"
        spent, self._phase_began = now - self._phase_began, now
        self._best_seconds += self._best(done) if phase == "decode" else 0.0
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
        """The longer of reading what is missing and computing the rows, and the drafting outside stalls."""
        prepared = self._loaded.prepared
        disk = prepared.plan.streamed_bytes / prepared.speeds.read_bandwidth
        compute = prepared.speeds.compute(prepared.target.weight_bytes, done.nodes + 1)
        return max(disk, compute) + done.draft_seconds

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
        """E[accepted + 1] / (max(missing bytes / bandwidth, compute of the nodes) + drafting outside stalls)."""
        if not self._best_seconds:
            return self._loaded.prepared.plan.ceiling_tokens_per_second
        return (self._totals.tokens - 1) / self._best_seconds
