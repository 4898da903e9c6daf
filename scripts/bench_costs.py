"""Predicted seconds a round against measured ones, and the measured rate against the ceiling, under kernel memory caps.

python scripts/bench_costs.py --target T.gguf --drafter D.gguf --disk 400MB --out costs.json

Every run is a process of its own with the files cold. Predictions are by costs calibrated under the same cap and disk in the same
run of this script, nothing learned; trees are filled up with wrong guesses to have exactly as many rows as asked for. The table
goes to stdout, the records to --out.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from edgespec.bench.capped import group, make_cold
from edgespec.bench.prompts import PROMPTS
from edgespec.engines.base import Session
from edgespec.loading import Loaded, Options, Prepared, load_models, prepare
from edgespec.memory.arena import Arena
from edgespec.memory.budget import parse_share, parse_size
from edgespec.memory.costs import SHORT_CONTEXT, Corrections
from edgespec.memory.layout import Run
from edgespec.memory.plan import DRAFT_CHUNK, MOST_NODES
from edgespec.memory.weightfile import WeightFile
from edgespec.meter import Meter
from edgespec.speculation.decoder import Decoder
from edgespec.speculation.drafting.base import Drafter, NoDrafter, Worth
from edgespec.speculation.drafting.model import ModelDrafter
from edgespec.speculation.policy import FixedPolicy
from edgespec.text.prompt import Prompt, Prompter
from edgespec.types import FileIdentity, Round, SamplingParams, Statistics

CONTEXT, OVERHEAD = 512, 1.02  # of the cap over the budget, as in `edgespec bench`
UNLIKELY = -20.0
PIECE = 32 << 20


class Padded(ModelDrafter):
    """Fills the tree up with guesses that nobody makes."""

    def step(self, worth: Worth) -> bool:
        return super().step(worth) or self._pad(worth)

    def _pad(self, worth: Worth) -> bool:
        if not worth(self._drafted, 0.0):
            return False
        token = next(token for token in itertools.count() if self._tree.child(0, token) is None)
        self._tree.add(0, token, UNLIKELY)
        return True


@dataclass(frozen=True)
class Job:
    """What one process measures. `disk` is in bytes a second; 0: as it is."""

    target: str
    drafter: str
    cap: int
    disk: int
    rows: int
    rounds: int


def plan_of(job: Job) -> Prepared:
    """Of the pair whatever the rows, so that all rows stream the same; by calibrated costs alone."""
    prepared = prepare(Options(job.target, job.drafter, int(job.cap / OVERHEAD), CONTEXT, strict=True))
    return replace(prepared, costs=replace(prepared.costs, scale=1.0))


def measure(job: Job) -> dict[str, Any]:
    """In a process under its cap: rounds of trees with as many rows as asked for, and what they were predicted to take."""
    prepared = plan_of(job)
    loaded = load_models(prepared)
    plan = prepared.plan
    main = loaded.target.session(context=plan.context, chunk=plan.chunk, max_nodes=plan.max_nodes)
    assert loaded.drafter is not None
    small = loaded.drafter.session(context=plan.context, chunk=DRAFT_CHUNK, max_nodes=plan.max_nodes)
    seconds, sweeps, cells = list[float](), list[float](), list[int]()
    spent = best = 0.0
    for prompt in PROMPTS:
        meter, began = Meter(loaded, FixedPolicy(job.rows - 1), Statistics(), Corrections()), time.perf_counter()
        for done in rounds_of(loaded, main, small, job, prompt):
            now = time.perf_counter()
            meter.add(done)
            if done.nodes == job.rows - 1:
                seconds.append(now - began)
                sweeps.append(done.sweep_seconds)
                cells.append(max(0, main.length - SHORT_CONTEXT))
            began = now
        told = meter.statistics()
        spent += told.decode_seconds
        best += (told.tokens - 1) / told.ceiling_tokens_per_second
    costs, usual = prepared.costs, int(median(cells))
    result = {
        "measured": median(seconds), "predicted": costs.round(job.rows, usual), "counted": len(seconds),
        "measured_sweep": median(sweeps), "predicted_sweep": costs.sweep(job.rows, usual),
        "computing": costs.computing(job.rows, usual), "reading": costs.disk.seconds(costs.streamed_bytes),
        "calibrated": asdict(costs.disk), "streamed": costs.streamed_bytes, "of_ceiling": best / spent,
    }  # fmt: skip
    loaded.close()
    return result


def rounds_of(loaded: Loaded, main: Session, small: Session, job: Job, prompt: Prompt) -> Iterator[Round]:
    """Of one answer, the first, which ends the prompt, included."""
    tokenizer = loaded.target.tokenizer
    tokens = Prompter(loaded.prepared.target).tokens(prompt, tokenizer)
    main.rewind(0)
    small.rewind(0)
    padded = Padded(small, vocabulary=tokenizer.size, leaves=MOST_NODES)
    drafter: Drafter = padded if job.rows > 1 else NoDrafter()
    drafter.extend(tokens[:-1])
    sampler = loaded.target.sampler(SamplingParams())
    decoder = Decoder(main, drafter, FixedPolicy(job.rows - 1), sampler, lambda token: False)
    yield from itertools.islice(decoder.rounds(tokens, CONTEXT), job.rounds + 1)
    sampler.close()


def capped_run(job: Job, cache: str) -> dict[str, Any]:
    """`measure` in a process under the cap, the disk slowed down if asked."""
    make_cold(Path(job.target), Path(job.drafter))
    with group(job.cap, disk=Path(job.target), bytes_per_second=job.disk or None) as made:
        done = subprocess.run(
            made.command([sys.executable, __file__, "--job", json.dumps(asdict(job))]), check=True, stdout=subprocess.PIPE,
            text=True, env=os.environ | {"EDGESPEC_CACHE": cache},
        )  # fmt: skip
        result: dict[str, Any] = json.loads(done.stdout)
        return asdict(job) | result | {"peak": made.peak}


def all_runs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every setting of every run with a calibration of its own."""
    size = os.path.getsize(args.target)
    shares = [parse_share(cap) for cap in args.caps.split(",")]
    caps = [int(size * share) if share else parse_size(cap) for cap, share in zip(args.caps.split(","), shares, strict=True)]
    settings = [(cap, 0) for cap in caps] + ([(caps[-1], parse_size(args.disk))] if args.disk else [])
    read_once(args.target)
    for _ in range(args.runs):
        for cap, disk in settings:
            with tempfile.TemporaryDirectory(prefix="edgespec-costs-", dir=args.cache) as cache:
                for rows in map(int, args.rows.split(",")):
                    yield capped_run(Job(args.target, args.drafter, cap, disk, rows, args.rounds), cache)
                    print(".", end="", file=sys.stderr, flush=True)


