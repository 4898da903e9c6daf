"""Is greedy text the same when the drafter looks at part of a long context? ``python scripts/report_long.py``

The embedded pair continues documentation of 1k, 8k and 32k tokens (beyond its trained 2,048 the text means nothing, which
does not matter here), plainly and with trees drafted from a retrieval view; texts are compared up to the first near-tie.
"""

from __future__ import annotations

import argparse

from edgespec.engines.llamacpp.model import LlamaModel
from edgespec.memory.cpu import usable_threads
from edgespec.memory.plan import voting_layers
from edgespec.modelfile.header import read_model
from edgespec.shipped import embedded_model
from edgespec.speculation.decoder import Decoder
from edgespec.speculation.drafting.base import Drafter, NoDrafter
from edgespec.speculation.drafting.model import ModelDrafter
from edgespec.speculation.drafting.view import ViewedSession
from edgespec.speculation.policy import FixedPolicy
from edgespec.speculation.retrieval import Shape
from edgespec.speculation.tree import shared_prefix
from edgespec.types import SamplingParams
from pair import pydocs

TOKENS, NODES, CELLS = 64, 8, 512


class Pair:
    """Sessions of one length; the target reads the prompt once."""

    def __init__(self, prompt: list[int]) -> None:
        headers = [read_model(embedded_model(role)) for role in ("target", "drafter")]
        self._target, self._drafter = (LlamaModel(header, None, threads=usable_threads()) for header in headers)
        context = len(prompt) + 2 * TOKENS
        self._main = self._target.session(context=context, chunk=256, max_nodes=NODES)
        small = self._drafter.session(context=context, chunk=64, max_nodes=NODES, voting=voting_layers(headers[1]))
        self._small, self._prompt = ViewedSession(small, Shape("retrieval", CELLS)), prompt
        self._main.extend(prompt[:-1])

    def text(self, drafter: Drafter, nodes: int) -> tuple[list[int], int, int]:
        """The tokens, near-ties among them, and passes."""
        self._main.rewind(len(self._prompt) - 1)
        sampler = self._target.sampler(SamplingParams())
        decoder = Decoder(self._main, drafter, FixedPolicy(nodes), sampler, lambda token: False)
        rounds = list(decoder.rounds(self._prompt[-1:], TOKENS))
        near = sampler.near_ties
        sampler.close()
        return [token for done in rounds for token in done.tokens], near, len(rounds)

    def drafting(self) -> ModelDrafter:
        drafter = ModelDrafter(self._small, vocabulary=self._target.tokenizer.size)
        drafter.extend(self._prompt[:-1])
        return drafter

    def close(self) -> None:
        self._target.close()
        self._drafter.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="1000,8000,32000")
    args = parser.parse_args()
    tokenizer = LlamaModel(read_model(embedded_model("target")), None, threads=1)
    said = tokenizer.tokenizer.encode("\n\n".join(pydocs.load(holdout=True).texts), bos=True)
    tokenizer.close()
    print("| tokens of context | same tokens | of | near-ties, plain | passes with drafts |\n|---|---|---|---|---|")
    for length in map(int, args.lengths.split(",")):
        pair = Pair((said * (length // len(said) + 1))[:length])
        plain, near, _ = pair.text(NoDrafter(), 0)
        drafted, _, passes = pair.text(pair.drafting(), NODES)
        pair.close()
        print(f"| {length} | {shared_prefix(plain, drafted)} | {len(plain)} | {near} | {passes} |", flush=True)


if __name__ == "__main__":
    main()
