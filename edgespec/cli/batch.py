"""`edgespec batch`: many prompts from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import MofNCompleteColumn, TimeRemainingColumn

from edgespec.batch import Batch
from edgespec.cli import options as opt
from edgespec.cli.console import bar, interruptible, say
from edgespec.cli.opening import opened

__all__ = ["batch"]

Source = Annotated[Path, typer.Argument(help="JSON lines, each with a prompt or messages, and sampling options.")]
Out = Annotated[Path, typer.Argument(help="Answers, one line each; what it has already is not asked again.")]


def batch(
    source: Source,
    out: Out,
    target: opt.Target = None,
    drafter: opt.Drafter = None,
    budget: opt.Budget = None,
    context: opt.Context = None,
    speculation: opt.Mode = "auto",
    stages: opt.Stages = None,
    datastore: opt.Datastore = None,
    kv_type: opt.KvType = "f16",
    pages: opt.Pages = "auto",
    threads: opt.Threads = None,
    strict: opt.Strict = False,
) -> None:
    """Answer every line of a file; killed, it goes on where it was. Failed lines say why."""
    work = Batch(source, out)
    left = len(work.tasks) - len(work.done)
    if work.done:
        say(f"{len(work.done)} of {len(work.tasks)} lines are answered already")
    if not left:
        return
    opening = opened(**opt.for_loading(locals()))
    failed = 0
    with opening as runtime, interruptible(runtime), bar(MofNCompleteColumn(), TimeRemainingColumn()) as progress:
        task = progress.add_task("answering", total=len(work.tasks), completed=len(work.done))
        for answer in work.run(runtime):
            failed += "error" in answer
            progress.advance(task)
    if failed:
        say(f"{failed} of {left} lines could not be answered: their lines in {out} say why")
        raise typer.Exit(5)
