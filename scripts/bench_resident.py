"""Never slower than not speculating: resident decoding with and without drafts, in interleaved pairs.

python scripts/bench_resident.py --target T.gguf --drafter D.gguf

An adversarial drafter offers wrong tokens with the real drafter's confidence; text that repeats is what drafts are best at.
As in a runtime, n-grams of what was said guess first, but in the first row; every run begins with nothing said or learned.
"""

from __future__ import annotations

import argparse
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
from edgespec.types import Floats

TOKENS, CONTEXT = 512, 1024
STORY = "It was a cold evening, and Anna was happy. Anna walked to the river and"
LINE = "<|user|>Repeat after me: {0}<|end|><|assistant|>{0}<|end|>".format("red lamp green boat blue kite")
REPEATING = 6 * LINE  # which the target goes on with


class Adversary(ModelDrafter):
    """Confident and wrong."""

    def _candidates(self, node: int, row: Floats) -> list[tuple[int, float]]:
        return [((token + 1) % len(row), logprob) for token, logprob in super()._candidates(node, row)]


ROWS: dict[str, tuple[str, type[ModelDrafter], bool]] = {
    "adversarial, no n-grams": (STORY, Adversary, False),
    "adversarial": (STORY, Adversary, True),
    "repeating": (REPEATING, ModelDrafter, True),
    "story": (STORY, ModelDrafter, True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--drafter", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--only", choices=list(ROWS), help="one row of the table")
    args = parser.parse_args()
    bench = Bench(Options(args.target, args.drafter, "90%", CONTEXT), TOKENS)
    size = bench.loaded.target.tokenizer.size
    print("| text and drafter | drafts / plain, median | range | pairs | tokens/s | tokens/pass |\n" + "|---" * 6 + "|")
    for name in [args.only] if args.only else ROWS:
        text, kind, ngrams = ROWS[name]

        def drafts(kind: type[ModelDrafter] = kind, ngrams: bool = ngrams) -> tuple[Drafter, Policy]:
            assert bench.small is not None
            spoken = SpokenText(SPOKEN_CONTEXTS * CONTEXT)
            model = kind(bench.small, vocabulary=size)
            drafter = StagedDrafter(model, spoken, [spoken], Trust(), alone=False) if ngrams else model
            return drafter, auto_policy(bench.prepared)

        cells = bench.compare(bench.encode(text), drafts, lambda: (NoDrafter(), FixedPolicy(0)), args.pairs)
        print(f"| {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
