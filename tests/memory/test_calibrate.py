"""Calibration measures what it is handed, keeps it, and measures again what is damaged, stale or was disturbed."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from edgespec.errors import PagingError
from edgespec.memory.calibrate import WIDTHS, measure_bandwidth, measure_beside, measure_passes, pass_costs, read_costs
from edgespec.memory.weightfile import WeightFile
from edgespec.types import FileIdentity, Tables


@dataclass
class Pass:
    layer: float
    core: float


@dataclass
class Toy:
    """Takes a millisecond a row and layer, and a hundredth of that more for each further cell; every other pass `worse`."""

    worse: float = 1.0
    cells: int = 1000
    crowded: bool = False
    ran: list[int] = field(default_factory=list)

    def run(self, rows: int) -> Pass:
        self.ran.append(rows)
        disturbed = self.worse if len(self.ran) % 2 else 1.0
        return Pass(disturbed * rows * (1e-3 + self.crowded * self.cells * 1e-5), 0.5)

    def crowd(self) -> None:
        self.crowded = True


@pytest.fixture
def weights(tmp_path: Path) -> FileIdentity:
    path = tmp_path / "weights"
    path.write_bytes(bytes(3 << 20))
    return FileIdentity.of(str(path), path.stat())


def test_layers_the_rest_and_cells_of_context_are_told_apart() -> None:
    tables = measure_passes(Toy())
    assert tables["layer"] == pytest.approx({rows: rows * 1e-3 for rows in WIDTHS})
    assert set(tables["core"].values()) == {0.5}
    assert tables["cell"] == pytest.approx({1: 1e-5, 16: 16e-5})


def measuring(tables: Tables, calls: list[int]) -> Callable[[], Tables]:
    def measure() -> Tables:
        calls.append(1)
        return tables

    return measure


def test_passes_are_measured_once_and_a_damaged_cache_is_measured_again(tmp_path: Path) -> None:
    cache, calls = tmp_path / "calibration.json", list[int]()
    measure = measuring(measure_passes(Toy()), calls)
    first = pass_costs(cache, "q", 20, 2.0, measure)
    assert first.seconds(16) == pytest.approx(20 * 2.0 * 16e-3 + 0.5)
    assert pass_costs(cache, "q", 20, 2.0, measure) == first
    assert len(calls) == 1
    for damaged in ('{"q": [NaN]}', "", json.dumps({"q": {"layer": {"1": 1.0}}})):
        cache.write_text(damaged)
        assert pass_costs(cache, "q", 20, 2.0, measure) == first
    assert len(calls) == 4


def test_what_a_busy_machine_disturbed_is_measured_again_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, calls = tmp_path / "calibration.json", list[int]()
    measure = measuring(measure_passes(Toy(worse=3.0)), calls)
    pass_costs(cache, "q", 1, 1.0, measure)
    pass_costs(cache, "q", 1, 1.0, measure)
    assert len(calls) == 1
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3600)
    pass_costs(cache, "q", 1, 1.0, measure)
    assert len(calls) == 2


def test_a_disk_is_measured_anew_when_stale_what_computing_beside_it_costs_is_kept(
    weights: FileIdentity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, opened = tmp_path / "calibration.json", list[int]()

    def sample() -> Toy:
        opened.append(1)
        return Toy()

    first = read_costs(cache, "m", weights, sample)
    assert first.bandwidth > 0
    assert min(first.delayed, first.lost) >= 0
    assert read_costs(cache, "m", weights, sample) == first
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3600)
    again = read_costs(cache, "m", weights, sample)
    assert again.bandwidth != first.bandwidth
    assert (again.delayed, again.lost) == (first.delayed, first.lost)
    assert len(opened) == 1
    assert measure_bandwidth(weights) > 0


def test_a_read_that_fails_beside_a_pass_is_raised(weights: FileIdentity, monkeypatch: pytest.MonkeyPatch) -> None:
    reads, read = list[int](), WeightFile.read

    def fails_later(*args: object) -> None:
        reads.append(1)
        if len(reads) > 6:
            raise PagingError("the disk is gone: check it")
        read(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(WeightFile, "read", fails_later)
    with pytest.raises(PagingError, match="gone"):
        measure_beside(weights, Toy())
