"""What passes and reads cost on this machine, measured once and kept: the numbers behind `memory.costs`.

It measures objects it is handed: a weight file, and a sample of a model that can run passes. A model can so be judged from
its header alone. A disk's speed changes with what else uses it, so it is measured anew when the last time is some minutes past.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from edgespec.memory.arena import Arena
from edgespec.memory.costs import PassCosts, ReadCosts, Table
from edgespec.memory.layout import PAGE, Run
from edgespec.memory.learned import recall, remember
from edgespec.memory.weightfile import WeightFile
from edgespec.types import FileIdentity, Tables

__all__ = [
    "WIDTHS", "Measured", "Sampled", "measure_bandwidth", "measure_beside", "measure_passes", "pass_costs", "read_costs",
]  # fmt: skip

WIDTHS = (1, 4, 8, 12, 16, 24, 32)
_CROWDED = (1, 16)  # widths at which a longer context is timed
_BESIDE_ROWS = 8  # of the passes that reading is measured beside
_PIECE = 16 << 20  # about a segment
_READ_SECONDS = 0.8
_STRIDE = 7  # pieces from one read to the next
_FRESH_SECONDS = 300.0
_TRIES, _FEWEST = 5, 2
_PATIENCE = 0.5  # seconds for the passes of one width: a busy machine may take any time for them
_STEADY = 1.5  # worst pass over best, for most widths


class Measured(Protocol):
    """Seconds of one pass: of a layer on average, and of what belongs to no layer."""

    @property
    def layer(self) -> float: ...

    @property
    def core(self) -> float: ...


class Sampled(Protocol):
    """Some layers of a model; `crowd` fills `cells` more of the context that passes go over."""

    @property
    def cells(self) -> int: ...

    def run(self, rows: int) -> Measured: ...

    def crowd(self) -> None: ...


def pass_costs(cache: Path, key: str, layers: int, share: float, measure: Callable[[], Tables]) -> PassCosts:
    """Of a model of `layers`, from the cache or measured. `share` is a layer's size, on average, over one of the sample's.

    What was measured while the machine was busy with other things is measured again some minutes later.
    """
    known = recall(cache, key)
    if not (all(known.get(name) for name in ("layer", "core", "cell")) and _holds(known.get("spread", {}))):
        known = measure()
        remember(cache, key, known)

    def table(name: str, scale: float) -> Table:
        return tuple((rows, scale * seconds) for rows, seconds in sorted(known[name].items()))

    return PassCosts(layers, table("layer", share), table("core", 1.0), table("cell", 1.0))


def _holds(spread: dict[int, float]) -> bool:
    return len(spread) == 2 and (spread[0] < _STEADY or _fresh(spread[1]))


def _fresh(when: float) -> bool:
    return 0 <= time.time() - when < _FRESH_SECONDS


def measure_passes(sample: Sampled) -> Tables:
    """Seconds by rows: of a layer, of what belongs to none, of a layer's further cell of context; and in `spread` how much
    passes vary, and when that was."""
    short = {rows: _usual(sample, rows) for rows in WIDTHS}
    sample.crowd()
    crowded = {rows: _usual(sample, rows) for rows in _CROWDED}
    return {
        "layer": {rows: layer for rows, (layer, _, _) in short.items()},
        "core": {rows: core for rows, (_, core, _) in short.items()},
        "cell": {rows: max(0.0, layer - short[rows][0]) / sample.cells for rows, (layer, _, _) in crowded.items()},
        "spread": {0: statistics.median(spread for _, _, spread in short.values()), 1: time.time()},
    }


def _usual(sample: Sampled, rows: int) -> tuple[float, float, float]:
    """Seconds of a layer and of the rest in the better half of some passes, the first left out; and the worst over the best."""
    sample.run(rows)
    began, done = time.perf_counter(), list[Measured]()
    while len(done) < _TRIES and (len(done) < _FEWEST or time.perf_counter() - began < _PATIENCE):
        done.append(sample.run(rows))
    done.sort(key=lambda one: one.layer)
    better = done[: len(done) // 2 + 1]
    layer, core = (statistics.mean(getattr(one, part) for one in better) for part in ("layer", "core"))
    return layer, core, done[-1].layer / done[0].layer


def read_costs(cache: Path, key: str, identity: FileIdentity, sample: Callable[[], Sampled]) -> ReadCosts:
    """Of the disk that a file is on, from the cache as far as it is fresh. `key` names what computing beside it depends on."""
    disk, beside = f"disk {identity.device}", f"beside disk {identity.device} {key}"
    known = recall(cache, disk).get("disk", {})
    if len(known) != 2 or not _fresh(known[1]):
        known = {0: measure_bandwidth(identity), 1: time.time()}
        remember(cache, disk, {"disk": known})
    slowed = recall(cache, beside).get("beside", {})
    if len(slowed) != 2:
        slowed = dict(enumerate(measure_beside(identity, sample())))
        remember(cache, beside, {"beside": slowed})
    return ReadCosts(known[0], slowed[0], slowed[1])


def measure_bandwidth(identity: FileIdentity) -> float:
    """Bytes per second of direct reads as the pager makes them, all over the file, for most of a second."""
    with _reader(identity) as (size, read):
        return size / _mean_seconds(read)


def measure_beside(identity: FileIdentity, sample: Sampled) -> tuple[float, float]:
    """Seconds that a byte takes longer to read beside passes, and that it costs the passes. Raises as `WeightFile.read`."""
    with _reader(identity) as (size, read), ThreadPoolExecutor(1, thread_name_prefix="edgespec-calibrate") as pool:
        reading = _mean_seconds(read)
        computing = statistics.median(_seconds(lambda: sample.run(_BESIDE_ROWS)) for _ in range(_TRIES))
        passes, reads, stop = list[float](), list[float](), threading.Event()
        beside = pool.submit(_repeat, read, reads, stop)
        began = time.perf_counter()
        try:
            while not beside.done() and (time.perf_counter() - began < _READ_SECONDS or len(reads) < _TRIES):
                passes.append(_seconds(lambda: sample.run(_BESIDE_ROWS)))
        finally:
            stop.set()
        beside.result()
        together, lost = statistics.mean(reads), 1 - min(1.0, computing / statistics.median(passes))
        return max(0.0, together - reading) / size, lost * together / size


def _mean_seconds(read: Callable[[], None]) -> float:
    """Not the median: a disk that is slowed down lets some reads through at full speed and then none for a while."""
    count, began = 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < _READ_SECONDS or not count:
        read()
        count += 1
    return spent / count


def _repeat(work: Callable[[], object], took: list[float], stop: threading.Event) -> None:
    while not stop.is_set():
        took.append(_seconds(work))


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


@contextmanager
def _reader(identity: FileIdentity) -> Iterator[tuple[int, Callable[[], None]]]:
    """How many bytes a piece brings, and what reads the next one."""
    piece = min(_PIECE, identity.size // PAGE * PAGE) or PAGE
    places = range(0, max(1, identity.size - piece + 1), piece)
    arena, file, turn = Arena(piece), WeightFile([identity]), 0
    view = arena.take(piece).view

    def read() -> None:
        nonlocal turn
        file.read(Run(0, places[turn * _STRIDE % len(places)], piece, 0), view)
        turn += 1

    try:
        file.settle()  # else writing is what is measured
        yield min(piece, identity.size), read
    finally:
        file.close()
        view.release()
        arena.close()
