"""End to end at the pair's trained length, where its KV cache outweighs its weights: ``python scripts/bench_long.py``

The embedded pair as it is, resident, 256 tokens after 1,700 of documentation and of Python source, in interleaved pairs:
the usual strategy with each of the drafter's views against decoding without speculation.
"""

from __future__ import annotations

import argparse

from bench_views import CONTEXT, PROMPT, long_texts
from interleaved import Bench

from edgespec.loading import Options, auto_policy
from edgespec.memory.plan import DRAFT_CHUNK, SPOKEN_CONTEXTS, voting_layers
from edgespec.speculation.decoder import Policy
from edgespec.speculation.drafting.base import Drafter, NoDrafter
from edgespec.speculation.drafting.lookup import SpokenText
from edgespec.speculation.drafting.model import ModelDrafter
from edgespec.speculation.drafting.staged import StagedDrafter, Trust
from edgespec.speculation.drafting.view import ViewedSession
from edgespec.speculation.policy import FixedPolicy
from edgespec.speculation.retrieval import Shape

TOKENS, CELLS = 256, 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()
    bench = Bench(Options(context=CONTEXT), TOKENS)
    assert bench.loaded.drafter is not None
    header = bench.loaded.drafter.header
    viewable = bench.loaded.drafter.session(context=CONTEXT, chunk=DRAFT_CHUNK, max_nodes=32, voting=voting_layers(header))
    full = bench.small
    print("| text | view | drafts / plain, median | range | pairs | tokens/s | tokens/pass |\n" + "|---" * 7 + "|")
    for name, texts in long_texts(6).items():
        prompt = next(tokens[:PROMPT] for text in texts if len(tokens := bench.encode(text)) >= PROMPT)
        for view in ("full", "window", "retrieval"):
            bench.small = full if view == "full" else ViewedSession(viewable, Shape(view, CELLS))

            def drafts() -> tuple[Drafter, Policy]:
                assert bench.small is not None
                spoken = SpokenText(SPOKEN_CONTEXTS * CONTEXT)
                inner = ModelDrafter(bench.small, vocabulary=bench.loaded.target.tokenizer.size)
                return StagedDrafter(inner, spoken, [spoken], Trust(), alone=False), auto_policy(bench.prepared, " long bench")

            cells = bench.compare(prompt, drafts, lambda: (NoDrafter(), FixedPolicy(0)), args.pairs)
            print(f"| {name} | {view} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
