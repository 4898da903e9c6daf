"""Samples of models: the engine computes them without their weights, as wide as a tree and over a longer context."""

from dataclasses import replace
from pathlib import Path

import pytest

from edgespec.calibration import Calibrator, sampled_layers
from edgespec.engines.llamacpp.sample import Sample
from edgespec.errors import EngineError
from edgespec.memory.budget import resident_bytes
from edgespec.memory.calibrate import WIDTHS
from edgespec.memory.plan import Request, make_plan
from edgespec.modelfile.header import read_model
from edgespec.types import ModelHeader

MIB = 1 << 20


@pytest.mark.parametrize("repacked", [False, True])
@pytest.mark.parametrize("kept", [(0,), (1, 4)])
def test_a_sample_runs_trees_of_every_width_over_contexts_of_two_lengths(
    target_path: Path, kept: tuple[int, ...], repacked: bool
) -> None:
    sample = Sample(read_model(target_path), kept, threads=2, repacked=repacked)
    for crowded in (False, True):
        for rows in WIDTHS:
            timed = sample.run(rows)
            assert timed.layer > 0
            assert timed.core >= 0
        if not crowded:
            sample.crowd()
    sample.close()


def test_its_weights_are_not_read_and_its_memory_comes_back(inflated_path: Path, tmp_path: Path) -> None:
    header = read_model(inflated_path)
    hollow = tmp_path / "hollow.gguf"
    hollow.write_bytes(inflated_path.read_bytes()[: header.header_sizes[0]])
    with hollow.open("r+b") as file:
        file.truncate(header.files[0].size)
    before = resident_bytes()
    sample = Sample(read_model(hollow), (0, 1), threads=2, repacked=False)
    assert sample.run(4).layer > 0
    sample.close()
    assert resident_bytes() < before + 16 * MIB


def test_layers_of_all_sizes_are_sampled_as_far_as_they_fit(target_path: Path) -> None:
    header = read_model(target_path)
    assert sampled_layers(header, 10**9) == tuple(range(header.layers))  # all are less than a cache holds
    assert len(sampled_layers(header, 0)) == 1
    mixed = tuple(
        replace(one, size=(50 + 100 * one.name.startswith(("blk.3", "blk.4", "blk.5"))) * MIB) for one in header.tensors
    )
    kept = sampled_layers(replace(header, tensors=mixed), 10**12)
    assert len(kept) == 2
    assert min(kept) < 3 <= max(kept)


def test_a_pair_is_calibrated_once_and_says_so(target_path: Path, drafter_path: Path) -> None:
    target, drafter = read_model(target_path), read_model(drafter_path)
    plan, said = make_plan(Request(600 * MIB, target, drafter, 50 * MIB, 256)), list[str]()
    measured = Calibrator(1, 600 * MIB, lambda: target, said.append)
    first = measured.costs(target, drafter, plan, repacked=False, probe=target.files[0])
    assert len(said) == 2
    assert first.target.layers == target.layers
    assert first.drafter is not None
    assert 0 < first.target.seconds(1) < first.target.seconds(32)
    assert first.drafter.seconds(1) < first.target.seconds(1)
    assert first.plain_rate == pytest.approx(1 / first.target.seconds(1))
    again = Calibrator(1, 600 * MIB, lambda: target, said.append)
    assert again.costs(target, drafter, plan, repacked=False, probe=target.files[0]) == first
    assert len(said) == 2
    assert again.notes == []


def test_a_model_the_engine_refuses_is_guessed_at_and_it_says_so(
    target_path: Path, inflated_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, other = read_model(target_path), read_model(inflated_path)

    class Refusing(Sample):
        def __init__(self, header: ModelHeader, kept: object, **options: object) -> None:
            if header.files == other.files:
                raise EngineError("no sample can be computed")
            super().__init__(header, kept, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("edgespec.calibration.Sample", Refusing)
    calibrator = Calibrator(2, 600 * MIB, lambda: target, lambda text: None)
    guessed, known = calibrator.passes(other, repacked=False), calibrator.passes(target, repacked=False)
    assert "guessed" in calibrator.notes[0]
    assert guessed.layers == other.layers
    assert guessed.seconds(16) > known.seconds(16)
