"""Tokens per pass of chains and trees on the embedded pair: ``python scripts/bench_trees.py``. Nothing is timed.

The optimum is the tree that a drafter with its own probabilities would grow if a pass for every node cost nothing, from
many more candidates a row.
"""

from __future__ import annotations

import argparse
import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgespec.engines.llamacpp.model import LlamaModel
from edgespec.engines.llamacpp.session import LlamaSession
from edgespec.modelfile.header import read_model
from edgespec.shipped import embedded_model
from edgespec.speculation.decoder import Decoder
from edgespec.speculation.drafting.model import ModelDrafter
from edgespec.speculation.policy import FixedPolicy
from edgespec.types import SamplingParams
from pair import corpus, pydocs

PROMPTS, TOKENS, CONTEXT = 40, 64, 512


def questions(count: int) -> list[str]:
    """Questions nobody trained on, in the chat frame, over held-out documentation."""
    stream = corpus.documents(random.Random(5), pydocs.load(holdout=True))
    found: list[str] = []
    while len(found) < count:
        asked = [text for role, text in next(stream) if role == "user"]
        if asked and len(asked[0]) < 400:
            found.append(f"<|user|>{asked[0]}<|end|><|assistant|>")
    return found


class Pair:
    def __init__(self) -> None:
        paths = [Path(embedded_model(role)) for role in ("target", "drafter")]
        self.target, self.drafter = (LlamaModel(read_model(path), None, threads=2) for path in paths)
        self._sessions: list[LlamaSession] = [
            m.session(context=CONTEXT, chunk=256, max_nodes=32) for m in (self.target, self.drafter)
        ]

    def tokens_per_pass(self, nodes: int, shape: dict[str, Any], temperature: float, texts: Sequence[str]) -> float:
        """Over all `texts`, greedy or sampled with seed 1; the first pass of each, which is plain, is not counted."""
        tokens = passes = 0
        for text in texts:
            ids = self.target.tokenizer.encode(text, special=True, bos=True)[: CONTEXT - TOKENS - 40]
            for session in self._sessions:
                session.rewind(0)
            target, drafts = self._sessions
            drafter = ModelDrafter(drafts, vocabulary=self.target.tokenizer.size, temperature=temperature, **shape)
            drafter.extend(ids[:-1])
            sampler = self.target.sampler(SamplingParams(temperature=temperature, seed=1))
            decoder = Decoder(target, drafter, FixedPolicy(nodes), sampler, self.target.tokenizer.ends)
            for done in itertools.islice(decoder.rounds(ids, TOKENS), 1, None):
                tokens, passes = tokens + len(done.tokens), passes + 1
            sampler.close()
        return tokens / passes


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    pair = Pair()
    texts = {"questions": questions(PROMPTS), "documentation": [text[:400] for text in pydocs.load(holdout=True).texts[:PROMPTS]]}
    print("| text | temperature | nodes | chain | tree | optimum | tree / chain | tree / optimum |\n" + "|---" * 8 + "|")
    for name, prompts in texts.items():
        for temperature in (0.0, 0.8):
            for nodes in (8, 16, 32):
                shapes: tuple[dict[str, int], ...] = ({"branch": 1}, {}, {"batch": 1, "branch": 32})
                chain, tree, best = (pair.tokens_per_pass(nodes, shape, temperature, prompts) for shape in shapes)
                print(
                    f"| {name} | {temperature} | {nodes} | {chain:.2f} | {tree:.2f} | {best:.2f} | {tree / chain:.2f} | "
                    f"{tree / best:.2f} |", flush=True,
                )  # fmt: skip


if __name__ == "__main__":
    main()
