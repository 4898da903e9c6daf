"""`edgespec demo`: two minutes, offline: a model larger than its memory, stock and edgespec side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from edgespec.cli.console import say, write
from edgespec.extras import extra
from edgespec.memory.budget import format_size

if TYPE_CHECKING:
    from edgespec.bench.demo import Progress

__all__ = ["demo"]


def demo() -> None:
    """Show stock and edgespec on a 1 GB model inside 620 MiB, and clean up."""
    with extra("models"):
        from edgespec.bench.demo import CAP, cap_or_reason, pair, race, verdict
    reason = cap_or_reason()
    if reason:
        say(f"no kernel cap: {reason}; edgespec keeps to its budget by itself, stock may use all memory and so be faster")
    else:
        say(f"both run under a kernel memory cap of {format_size(CAP)}, page cache included")
    console = Console(stderr=True)
    with pair(say) as (target, drafter), Live(console=console, refresh_per_second=5, transient=not console.is_terminal) as live:
        stock, ours = race(target, drafter, lambda runners: live.update(_bars(runners)), capped=reason is None)
    write(verdict(stock, ours) + "\n")


def _bars(runners: list[Progress]) -> Table:
    """A row each: memory against the cap, tokens so far, and their rate."""
    table = Table.grid(padding=(0, 2))
    fastest = max([runner.rate for runner in runners] + [1.0])
    for runner in runners:
        table.add_row(
            runner.name,
            "memory", ProgressBar(total=runner.cap, completed=runner.usage, width=20), format_size(runner.usage),
            "tokens/s", ProgressBar(total=fastest, completed=runner.rate, width=20), f"{runner.rate:.1f}",
            f"{len(runner.tokens)} tokens",
        )  # fmt: skip
    return table
