"""Counters for Prometheus, in its text format."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from edgespec.runtime import Runtime
from edgespec.types import Statistics

__all__ = ["Metrics"]

_TOTALS = (
    "prompt_tokens",
    "cached_tokens",
    "tokens",
    "drafted",
    "accepted",
    "passes",
    "bytes_paged",
)  # of `Statistics`, added up


@dataclass
class Metrics:
    """Since the server began. `last` is of the generation that runs, or ran last."""

    requests: Counter[int] = field(default_factory=Counter)  # by status
    cancelled: int = 0
    totals: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    last: Statistics = field(default_factory=Statistics)

    def ended(self, stats: Statistics) -> None:
        self.last = stats
        self.seconds += stats.prefill_seconds + stats.decode_seconds
        for name in _TOTALS:
            self.totals[name] += getattr(stats, name)

    def text(self, runtime: Runtime, running: int, waiting: int) -> str:
        lines = ["# TYPE edgespec_requests_total counter"]
        lines += [f'edgespec_requests_total{{status="{status}"}} {count}' for status, count in sorted(self.requests.items())]
        counters: dict[str, float] = {f"{name}_total": self.totals[name] for name in _TOTALS}
        counters |= {"generation_seconds_total": self.seconds, "cancelled_total": self.cancelled}
        gauges: dict[str, float] = {
            "running": running,
            "waiting": waiting,
            "budget_bytes": runtime.plan.budget,
            "resident_bytes": runtime.memory_used,
            "tokens_per_second": self.last.tokens_per_second,
            "draft_acceptance": self.last.draft_acceptance,
        }
        for kind, values in (("counter", counters), ("gauge", gauges)):
            for name, value in values.items():
                lines += [f"# TYPE edgespec_{name} {kind}", f"edgespec_{name} {value:.15g}"]
        return "\n".join(lines) + "\n"
