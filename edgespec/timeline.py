"""Where a run's time went, as spans on tracks, written in Chrome's trace format (chrome://tracing, ui.perfetto.dev)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgespec.errors import UsageError

__all__ = ["OFF", "Timeline"]

_TRACKS = ("decode", "target", "drafter", "disk")


class Timeline:
    """Collects spans from any thread; one that is not `enabled` costs a comparison a span."""

    def __init__(self, *, enabled: bool = True) -> None:
        self.enabled = enabled
        self._spans: list[tuple[str, str, float, float]] = []

    def add(self, track: str, start: float, end: float, name: str, *values: object) -> None:
        """One span between two readings of `time.perf_counter`; `name` is formatted with `values` only where it is kept."""
        if self.enabled:
            self._spans.append((track, name.format(*values), start, end))

    @contextmanager
    def span(self, track: str, name: str) -> Iterator[None]:
        """The block as one span."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add(track, start, time.perf_counter(), name)

    def events(self) -> list[dict[str, Any]]:
        """Trace events, times in microseconds; tracks become threads of one process."""
        number = {track: index for index, track in enumerate(_TRACKS)}
        names = [
            {"ph": "M", "name": "thread_name", "pid": 1, "tid": tid, "args": {"name": track}} for track, tid in number.items()
        ]
        return names + [
            {"ph": "X", "name": name, "pid": 1, "tid": number[track], "ts": 1e6 * start, "dur": 1e6 * (end - start)}
            for track, name, start, end in self._spans
        ]

    def write(self, path: Path) -> None:
        """Raises UsageError when the file cannot be written."""
        try:
            path.write_text(json.dumps({"traceEvents": self.events(), "displayTimeUnit": "ms"}))
        except OSError as error:
            raise UsageError(f"{path} cannot be written ({error.strerror}): choose another --trace") from error


OFF = Timeline(enabled=False)
