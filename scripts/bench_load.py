"""Loading under a cap against reading the file once, in pairs: ``python scripts/bench_load.py --target T.gguf``.

Both start with the file cold in this machine's page cache; the read is direct, in the pager's pieces, into huge pages.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

from edgespec.bench import capped
from edgespec.memory.arena import Arena
from edgespec.memory.layout import PAGE, Run
from edgespec.memory.weightfile import WeightFile
from edgespec.modelfile.header import read_model

PIECE = 64 << 20


def read_once(path: Path) -> float:
    """Seconds to read the file once."""
    header = read_model(path)
    file, arena, size = WeightFile(header.files), Arena(PIECE), header.files[0].size
    view = arena.take(PIECE).view
    started = time.perf_counter()
    for offset in range(0, size, PIECE):
        file.read(Run(0, offset, -(-min(PIECE, size - offset) // PAGE) * PAGE, 0), view)
    spent = time.perf_counter() - started
    file.close()
    view.release()
    arena.close()
    return spent


def load(path: Path, cap: int) -> tuple[float, float]:
    """Seconds until a target is loaded under `cap`, and the kernel's peak as a share of the cap."""
    command = [
        sys.executable,
        "-m",
        "edgespec",
        "run",
        "Hi",
        "--target",
        str(path),
        "--context",
        "512",
        "--max-tokens",
        "1",
        "--json",
    ]
    done = capped.run([*command, "--strict", "--budget", str(int(cap / 1.02))], cap)
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(json.loads(done.stdout)["seconds"]["load"]), done.peak / cap


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()
    size = args.target.stat().st_size
    for share in (0.88, 0.60, 0.38):
        pairs = []
        for _ in range(args.pairs):
            capped.make_cold(args.target)
            once = read_once(args.target)
            capped.make_cold(args.target)
            seconds, peak = load(args.target, int(share * size))
            pairs.append((seconds / once, seconds, once, peak))
        ratio, seconds, once, _ = (statistics.median(column) for column in zip(*pairs, strict=True))
        worst = max(pair[3] for pair in pairs)
        print(
            f"cap {share:.0%}: load {seconds:.2f} s, reading once {once:.2f} s, ratio {ratio:.2f}, peak / cap {worst:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
