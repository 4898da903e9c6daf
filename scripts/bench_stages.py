"""What guessing without a model adds: n-grams before the drafter against the drafter alone, or against nothing.

python scripts/bench_stages.py --target T.gguf --drafter D.gguf            # resident, staged / drafter alone
python scripts/bench_stages.py --target T.gguf --budget 200MB              # n-grams / plain decoding, paged under the budget
"""

from __future__ import annotations

import argparse
import json.decoder
from pathlib import Path

from interleaved import Bench

from edgespec.loading import Options, auto_policy
from edgespec.memory.plan import SPOKEN_CONTEXTS
from edgespec.speculation.decoder import Policy
from edgespec.speculation.drafting.base import Drafter, NoDrafter
from edgespec.speculation.drafting.lookup import SpokenText
from edgespec.speculation.drafting.model import ModelDrafter
from edgespec.speculation.drafting.staged import StagedDrafter, Trust
from edgespec.speculation.policy import FixedPolicy
from edgespec.types import Stage
from pair import pydocs

TOKENS, CONTEXT = 512, 1536


def texts() -> dict[str, str]:
    """Prompts nobody trained on, but for the story's manner."""
    documentation = max(pydocs.load(holdout=True).texts, key=len)[:1800]
    return {
        "code": Path(json.decoder.__file__).read_text()[:2000],
        "summary": f"<|user|>Summarize this text.\n\n{documentation}<|end|><|assistant|>",
        "documentation": documentation,
        "prose": "It was a cold evening, and Anna was happy. Anna walked to the river and",
        "repeating": 6 * "<|user|>Repeat after me: {0}<|end|><|assistant|>{0}<|end|>".format("red lamp green boat blue kite"),
    }


class Sides:
    """Drafters and policies for one bench; every run starts from nothing."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def plain(self) -> tuple[Drafter, Policy]:
        if self._bench.small is None:
            return NoDrafter(), FixedPolicy(0)
        return ModelDrafter(self._bench.small, vocabulary=self._bench.loaded.target.tokenizer.size), self._policy()

    def staged(self) -> tuple[Drafter, Policy]:
        inner, _ = self.plain()
        spoken = SpokenText(SPOKEN_CONTEXTS * CONTEXT)
        return StagedDrafter(inner, spoken, [spoken], Trust(), alone=self._bench.small is None), self._policy()

    def _policy(self) -> Policy:
        return auto_policy(self._bench.prepared, " stages bench")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--drafter", type=Path)
    parser.add_argument("--budget", default="90%")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--texts", default=",".join(texts()))
    args = parser.parse_args()
    stages: tuple[Stage, ...] = ("ngram", "drafter") if args.drafter else ("ngram",)
    bench = Bench(Options(args.target, args.drafter, args.budget, CONTEXT, stages=stages), TOKENS)
    sides = Sides(bench)
    other = "drafter alone" if args.drafter else "plain"
    print(f"{bench.prepared.plan.paging}, {bench.prepared.plan.streamed_bytes / 1e6:.0f} MB streamed a sweep\n")
    print(f"| text | with n-grams / {other}, median | range | pairs | tokens/s | tokens/pass |\n" + "|---" * 6 + "|")
    for name in args.texts.split(","):
        print(f"| {name} | {bench.compare(bench.encode(texts()[name]), sides.staged, sides.plain, args.pairs)} |", flush=True)


if __name__ == "__main__":
    main()
