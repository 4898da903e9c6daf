"""Drafting with the target's resident layers against plain paging under the same budget, no drafter at all:
``python scripts/bench_layers.py --target T.gguf --budget 260MiB``.

Every run is a process of its own, as both plan the memory differently; greedy, pairs whose order is swapped.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench_stages import texts

SIDES = {"layers": ["--stages", "layers"], "ngram,layers": ["--stages", "ngram,layers"], "plain": ["--speculation", "off"]}


def run(args: argparse.Namespace, side: str, prompt: str) -> dict[str, Any]:
    command = [
        sys.executable, "-m", "edgespec", "run", "--raw", "--json", "--target", args.target, "--budget", args.budget,
        "--context", "1536", "--max-tokens", str(args.tokens), *SIDES[side], prompt,
    ]  # fmt: skip
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


def row(args: argparse.Namespace, text: str, side: str) -> str:
    prompt, ratios, rates, passed = texts()[text], [], [], []
    for number in range(args.pairs):
        done = {name: run(args, name, prompt) for name in sorted([side, "plain"], reverse=bool(number % 2))}
        ratios.append(done[side]["tokens_per_second"] / done["plain"]["tokens_per_second"])
        rates.append(done[side]["tokens_per_second"])
        passed.append(done[side]["tokens_per_pass"])
    middle = [statistics.median(column) for column in (ratios, rates, passed)]
    cells = f"{middle[0]:.2f} | {min(ratios):.2f}-{max(ratios):.2f} | {args.pairs} | {middle[1]:.2f} | {middle[2]:.2f}"
    return f"| {text} | {side} | {cells} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=lambda path: str(Path(path).resolve()), required=True)
    parser.add_argument("--budget", required=True)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--texts", default="repeating,documentation,code")
    args = parser.parse_args()
    print("| text | stages | drafts / plain, median | range | pairs | tokens/s | tokens/pass |\n" + "|---" * 7 + "|", flush=True)
    for text in args.texts.split(","):
        for side in ("layers", "ngram,layers"):
            print(row(args, text, side), flush=True)


if __name__ == "__main__":
    main()
