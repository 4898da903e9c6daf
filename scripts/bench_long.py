"""End to end at a context whose KV cache outweighs the weights, everything resident:
``python scripts/bench_long.py --target T.gguf --drafter D.gguf --length 8192``.

Greedy, in interleaved pairs, against decoding without speculation in a session of its own: the drafter with a view of its
cache, the target drafting for itself with a view of its own, and one before the other. Beyond the pair's trained length the
text is of no worth; what passes cost is.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from bench_views import long_texts

from edgespec.engines.base import Session
from edgespec.engines.llamacpp.session import LlamaSession
from edgespec.loading import Options, auto_policy, load_models, prepare
from edgespec.memory.plan import MOST_NODES, resident_cells, voting_layers
from edgespec.speculation.decoder import Decoder, Policy
from edgespec.speculation.drafting.base import Drafter, NoDrafter
from edgespec.speculation.drafting.middle import ChainGuesser, MiddleDrafter
from edgespec.speculation.drafting.model import ModelDrafter
from edgespec.speculation.drafting.view import ViewedSession
from edgespec.speculation.policy import FixedPolicy
from edgespec.speculation.retrieval import Shape
from edgespec.speculation.tree import shared_prefix
from edgespec.types import SamplingParams

CHUNK, SPARE = 512, 512
Run = tuple[list[int], float, int]  # tokens, their rate after the first, and passes


class Long:
    """Two timelines of the target over the same prompt, one of them with a fork that looks at a part, and the drafter's."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.prepared = prepare(Options(args.target, args.drafter, "90%", 2048))
        self.loaded = load_models(self.prepared)
        target, small = self.loaded.target, self.loaded.drafter
        assert small is not None
        context, shape = args.length + SPARE, Shape("retrieval", args.cells)
        self.plain = target.session(context=context, chunk=CHUNK, max_nodes=1)
        self.main = target.session(
            context=context, chunk=CHUNK, max_nodes=MOST_NODES, voting=voting_layers(target.header), forked=True
        )
        self.middle = ViewedSession(self.main.fork(), shape)
        self.small = ViewedSession(
            small.session(context=context, chunk=64, max_nodes=MOST_NODES, voting=voting_layers(small.header),
                          resident=resident_cells(args.cells, MOST_NODES)), shape,
        )  # fmt: skip
        self.size = target.tokenizer.size

    def read(self, prompt: list[int]) -> None:
        sessions: tuple[LlamaSession | ViewedSession, ...] = (self.plain, self.main, self.small)
        for session in sessions:
            session.rewind(0)
            session.extend(prompt[:-1])

    def drafter(self, kind: str) -> Drafter:
        if kind == "drafter":
            return ModelDrafter(self.small, vocabulary=self.size)
        middle = ModelDrafter(self.middle, vocabulary=self.size)
        return middle if kind == "self" else MiddleDrafter(middle, ChainGuesser(self.small, self.size))

    def run(
        self, prompt: list[int], most: int, target: Session, drafter: Drafter, policy: Policy
    ) -> tuple[list[int], float, int]:
        """Tokens, their rate after the first, and passes; the prompt has been read."""
        for session in (self.small, self.middle, target):
            session.rewind(min(len(prompt) - 1, session.length))
        sampler = self.loaded.target.sampler(SamplingParams())
        rounds = Decoder(target, drafter, policy, sampler, lambda token: False).rounds(prompt[-1:], most)
        made = list(next(rounds).tokens)
        began, passes = time.perf_counter(), 0
        for done in rounds:
            made += done.tokens
            passes += 1
        sampler.close()
        return made, (len(made) - 1) / (time.perf_counter() - began), passes


def row(long: Long, prompt: list[int], kind: str, tokens: int, pairs: int) -> str:
    policy = auto_policy(long.prepared, f" long {kind}")
    sides: dict[str, Callable[[], Run]] = {
        "drafts": lambda: long.run(prompt, tokens, long.main, long.drafter(kind), policy),
        "plain": lambda: long.run(prompt, tokens, long.plain, NoDrafter(), FixedPolicy(0)),
    }
    sides["drafts"]()  # what passes cost here is learned
    ratios, rates, same, passed = [], [], tokens, []
    for number in range(pairs):
        done = {name: sides[name]() for name in sorted(sides, reverse=bool(number % 2))}
        ratios.append(done["drafts"][1] / done["plain"][1])
        rates.append(done["drafts"][1])
        passed.append((len(done["drafts"][0]) - 1) / done["drafts"][2])
        same = min(same, shared_prefix(done["drafts"][0], done["plain"][0]))
    middle = [statistics.median(column) for column in (ratios, rates, passed)]
    cells = f"{middle[0]:.2f} | {min(ratios):.2f}-{max(ratios):.2f} | {pairs} | {middle[1]:.2f} | {middle[2]:.2f}"
    return f"| {kind} | {cells} | {same} of {tokens} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--drafter", type=Path, required=True)
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--cells", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()
    long = Long(args)
    head = "| text | stages | drafts / plain, median | range | pairs | tokens/s | tokens/pass | same tokens |"
    print(head + "\n" + "|---" * 8 + "|", flush=True)
    for name, texts in long_texts(40).items():
        prompt = long.loaded.target.tokenizer.encode("\n\n".join(texts), special=True, bos=True)[: args.length]
        long.read(prompt)
        for kind in ("drafter", "self", "drafter,self"):
            print(f"| {name} {row(long, prompt, kind, args.tokens, args.pairs)}", flush=True)


if __name__ == "__main__":
    main()
