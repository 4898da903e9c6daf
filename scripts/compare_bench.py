"""Is it slower? Compare two benches, or a bench with the baseline of a release, and end with 1 if anything is slower.

    edgespec bench --target T.gguf --drafter D.gguf --modes stock,off,tree,auto --out new.json
    python scripts/compare_bench.py docs/baseline.json new.json
    python scripts/compare_bench.py --keep docs/baseline.json new.json    # makes new.json the baseline of this commit

Rates are ratios to stock in the same round. Medians within 5 % are the same; beyond that, a configuration is slower (or faster)
if its best round is worse than the other's worst, and "slower?" where rounds overlap: then run more of them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from edgespec.bench.baseline import Row, baseline, compare, rows_of


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="a baseline, or what `edgespec bench --out` wrote")
    parser.add_argument("new", type=Path)
    parser.add_argument("--keep", action="store_true", help="write `old` anew, as the baseline that `new` gives")
    args = parser.parse_args()
    if args.keep:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
        args.old.write_text(json.dumps(baseline(json.loads(args.new.read_text()), commit.strip()), indent=1) + "\n")
        return 0
    comparisons = compare(rows_of(args.old), rows_of(args.new))
    print("| cap | configuration | old | new | new / old | tokens a pass | |\n|---|---|---|---|---|---|---|")
    for one in comparisons:
        print(
            f"| {one.new.cap:.0%} | {one.new.name} | {spread(one.old)} | {spread(one.new)} | {one.ratio:.2f} | "
            f"{one.old.tokens_per_pass} / {one.new.tokens_per_pass} | {one.verdict} |"
        )
    return int(any(one.verdict == "slower" for one in comparisons))


def spread(row: Row) -> str:
    return f"{row.median:.2f}x ({min(row.ratios):.2f}-{max(row.ratios):.2f})"


if __name__ == "__main__":
    sys.exit(main())
