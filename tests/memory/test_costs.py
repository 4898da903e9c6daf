"""What rounds take is arithmetic, so it is tested on costs that can be checked by hand and on drawn ones."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.memory.costs import Corrections, CostModel, PassCosts, ReadCosts

PASSES = PassCosts(10, ((1, 0.01), (4, 0.02), (16, 0.05)), ((1, 0.1), (16, 0.4)), ((1, 1e-6), (16, 16e-6)))
SMALL = PassCosts(2, ((1, 0.001), (4, 0.003)), ((1, 0.0), (4, 0.0)), ((1, 0.0),))
GB = 10**9


def test_a_pass_is_its_layers_what_belongs_to_none_and_attention_over_a_longer_context() -> None:
    assert PASSES.seconds(1) == pytest.approx(10 * 0.01 + 0.1)
    assert PASSES.seconds(16) == pytest.approx(10 * 0.05 + 0.4)
    assert PASSES.seconds(16, 1000) == pytest.approx(PASSES.seconds(16) + 10 * 1000 * 16e-6)
    assert PASSES.seconds(2) == PASSES.seconds(4)  # the kernels' block
    assert PASSES.seconds(10) == PASSES.seconds(12) == pytest.approx(10 * 0.04 + 0.1 + 0.3 * 11 / 15)
    assert PASSES.seconds(32) == pytest.approx(2 * PASSES.seconds(16))


def test_without_contention_the_longer_of_reading_and_computing_counts() -> None:
    disk = ReadCosts(2 * GB)
    assert disk.beside(GB, 0.1) == pytest.approx(0.5)
    assert disk.beside(GB, 0.7) == pytest.approx(0.7)


def test_each_slows_the_other_down_as_long_as_both_go_on() -> None:
    disk = ReadCosts(2 * GB, delayed=0.5 / GB, lost=0.2 / GB)  # together: 1 GB/s, and computing at 0.8 of its speed
    assert disk.beside(GB, 0.8) == pytest.approx(1.0)
    assert disk.beside(GB, 2.8) == pytest.approx(1.0 + 2.0)  # a second together, then what is left alone
    assert disk.beside(2 * GB, 0.8) == pytest.approx(1.0 + 0.5)


seconds, sizes = st.floats(0, 10), st.integers(0, 100 * GB)
disks = st.builds(ReadCosts, st.floats(1e8, 1e10), st.floats(0, 2e-9), st.floats(0, 2e-9))


@given(disks, sizes, seconds)
def test_both_together_take_at_least_the_longer(disk: ReadCosts, size: int, computing: float) -> None:
    assert disk.beside(size, computing) >= max(disk.seconds(size), computing) * (1 - 1e-9)
    assert disk.beside(0, computing) == pytest.approx(computing)
    assert disk.beside(size, 0.0) == pytest.approx(disk.seconds(size))


@given(disks, sizes, sizes, seconds, seconds)
def test_more_work_never_takes_less(disk: ReadCosts, size: int, more: int, computing: float, longer: float) -> None:
    least = disk.beside(size, computing) * (1 - 1e-9)
    assert disk.beside(size + more, computing) >= least
    assert disk.beside(size, computing + longer) >= least


def test_a_round_is_a_sweep_and_its_drafting_and_is_corrected_as_a_whole() -> None:
    costs = CostModel(PASSES, SMALL, ReadCosts(GB), streamed_bytes=GB // 2)
    assert costs.sweep(1) == pytest.approx(0.5)
    assert costs.plain_rate == pytest.approx(2.0)
    assert costs.drafting(6) == pytest.approx(2 * 2 * 0.003)
    assert costs.round(16) == pytest.approx(0.9 + 5 * 2 * 0.003)
    assert replace(costs, drafter=None).round(16) == pytest.approx(0.9)
    slow = replace(costs, scale=1.5)
    assert slow.round(16) == pytest.approx(1.5 * costs.round(16))


def test_predictions_are_corrected_by_what_rounds_took_the_more_the_more_there_were() -> None:
    learned = Corrections()
    assert learned.scale == 1.0
    assert learned.tables == {}
    scales = []
    for _ in range(200):
        learned.learn(1.2, 1.0)
        scales.append(learned.scale)
    assert scales == sorted(scales)
    assert 1.0 < scales[0] < 1.05
    assert 1.15 < scales[-1] <= 1.2
    assert Corrections(learned.tables).scale == learned.scale
