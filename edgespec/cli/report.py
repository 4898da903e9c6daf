"""What `run` tells about a generation: the JSON object, and the same in a line for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgespec.memory.budget import format_size, peak_memory
from edgespec.runtime import Runtime
from edgespec.types import Chunk, Expected, Statistics

__all__ = ["as_json", "expectation", "summary"]


def as_json(runtime: Runtime, chunks: Sequence[Chunk]) -> dict[str, Any]:
    """One object; sizes in bytes, times in seconds."""
    last = chunks[-1]
    stats = last.statistics
    return {
        "text": "".join(chunk.text for chunk in chunks),
        "finish_reason": last.finish_reason,
        "prompt_tokens": stats.prompt_tokens,
        "cached_tokens": stats.cached_tokens,
        "tokens": stats.tokens,
        "passes": stats.passes,
        "drafted": stats.drafted,
        "accepted": stats.accepted,
        "drafted_ahead": stats.drafted_ahead,
        "kept_ahead": stats.kept_ahead,
        "tokens_per_pass": stats.tokens_per_pass,
        "tokens_per_second": stats.tokens_per_second,
        "seconds": {
            "load": stats.load_seconds,
            "prefill": stats.prefill_seconds,
            "decode": stats.decode_seconds,
            "draft": stats.draft_seconds,
            "wait": stats.wait_seconds,
            "wait_used": stats.idle_seconds,
            "read": stats.read_seconds,
            "callbacks": stats.callback_seconds,
        },
        "bytes_paged": stats.bytes_paged,
        "budget_bytes": runtime.plan.budget,
        "peak_bytes": peak_memory(),
        "ceiling_tokens_per_second": stats.ceiling_tokens_per_second,
        "near_ties": stats.near_ties,
        "draft_seconds_per_token": stats.draft_seconds_per_token,
        "draft_acceptance": stats.draft_acceptance,
        "speculation": runtime.speculation,
        "stages": list(stats.stages),
        "draft_view": stats.draft_view,
        "verify": stats.verify,
        "policy": stats.policy_reason,
        "paging": runtime.paging,
        "context": runtime.plan.context,
        "kv_type": runtime.plan.kv_type,
        "notes": list(runtime.notes),
        "engine": runtime.engine,
    }


def summary(runtime: Runtime, stats: Statistics) -> str:
    drafts = f"{stats.accepted} of {stats.drafted} drafts accepted" if stats.drafted else "no drafts"
    return (
        f"{stats.tokens_per_second:.2f} tokens/s, {stats.tokens} tokens in {stats.passes} passes, {drafts}; "
        f"{format_size(stats.bytes_paged)} paged ({runtime.paging}), peak {format_size(peak_memory())} "
        f"of {format_size(runtime.plan.budget)}; ceiling {stats.ceiling_tokens_per_second:.2f} tokens/s"
        + (f"; {stats.near_ties} near-ties" if stats.near_ties else "")
        + (f"; {stats.verify}: not the target's own text" if stats.verify.startswith("lossy") else "")
    )


def expectation(rates: Expected) -> str:
    """Of a run that has not begun."""
    plain = f"{_rounded(rates.plain)} tokens/s without drafts"
    if rates.low is None or rates.high is None:
        return plain
    return f"{plain}, {_rounded(rates.low)} to {_rounded(rates.high)} with them (by acceptance)"


def _rounded(rate: float) -> str:
    """No more figures than a prediction has."""
    return f"{rate:.2g}" if rate < 100 else f"{rate:.0f}"
