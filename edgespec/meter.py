"""Adds up rounds into the statistics of one generation, and computes the ceiling it could have reached."""

from __future__ import annotations

import time
from dataclasses import replace

from edgespec.loading import Loaded
from edgespec.speculation.decoder import Policy
from edgespec.types import Round, Statistics

__all__ = ["Meter"]


class Meter:
    def __init__(self, loaded: Loaded, mode: str, policy: Policy, load_seconds: float, prompt_tokens: int) -> None:
        self._loaded, self._mode, self._policy = loaded, mode, policy
        self._before = self._counters()
        self._phase_began = time.perf_counter()
        self._totals = Statistics(prompt_tokens=prompt_tokens, load_seconds=load_seconds)
        self._nodes = 0

    def add(self, done: Round, phase: str) -> None:
        """Count one round of the "prefill" or the "decode" phase; a phase's time is the time between its rounds' ends."""
        now, totals = time.perf_counter(), self._totals
        spent, self._phase_began = now - self._phase_began, now
        self._nodes += done.nodes + (phase == "decode")
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
        )

    def statistics(self) -> Statistics:
        paged, waited, read, callbacks = (now - then for now, then in zip(self._counters(), self._before, strict=True))
        return replace(
            self._totals,
            bytes_paged=int(paged),
            wait_seconds=waited,
            read_seconds=read,
            callback_seconds=callbacks,
            ceiling_tokens_per_second=self._ceiling(),
            speculation=self._mode,
            policy_reason=self._policy.reason,
        )

    def _counters(self) -> tuple[float, float, float, float]:
        target = self._loaded.target
        return target.bytes_read, target.wait_seconds, target.read_seconds, target.callback_seconds

    def _ceiling(self) -> float:
        """E[accepted + 1] / (max(missing bytes / bandwidth, compute of the nodes) + drafting time)."""
        prepared, totals = self._loaded.prepared, self._totals
        rounds = totals.passes - 1
        if rounds < 1:
            return prepared.plan.ceiling_tokens_per_second
        disk = prepared.plan.streamed_bytes / prepared.speeds.read_bandwidth
        compute = prepared.speeds.compute(prepared.target.weight_bytes, max(1, round(self._nodes / rounds)))
        return ((totals.tokens - 1) / rounds) / (max(disk, compute) + totals.draft_seconds / rounds)
