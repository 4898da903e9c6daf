"""What a drafter loses by looking at part of a long context: ``python scripts/bench_views.py``. Nothing is timed.

The embedded pair at its trained length, greedy: drafts accepted of chains of 4, after long real texts and after texts
that ask for something said far above (a needle in a haystack; only the needle's own tokens count).
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

from edgespec.engines.llamacpp.model import LlamaModel
from edgespec.memory.plan import resident_cells, voting_layers
from edgespec.modelfile.header import read_model
from edgespec.shipped import embedded_model
from edgespec.speculation.decoder import Decoder
from edgespec.speculation.drafting.model import ModelDrafter
from edgespec.speculation.drafting.view import ViewedSession
from edgespec.speculation.policy import FixedPolicy
from edgespec.speculation.retrieval import Shape, View
from edgespec.types import SamplingParams
from pair import corpus, pydocs

CONTEXT, PROMPT, NODES = 2048, 1700, 4


def long_texts(count: int) -> dict[str, list[str]]:
    """Documentation nobody trained on, and Python source."""
    pages = sorted(pydocs.load(holdout=True).texts, key=len, reverse=True)
    sources = sorted(Path(random.__file__).parent.glob("*.py"), key=lambda path: -path.stat().st_size)
    return {"documentation": pages[:count], "source code": [path.read_text("utf-8")[3000:] for path in sources[:count]]}


def haystacks(count: int, characters: int) -> list[str]:
    """A code said near the beginning of a long text, asked for at its end, the answer begun."""
    rng, docs = random.Random(7), pydocs.load(holdout=True)
    found = []
    for _ in range(count):
        ((_, question), (_, answer)) = corpus.recall(rng, docs, characters)
        begun = answer.rsplit(" ", 1)[0]
        found.append(f"<|user|>{corpus.story_text(rng)}\n\n{question}<|end|><|assistant|>{begun}")
    return found


class Views:
    def __init__(self, layers: Sequence[int] | None, drafting: str, resident: int) -> None:
        target, drafter = (read_model(embedded_model(role)) for role in ("target", drafting))
        self._models = LlamaModel(target, None, threads=2), LlamaModel(drafter, None, threads=2)
        self.tokenizer = self._models[0].tokenizer
        self._main = self._models[0].session(context=CONTEXT, chunk=256, max_nodes=8)
        voting = layers or voting_layers(drafter)
        self._small = self._models[1].session(context=CONTEXT, chunk=64, max_nodes=8, voting=voting, resident=resident)

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, special=True, bos=True)

    def accepted(self, prompt: list[int], tokens: int, view: View, cells: int) -> tuple[int, int]:
        """Drafts accepted, and verified, in `tokens` tokens."""
        for session in (self._main, self._small):
            session.rewind(0)
        viewed = ViewedSession(self._small, Shape(view, cells))
        drafter = ModelDrafter(viewed, vocabulary=self.tokenizer.size, branch=1)
        drafter.extend(prompt[:-1])
        sampler = self._models[0].sampler(SamplingParams())
        rounds = list(Decoder(self._main, drafter, FixedPolicy(NODES), sampler, lambda token: False).rounds(prompt, tokens))
        sampler.close()
        return sum(done.accepted for done in rounds), sum(done.nodes for done in rounds)


def vote(texts: int, cells: int) -> None:
    """Which layers' attention chooses best, the target drafting for itself after source code."""
    layers = read_model(embedded_model("target")).layers
    grid = [*((layer,) for layer in range(layers)), (layers // 2, layers - 1), tuple(range(layers))]
    print("| layers that vote | accepted of drafted |\n|---|---|")
    for voting in grid:
        views = Views(voting, "target", 0)
        encoded = [views.encode(text)[:PROMPT] for text in long_texts(texts)["source code"]]
        counts = [views.accepted(prompt, 256, "retrieval", cells) for prompt in encoded if len(prompt) == PROMPT]
        share = sum(right for right, _ in counts) / sum(drafted for _, drafted in counts)
        print(f"| {', '.join(map(str, voting))} | {share:.3f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=512)
    parser.add_argument("--texts", type=int, default=12)
    parser.add_argument("--layers", help="whose attention chooses, for example 1,3")
    parser.add_argument("--self", dest="itself", action="store_true", help="the target drafts for itself")
    parser.add_argument("--in-file", action="store_true", help="what is out of view is in a file; there is no full view then")
    parser.add_argument("--vote", action="store_true", help="compare the layers whose attention could choose")
    args = parser.parse_args()
    if args.vote:
        vote(args.texts, args.cells)
        return
    layers = [int(layer) for layer in args.layers.split(",")] if args.layers else None
    views = Views(layers, "target" if args.itself else "drafter", resident_cells(args.cells, 8) if args.in_file else 0)
    print("| text | view | accepted of drafted | of the first view's |\n|---|---|---|---|")
    encoded = {
        name: [tokens[:PROMPT] for text in texts if len(tokens := views.encode(text)) >= PROMPT]
        for name, texts in long_texts(args.texts).items()
    }
    encoded["needle"] = [tokens for text in haystacks(4 * args.texts, 4000) if len(tokens := views.encode(text)) <= PROMPT]
    for name, prompts in encoded.items():
        whole = 0.0
        for view in ("window", "retrieval") if args.in_file else ("full", "window", "retrieval"):
            counts = [views.accepted(prompt, 5 if name == "needle" else 256, view, args.cells) for prompt in prompts]
            share = sum(right for right, _ in counts) / sum(drafted for _, drafted in counts)
            whole = whole or share
            print(f"| {name}, {len(prompts)} texts | {view} | {share:.3f} | {share / whole:.3f} |", flush=True)


if __name__ == "__main__":
    main()
