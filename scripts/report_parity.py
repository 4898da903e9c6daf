"""Is the text the target's own? ``python scripts/report_parity.py [--target T.gguf --budget SIZE]``

50 prompts nobody trained on, three samplings, each mode; greedy texts are compared with stock llama-cpp-python's token by token,
sampled ones with those of the same seed without drafting. A difference counts as a near-tie flip only if a plain replay
says that rounding could have turned that very draw.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path
from typing import Any

import edgespec
from edgespec.shipped import embedded_model
from edgespec.types import SamplingParams
from pair import corpus, pydocs

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from parity import Judge, Stock, plain_tokens

SAMPLINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.8, "seed": 1},
    {"temperature": 1.5, "seed": 3, "top_k": 20, "top_p": 0.9},
]
TOKENS = 48


def prompts(count: int) -> list[str]:
    stream = corpus.documents(random.Random(99), pydocs.load(holdout=True))
    found: list[str] = []
    while len(found) < count:
        asked = [text for role, text in next(stream) if role == "user"]
        if asked and len(asked[0]) < 300:
            found.append(asked[0])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, default=embedded_model("target"))
    parser.add_argument("--budget", default="1GiB")
    parser.add_argument("--prompts", type=int, default=50)
    args = parser.parse_args()
    stock, judge, asked = Stock(args.target), Judge(args.target), prompts(args.prompts)
    for mode in ("off", "chain", "tree", "auto"):
        positions = flips = errors = near = 0
        with edgespec.load(args.target, embedded_model("drafter"), budget=args.budget, context=512, speculation=mode) as runtime:
            for options in SAMPLINGS:
                params = SamplingParams(max_tokens=TOKENS, **options)
                for text in asked:
                    messages = [{"role": "user", "content": text}]
                    prompt, done = runtime.prompt_tokens(messages), runtime.chat(messages, max_tokens=TOKENS, **options)
                    wanted = plain_tokens(stock, runtime, messages, params)
                    positions, near = positions + len(wanted), near + done.statistics.near_ties
                    try:
                        flips += judge.flip(prompt, wanted, done.tokens, params) is not None
                    except AssertionError as difference:
                        errors += 1
                        print(f"{mode}: {difference}", file=sys.stderr)
            print(
                f"{mode} ({runtime.paging}): {positions} positions, {near} near-ties met, {flips} of them flipped, "
                f"{errors} other differences",
                flush=True,
            )


if __name__ == "__main__":
    main()
