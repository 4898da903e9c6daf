"""Ways to guess and to judge, by task: ``python scripts/bench_methods.py --target T.gguf --drafter D.gguf``.

Trees of fixed size, sampled at temperature 0.8 (lossy rules included, marked as such), then stages and views at
temperature 0; tokens a pass and a second, means over the task's prompts. Ends of text end an answer.
"""

from __future__ import annotations

import argparse
import json.decoder
from pathlib import Path
from typing import Any

import edgespec
from edgespec.speculation.verify import LOSSY, METHODS
from pair import pydocs

CONTEXT, TOKENS = 1024, 48
SAMPLED = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.0}


def tasks() -> dict[str, list[str]]:
    pages = [text[:900] for text in pydocs.load(holdout=True).texts if len(text) > 2000][:4]
    source = Path(json.decoder.__file__).read_text()
    return {
        "stories": [f"It was a cold evening, and {name} was {mood}." for name in ("Anna", "Tom") for mood in ("happy", "sad")],
        "documentation": pages,
        "code": [source[start : start + 1200] for start in (0, 3000, 6000, 9000)],
    }


def row(name: str, options: dict[str, Any], pair: dict[str, Any], sampling: dict[str, Any]) -> str:
    cells = []
    with edgespec.load(**pair, context=CONTEXT, **{"speculation": "tree"} | options) as model:
        for prompts in tasks().values():
            done = [
                model.generate(prompt, max_tokens=TOKENS, seed=seed, **sampling).statistics
                for seed, prompt in enumerate(prompts, 1)
            ]
            made, passes = sum(one.tokens for one in done), sum(one.passes for one in done)
            seconds = sum(one.decode_seconds for one in done)
            cells.append(f"{made / passes:.2f} | {(made - len(done)) / seconds:.1f}")
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--drafter", type=Path, required=True)
    parser.add_argument("--budget", required=True)
    args = parser.parse_args()
    pair = {"target": args.target, "drafter": args.drafter, "budget": args.budget}
    drafter: dict[str, Any] = {"stages": ["drafter"]}
    print("| method | " + " | ".join(f"{task}, tokens/pass | tokens/s" for task in tasks()) + " |")
    print("|---" * (1 + 2 * len(tasks())) + "|", flush=True)
    plain = {"speculation": "off"}
    print(row("none, temperature 0.8", plain, pair, SAMPLED), flush=True)
    print(row("none, greedy", plain, pair, {}), flush=True)
    for name in METHODS:
        print(row(f"`--verify {name}`, temperature 0.8", drafter | {"verify": name}, pair, SAMPLED), flush=True)
    for name in LOSSY:
        print(row(f"`--lossy {name}`, temperature 0.8", drafter | {"lossy": name}, pair, SAMPLED), flush=True)
    for stages in (["drafter"], ["ngram"], ["ngram", "drafter"], ["layers"], ["ngram", "layers"]):
        print(row(f"`--stages {','.join(stages)}`, greedy", {"stages": stages}, pair, {}), flush=True)
    for view in ("window", "retrieval"):
        views = {"draft_view": view, "draft_cells": 256}
        print(row(f"`--draft-view {view} --draft-cells 256`, greedy", drafter | views, pair, {}), flush=True)


if __name__ == "__main__":
    main()