def read_once(path: str) -> None:
    """A virtual machine's host may cache what was read before: then it has cached all of it when calibration begins."""
    identity = FileIdentity.of(path, os.stat(path))
    file, piece = WeightFile([identity]), Arena(PIECE).take(PIECE)
    for offset in range(0, identity.size, PIECE):
        file.read(Run(0, offset, PIECE, 0), piece.view)
    file.close()


def table(records: list[dict[str, Any]], size: int) -> str:
    lines = [
        "| cap | disk | rows | predicted, s | measured, s | measured / predicted | range | rate, of ceiling |",
        "|---|---|---|---|---|---|---|---|",
    ]
    keys = dict.fromkeys((record["cap"], record["disk"], record["rows"]) for record in records)
    for cap, disk, rows in keys:
        runs = [one for one in records if (one["cap"], one["disk"], one["rows"]) == (cap, disk, rows)]
        ratios = [one["measured"] / one["predicted"] for one in runs]
        lines.append(
            f"| {cap / size:.0%} | {f'{disk / 1e6:.0f} MB/s' if disk else 'as it is'} | {rows} | "
            f"{median(one['predicted'] for one in runs):.3f} | {median(one['measured'] for one in runs):.3f} | "
            f"{median(ratios):.0%} | {min(ratios):.0%}-{max(ratios):.0%} | {median(one['of_ceiling'] for one in runs):.0%} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target")
    parser.add_argument("--drafter")
    parser.add_argument("--caps", default="65%,38%", help="memory caps, sizes or shares of the target's file")
    parser.add_argument("--disk", help="slow the disk down to so many bytes a second, at the last cap, as well")
    parser.add_argument("--rows", default="1,8,16,32")
    parser.add_argument("--rounds", type=int, default=8, help="of each prompt")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cache", help="folder for calibrations; direct reads must work there")
    parser.add_argument("--out", type=Path, default=Path("costs.json"))
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        print(json.dumps(measure(Job(**json.loads(args.job)))))
        return
    records = list(all_runs(args))
    args.out.write_text(json.dumps(records, indent=1) + "\n")
    print(table(records, os.path.getsize(args.target)))


if __name__ == "__main__":
    main()
