"""edgespec itself as a process of its own: a `Setting.job` as JSON on stdin, a result as JSON on stdout."""

from __future__ import annotations

import json
import sys
from typing import Any

import edgespec
from edgespec.runtime import Runtime
from edgespec.types import Expected, Statistics

__all__ = ["main"]


def main() -> None:
    job = json.load(sys.stdin)
    with edgespec.load(
        job["target"], job["drafter"], budget=job["budget"], context=job["context"], threads=job["threads"],
        speculation=job["speculation"], draft_nodes=job["nodes"], strict=True, **job["options"],
    ) as runtime:  # fmt: skip
        expected = runtime.expected_tokens_per_second
        done = [_answer(runtime, prompt, job) for prompt in job["tokens"]]
        statistics = [one for _, one in done]
        result = {
            "tokens": [tokens for tokens, _ in done],
            "predicted": _predicted(job["speculation"], expected),
            "ceiling": _ceiling(statistics),
            "passes": sum(one.passes - 1 for one in statistics),
            **{name: sum(getattr(one, name) for one in statistics) for name in _COUNTS},
            "plan": {"streamed": runtime.plan.streamed_bytes, "ring": runtime.plan.ring_bytes, "chunk": runtime.plan.chunk},
            "reason": statistics[-1].policy_reason,
            "seconds": _seconds(statistics),
        }
    sys.stdout.write(json.dumps(result) + "\n")


def _answer(runtime: Runtime, prompt: list[int], job: dict[str, Any]) -> tuple[list[int], Statistics]:
    """The tokens; a job that is `live` is told of them as lines of JSON."""
    tokens: list[int] = []
    for chunk in runtime.stream(prompt, max_tokens=job["max_tokens"]):
        tokens += chunk.tokens
        if job.get("live"):
            sys.stdout.write(json.dumps({"made": chunk.tokens}) + "\n")
            sys.stdout.flush()
    return tokens, chunk.statistics


def _predicted(speculation: str, expected: Expected) -> list[float] | None:
    """The range of tokens per second told before the run; None for fixed trees, of which none is told."""
    if speculation == "off":
        return [expected.plain, expected.plain]
    return [expected.low, expected.high] if speculation == "auto" and expected.low and expected.high else None


_COUNTS = ("drafted", "accepted", "drafted_ahead", "kept_ahead", "near_ties", "bytes_paged")


def _ceiling(statistics: list[Statistics]) -> float:
    """Of all generations together: tokens over the least time they could take."""
    tokens = [max(0, one.tokens - 1) for one in statistics]
    seconds = sum(count / one.ceiling_tokens_per_second for count, one in zip(tokens, statistics, strict=True))
    return sum(tokens) / seconds if seconds else 0.0


def _seconds(statistics: list[Statistics]) -> dict[str, Any]:
    names = ("decode", "draft", "wait", "idle", "read", "callback")
    totals = {name: sum(getattr(one, f"{name}_seconds") for one in statistics) for name in names}
    return totals | {"load": statistics[0].load_seconds, "prefill": [one.prefill_seconds for one in statistics]}


if __name__ == "__main__":
    main()
