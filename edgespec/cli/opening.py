"""A runtime as the commands use one: loaded with progress shown, its notes said, its trace written at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgespec import runtime as api
from edgespec.cli.console import interruptible, progress, say
from edgespec.cli.models import located
from edgespec.errors import UsageError
from edgespec.running import announced
from edgespec.timeline import OFF, Timeline

__all__ = ["opened"]


@contextmanager
def opened(trace: Path | None = None, **options: Any) -> Iterator[api.Runtime]:
    """`edgespec.load(**options)`, closed at the end. Raises what that does."""
    if trace and not trace.parent.is_dir():
        raise UsageError(f"{trace.parent} is not a folder: choose another --trace")
    timeline = Timeline() if trace else OFF
    options["target"], options["drafter"] = located(options.get("target"), options.get("drafter"))
    with progress() as status:
        runtime = api.load(**options, progress=status, timeline=timeline)
    try:
        for note in runtime.notes:
            say(note)
        with announced(runtime.header.name, runtime.plan.budget):
            yield runtime
    finally:
        with interruptible(runtime):  # a second Ctrl-C must not break the closing in half
            runtime.close()
            if trace:
                timeline.write(trace)
