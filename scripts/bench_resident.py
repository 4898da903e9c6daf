"""Never slower than not speculating: resident decoding with and without drafts, in interleaved pairs.

python scripts/bench_resident.py --target T.gguf --drafter D.gguf

An adversarial drafter offers wrong tokens with the real drafter's confidence; text that repeats is what drafts are best at.
Both sides run in this process on the same loaded models, 512 tokens each, the order swapped from pair to pair.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

from edgespec.engines.llamacpp.model import LlamaModel
from edgespec.engines.llamacpp.session import LlamaSession
from edgespec.loading import Options, Prepared, auto_policy, prepare
from edgespec.speculation.decoder import Decoder, Policy
from edgespec.speculation.drafting.base import Drafter, NoDrafter
from edgespec.speculation.drafting.model import ModelDrafter
from edgespec.speculation.policy import FixedPolicy
from edgespec.types import Floats, SamplingParams

TOKENS, CONTEXT = 512, 1024
STORY = "It was a cold evening, and Anna was happy. Anna walked to the river and"
REPEATING = "Anna walked to the river. Tom walked to the meadow. " * 8


class Adversary(ModelDrafter):
    """Confident and wrong."""

    def _candidates(self, row: Floats) -> list[tuple[int, float]]:
        return [((token + 1) % len(row), logprob) for token, logprob in super()._candidates(row)]


class Bench:
    def __init__(self, prepared: Prepared) -> None:
        assert prepared.drafter is not None
        self.prepared = prepared
        self.target, drafter = (
            LlamaModel(model, None, threads=prepared.threads) for model in (prepared.target, prepared.drafter)
        )
        self.main: LlamaSession = self.target.session(context=CONTEXT, chunk=256, max_nodes=32)
        self.small: LlamaSession = drafter.session(context=CONTEXT, chunk=64, max_nodes=32)

    def rate(self, prompt: list[int], drafter: Drafter, policy: Policy) -> float:
        """Tokens per second after the first; ends of text are ignored, so that every run makes as many."""
        self.main.rewind(0)
        self.small.rewind(0)
        drafter.extend(prompt[:-1])
        sampler = self.target.sampler(SamplingParams())
        rounds = Decoder(self.main, drafter, policy, sampler, lambda token: False).rounds(prompt, TOKENS)
        next(rounds)
        began, made = time.perf_counter(), 0
        for done in rounds:
            made += len(done.tokens)
        sampler.close()
        return made / (time.perf_counter() - began)

    def pair(self, prompt: list[int], kind: type[ModelDrafter], *, plain_first: bool) -> float:
        """Rate with drafts over the rate without."""
        size = self.target.tokenizer.size
        sides = {
            "drafts": lambda: self.rate(prompt, kind(self.small, vocabulary=size), auto_policy(self.prepared)),
            "plain": lambda: self.rate(prompt, NoDrafter(), FixedPolicy(0)),
        }
        rates = {name: sides[name]() for name in (sorted(sides, reverse=plain_first))}
        return rates["drafts"] / rates["plain"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--drafter", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()
    bench = Bench(prepare(Options(args.target, args.drafter, "90%", CONTEXT)))
    print("| text | drafter | drafts / plain, median | range | pairs |\n|---|---|---|---|---|")
    for name, text, kind in (("story", STORY, Adversary), ("repeating", REPEATING, ModelDrafter), ("story", STORY, ModelDrafter)):
        prompt = bench.target.tokenizer.encode(text, bos=True)
        ratios = sorted(bench.pair(prompt, kind, plain_first=number % 2 == 0) for number in range(args.pairs))
        about = "adversarial" if kind is Adversary else "its own"
        middle = statistics.median(ratios)
        print(f"| {name} | {about} | {middle:.2f} | {ratios[0]:.2f}-{ratios[-1]:.2f} | {len(ratios)} |", flush=True)


if __name__ == "__main__":
    main()
