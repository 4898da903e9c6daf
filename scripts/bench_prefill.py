"""The first token of a long prompt against its bound: ``python scripts/bench_prefill.py --target T.gguf --drafter D.gguf``.

The bound is what every sweep of the prompt must read over the measured bandwidth, plus the measured compute of all its
tokens with the weights in memory. No kernel cap; every prompt is new to the runtime.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import edgespec
from edgespec.loading import Options, prepare

CONTEXT = 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--drafter", type=Path, required=True)
    parser.add_argument("--share", type=float, default=0.65, help="of the target's file, as the budget")
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    budget = str(int(args.share * args.target.stat().st_size))
    prepared = prepare(Options(args.target, args.drafter, budget, CONTEXT))
    with edgespec.load(args.target, args.drafter, budget=budget, context=CONTEXT) as runtime:
        sweeps = -(-args.tokens // runtime.plan.chunk)
        costs = prepared.costs
        reading = sweeps * costs.disk.seconds(costs.streamed_bytes)
        bound = reading + costs.computing(args.tokens)
        ratios = []
        for run in range(args.runs):
            prompt = [300 + run + place * 7 % 2500 for place in range(args.tokens)]
            ratios.append(runtime.generate(prompt, max_tokens=2).statistics.prefill_seconds / bound)
    print(
        f"{args.tokens} tokens, {sweeps} sweeps: bound {bound:.2f} s, {reading:.2f} of it reading; measured / bound "
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f}, {args.runs} runs)"
    )


if __name__ == "__main__":
    main()
