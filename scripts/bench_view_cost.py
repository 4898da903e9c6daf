"""What a drafted token costs at a long context, by view: ``python scripts/bench_view_cost.py --drafter D.gguf``.

One token a pass, choosing anew included; the baseline sees all of a context of 1,024 tokens. What the tokens are and what their
keys were computed from does not matter to the cost: tokens are random, long contexts are filled through a short window.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np

from edgespec.engines.llamacpp.model import LlamaModel
from edgespec.memory.cpu import usable_threads
from edgespec.memory.plan import voting_layers
from edgespec.modelfile.header import read_model
from edgespec.speculation.drafting.view import ViewedSession
from edgespec.speculation.retrieval import Shape, View
from edgespec.speculation.tree import DraftTree

BASE, TOKENS, FILLED = 1024, 128, 512


def seconds(session: ViewedSession, tokens: list[int]) -> float:
    """Median of what one token takes, and on top of it what choosing took per token."""
    spent = []
    for token in tokens:
        began = time.perf_counter()
        session.score(DraftTree(token))
        session.commit([0], [token])
        spent.append(time.perf_counter() - began)
    middle = statistics.median(spent)
    choosing = sum(one - middle for one in spent if one > 2 * middle)
    return middle + choosing / len(tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drafter", type=Path, required=True)
    parser.add_argument("--length", type=int, default=32768)
    parser.add_argument("--cells", type=int, default=1024)
    args = parser.parse_args()
    header = read_model(args.drafter)
    model = LlamaModel(header, None, threads=usable_threads())
    tokens = np.random.default_rng(1).integers(10, model.tokenizer.size, args.length + 8 * TOKENS).tolist()
    session = model.session(context=args.length + 8 * TOKENS, chunk=64, max_nodes=32, voting=voting_layers(header))

    def measure(length: int, view: View) -> float:
        session.rewind(length)
        while session.length < length:
            session.extend(tokens[session.length : min(length, session.length + FILLED)])
            session.flush()
            session.attend([(0, 16), (max(16, session.length - FILLED), session.length)])
        session.attend(None)
        viewed = ViewedSession(session, Shape(view, args.cells))
        seconds(viewed, tokens[length : length + 8])  # what was deferred is evaluated, and the first choice made
        return seconds(viewed, tokens[length : length + TOKENS])

    base = measure(BASE, "full")
    print("| tokens of context | view | ms a drafted token | of the baseline |\n|---|---|---|---|")
    print(f"| {BASE} | full | {1e3 * base:.1f} | 1.00 |", flush=True)
    for view in ("retrieval", "window", "full"):
        took = measure(args.length, view)
        cells = args.length if view == "full" else args.cells
        print(f"| {args.length} | {view}, {cells} cells | {1e3 * took:.1f} | {took / base:.2f} |", flush=True)


if __name__ == "__main__":
    main()
