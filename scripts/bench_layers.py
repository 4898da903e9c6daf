"""Drafting with the target's resident layers against plain paging under the same budget, no drafter at all:
``python scripts/bench_layers.py --target T.gguf --budget 260MiB``.

Every run is a process of its own, as the two plan the memory differently; greedy, pairs whose order is swapped.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

from bench_stages import CONTEXT, Sides, texts
from interleaved import Bench

from edgespec.loading import Options
from edgespec.types import Stage

STAGES: dict[str, tuple[Stage, ...]] = {"layers": ("layers",), "ngram,layers": ("ngram", "layers"), "plain": ()}


def rate(args: argparse.Namespace, side: str, text: str) -> tuple[float, float]:
    """Tokens per second and per pass of one run in this process."""
    bench = Bench(Options(args.target, None, args.budget, CONTEXT, stages=STAGES[side]), args.tokens)
    sides = Sides(bench)
    return bench.rate(bench.encode(texts()[text]), sides.staged if "ngram" in STAGES[side] else sides.plain)


def rate_elsewhere(args: argparse.Namespace, side: str, text: str) -> tuple[float, float]:
    command = [sys.executable, __file__, "--target", args.target, "--budget", args.budget, "--tokens", str(args.tokens)]
    done = subprocess.run([*command, "--one", side, "--texts", text], check=True, stdout=subprocess.PIPE, text=True)
    tokens_per_second, tokens_per_pass = done.stdout.split()
    return float(tokens_per_second), float(tokens_per_pass)


def row(args: argparse.Namespace, text: str, side: str) -> str:
    ratios, rates = [], []
    for number in range(args.pairs):
        done = {name: rate_elsewhere(args, name, text) for name in sorted([side, "plain"], reverse=bool(number % 2))}
        ratios.append(done[side][0] / done["plain"][0])
        rates.append(done[side])
    fast, passed = (statistics.median(column) for column in zip(*rates, strict=True))
    cells = f"{statistics.median(ratios):.2f} | {min(ratios):.2f}-{max(ratios):.2f} | {args.pairs} | {fast:.2f} | {passed:.2f}"
    return f"| {text} | {side} | {cells} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=lambda path: str(Path(path).resolve()), required=True)
    parser.add_argument("--budget", required=True)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--texts", default="repeating,documentation,code")
    parser.add_argument("--one", choices=STAGES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(*rate(args, args.one, args.texts))
        return
    print("| text | stages | drafts / plain, median | range | pairs | tokens/s | tokens/pass |\n" + "|---" * 7 + "|", flush=True)
    for text in args.texts.split(","):
        for side in ("layers", "ngram,layers"):
            print(row(args, text, side), flush=True)


if __name__ == "__main__":
    main()
