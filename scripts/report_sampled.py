"""Does sampled text depend on drafting? ``python scripts/report_sampled.py [--answers 2000 --greedy 300]``

Each answer of the embedded pair is drawn twice with the same seed, without drafting and, after another generation, with it; many
with a beginning whose keys and values were kept. A difference counts as a near-tie if a plain replay says that rounding
could have turned that very draw, and the drafted answer counted one too.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import edgespec
from edgespec.shipped import embedded_model

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from parity import Judge
from sampled import answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=2000, help="sampled, half of them at temperature 1, half at 0.8")
    parser.add_argument("--greedy", type=int, default=300, help="greedy answers")
    parser.add_argument("--tokens", type=int, default=60, help="of an answer at most")
    parser.add_argument("--speculation", default="tree")
    args = parser.parse_args()
    judge = Judge(embedded_model("target"))
    with edgespec.load(budget="1GiB", context=512, conversations=8, speculation=args.speculation, threads=1) as model:
        for temperature, count in ((1.0, args.answers // 2), (0.8, args.answers - args.answers // 2), (0.0, args.greedy)):
            report(model, judge, count, temperature, args.tokens)
    judge.close()


def report(model: edgespec.Runtime, judge: Judge, count: int, temperature: float, tokens: int) -> None:
    positions = near = accepted = 0
    differ: list[bool] = []
    for one in answers(model, judge, count, temperature=temperature, max_tokens=tokens):
        positions += one.drafted.statistics.tokens
        near += one.drafted.statistics.near_ties
        accepted += one.drafted.statistics.accepted
        differ += [] if one.counted is None else [one.counted]
    print(
        f"temperature {temperature}: {count} answers, {positions} positions, {accepted} accepted guesses; {len(differ)} answers "
        f"differ, {sum(differ)} of them at a counted near-tie; {near} near-ties ({near / max(1, positions):.2%} of positions, "
        f"rounding {judge.model.rounding} logit)",
        flush=True,
    )


if __name__ == "__main__":
    main()
