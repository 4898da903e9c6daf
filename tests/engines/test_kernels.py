"""Which layouts of weights are computed alike whatever the width of a pass, and what follows for near-ties."""

from dataclasses import replace
from pathlib import Path

import pytest

from edgespec.engines.llamacpp import kernels
from edgespec.engines.llamacpp.proof import Proof, proven
from edgespec.engines.near_ties import ROUNDING
from edgespec.modelfile.header import read_model
from edgespec.types import ModelHeader


@pytest.fixture
def header(target_path: Path) -> ModelHeader:
    return read_model(target_path)


def test_the_layouts_that_are_steady_here_are_those_of_the_proof() -> None:
    steady = kernels.steady_layouts()
    assert tuple(steady) == proven().steady
    assert {"F32", "Q8_0"} <= set(steady)


def test_a_kernel_that_sums_otherwise_for_many_rows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    product = kernels._product
    monkeypatch.setattr(
        kernels, "_product", lambda weight, source, inputs, own: product(weight, source, inputs, own) + (len(inputs) == 16) * 1e-6
    )
    assert kernels.steady_layouts() == []


def test_models_of_other_layouts_are_taken_to_round(header: ModelHeader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "proven", lambda: Proof(0.01, ("F32", "Q8_0", "Q4_0 repacked")))
    assert kernels.rounding_of(header, ()) == 0.01
    mixed = replace(header, tensors=tuple(replace(tensor, kind="Q4_0") for tensor in header.tensors))
    assert kernels.rounding_of(mixed, ()) == ROUNDING
    assert kernels.rounding_of(mixed, [tensor.name for tensor in mixed.tensors]) == 0.01
