"""`edgespec plan`: where every byte goes, before anything is loaded."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from edgespec.cli import options as opt
from edgespec.cli.console import progress, say, write
from edgespec.cli.models import located
from edgespec.cli.report import expectation
from edgespec.loading import Options, expected, prepare
from edgespec.memory.budget import format_size
from edgespec.strategy import DRAFT_CELLS, SpeculationOptions
from edgespec.types import Expected, MemoryPlan

__all__ = ["plan"]


def plan(
    target: opt.Target = None,
    drafter: opt.Drafter = None,
    budget: opt.Budget = None,
    context: opt.Context = None,
    kv_type: opt.KvType = "f16",
    threads: opt.Threads = None,
    stages: opt.Stages = None,
    draft_view: opt.DraftView = "full",
    draft_cells: opt.DraftCells = DRAFT_CELLS,
    as_object: opt.Json = False,
) -> None:
    """Show the memory plan and the speed to expect; refuse an impossible budget with the minimum."""
    asked: Any = opt.stage_list(stages), draft_view
    guessing = SpeculationOptions(stages=asked[0], draft_view=asked[1], draft_cells=draft_cells)
    found, small = located(target, drafter)
    options = Options(found, small, budget, context, threads, kv_type=kv_type, stages=guessing.wanted, draft_cells=guessing.cells)
    with progress() as status:
        prepared = prepare(options, status)
    rates = expected(prepared)
    for note in prepared.notes:
        say(note)
    if as_object:
        fields = dataclasses.asdict(prepared.plan) | {
            "total": prepared.plan.total,
            "ceiling_tokens_per_second": rates.plain,  # without drafts
            "expected_tokens_per_second": dataclasses.asdict(rates),
            "costs": dataclasses.asdict(prepared.costs),
        }
        write(json.dumps(fields) + "\n")
    else:
        write("\n".join(_lines(prepared.plan, rates)) + "\n")


def _lines(made: MemoryPlan, rates: Expected) -> list[str]:
    rows = [(item.name, format_size(item.size), item.note) for item in made.items]
    rows.append(("total", format_size(made.total), f"of {format_size(made.budget)}; the minimum is {format_size(made.minimum)}"))
    lines = [f"{name:<28}{size:>12}  {note}".rstrip() for name, size, note in rows]
    if not made.streamed:
        lines.append("everything is resident: nothing is read from disk while generating")
    else:
        lines.append(
            f"streamed in every sweep: {format_size(made.streamed_bytes)} in {len(made.streamed)} of {made.segments} segments"
        )
    return [*lines, f"to expect: {expectation(rates)}"]
