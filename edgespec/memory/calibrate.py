"""Measured speeds of this machine, cached: direct read bandwidth, and seconds per weight byte by tokens in a pass.

A disk's speed changes with what else uses it, so it is measured anew when the last time is some minutes past.

It measures objects it is handed: a weight file, and a kernel that multiplies a synthetic matrix. A model can so be
judged from its header alone; what a model then really takes refines the policy while it runs.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from edgespec.memory.arena import Arena
from edgespec.memory.layout import PAGE, Run
from edgespec.memory.weightfile import WeightFile
from edgespec.types import FileIdentity, Speeds

__all__ = ["WIDTHS", "calibrated", "measure_bandwidth", "measure_compute"]

WIDTHS = (1, 4, 8, 16, 32, 64)
_PIECE = 16 << 20  # about a segment
_READ_SECONDS = 0.5
_STRIDE = 7  # pieces from one read to the next
_FRESH_SECONDS = 300.0
_TRIES = 3
_log = logging.getLogger(__name__)
Kernel = Callable[[int], float]  # tokens -> seconds per weight byte


def calibrated(cache: Path, key: str, identity: FileIdentity, kernel: Callable[[], Kernel]) -> Speeds:
    """Speeds from the cache, or measured and cached. `key` names what the compute cost depends on."""
    known = _load(cache)
    disk = f"disk {identity.device}"
    machine = f"{platform.machine()} {platform.processor()} {os.cpu_count()} {key}"
    stale = disk not in known or not 0 <= time.time() - known[disk][-1] < _FRESH_SECONDS
    if stale or machine not in known:
        if machine not in known:
            known[machine] = list(measure_compute(kernel()))
        known[disk] = [measure_bandwidth(identity), time.time()]
        _store(cache, known)
    return Speeds(known[disk][0], tuple(zip(WIDTHS, known[machine], strict=True)))


def measure_bandwidth(identity: FileIdentity) -> float:
    """Bytes per second of direct reads as the pager makes them, all over the file, for half a second; the median piece's."""
    piece = min(_PIECE, identity.size // PAGE * PAGE) or PAGE
    places = range(0, max(1, identity.size - piece + 1), piece)
    arena, file = Arena(piece), WeightFile([identity])
    view = arena.take(piece).view
    took: list[float] = []
    try:
        file.settle()  # else writing is what is measured
        while sum(took) < _READ_SECONDS:
            place = places[len(took) * _STRIDE % len(places)]
            began = time.perf_counter()
            file.read(Run(0, place, piece, 0), view)
            took.append(time.perf_counter() - began)
        return min(piece, identity.size) / statistics.median(took)
    finally:
        file.close()
        view.release()
        arena.close()


def measure_compute(kernel: Kernel) -> tuple[float, ...]:
    """Seconds per weight byte at each of WIDTHS; the best of three, the first not counted."""
    costs = []
    for width in WIDTHS:
        kernel(width)
        costs.append(min(kernel(width) for _ in range(_TRIES)))
    return tuple(costs)


def _load(cache: Path) -> dict[str, list[float]]:
    try:
        known = json.loads(cache.read_text())
    except (OSError, ValueError):
        return {}
    good = isinstance(known, dict) and all(
        isinstance(value, list) and value and all(isinstance(item, float) and item > 0 for item in value)
        for value in known.values()
    )
    return known if good else {}


def _store(cache: Path, known: dict[str, list[float]]) -> None:
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        partial = cache.with_suffix(".partial")
        partial.write_text(json.dumps(known, indent=1))
        partial.replace(cache)
    except OSError as error:
        _log.info("the calibration cannot be kept: %s", error.strerror)
