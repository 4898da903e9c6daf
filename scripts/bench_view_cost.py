"""What a drafted token costs at a long context, by view: ``python scripts/bench_view_cost.py --drafter D.gguf``.

One token a pass, choosing anew included; the baseline sees all of a context of 1,024 tokens. What the tokens are and what their
keys were computed from does not matter to the cost: tokens are random, long contexts are filled through a short window.
"In a file" keeps in memory what is looked at alone, as a plan does.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np

from edgespec.engines.llamacpp.model import LlamaModel
from edgespec.engines.llamacpp.session import LlamaSession
from edgespec.memory.cpu import usable_threads
from edgespec.memory.plan import MOST_NODES, resident_cells, voting_layers
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


def measure(session: LlamaSession, tokens: list[int], length: int, shape: Shape) -> float:
    session.rewind(length)
    while session.length < length:
        session.extend(tokens[session.length : min(length, session.length + FILLED)])
        session.flush()
        session.attend([(0, 16), (max(16, session.length - FILLED), session.length)])
    if session.spill is None:
        session.attend(None)
    viewed = ViewedSession(session, shape)
    seconds(viewed, tokens[length : length + 8])  # what was deferred is evaluated, and the first choice made
    return seconds(viewed, tokens[length : length + TOKENS])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drafter", type=Path, required=True)
    parser.add_argument("--length", type=int, default=32768)
    parser.add_argument("--cells", type=int, default=1024)
    args = parser.parse_args()
    model = LlamaModel(read_model(args.drafter), None, threads=usable_threads())
    context = args.length + 8 * TOKENS
    tokens = np.random.default_rng(1).integers(10, model.tokenizer.size, context).tolist()

    def session(resident: int = 0) -> LlamaSession:
        voting = voting_layers(model.header)
        return model.session(context=context, chunk=64, max_nodes=MOST_NODES, voting=voting, resident=resident)

    views: tuple[View, ...] = ("retrieval", "window")
    whole = session()
    base = measure(whole, tokens, BASE, Shape("full", args.cells))
    print("| tokens of context | view | ms a drafted token | of the baseline |\n|---|---|---|---|")
    print(f"| {BASE} | full | {1e3 * base:.1f} | 1.00 |", flush=True)

    def report(used: LlamaSession, view: View, note: str) -> None:
        took = measure(used, tokens, args.length, Shape(view, args.cells))
        print(f"| {args.length} | {view}, {note} | {1e3 * took:.1f} | {took / base:.2f} |", flush=True)

    partly = session(resident_cells(args.cells, MOST_NODES))
    for view in views:
        report(partly, view, f"{args.cells} cells, the others in a file")
    partly.close()
    for view in views:
        report(whole, view, f"{args.cells} cells, all in memory")
    report(whole, "full", f"{args.length} cells")


if __name__ == "__main__":
    main()
