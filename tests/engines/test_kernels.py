"""Which layouts of weights are computed alike whatever the width of a pass, and what follows for near-ties."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgespec.engines.llamacpp import kernels
from edgespec.engines.llamacpp.proof import Proof, proven
from edgespec.engines.llamacpp.repack import Repacker
from edgespec.modelfile.header import read_model
from edgespec.types import Floats, ModelHeader, TensorExtent


@pytest.fixture
def header(target_path: Path) -> ModelHeader:
    return read_model(target_path)


def test_the_layouts_that_are_steady_here_are_those_of_the_proof() -> None:
    steady = kernels.steady_layouts()
    assert tuple(steady) == proven().steady
    assert {"F32", "Q8_0"} <= set(steady)


def test_a_kernel_that_sums_otherwise_for_many_rows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    product = kernels._product

    def wrong(weight: TensorExtent, source: bytes, inputs: Floats, own: Repacker | None) -> Floats:
        rows = product(weight, source, inputs, own)
        return np.nextafter(rows, np.float32(np.inf)) if len(inputs) == 16 else rows

    monkeypatch.setattr(kernels, "_product", wrong)
    assert kernels.steady_layouts() == []


def test_models_of_other_layouts_are_taken_to_round(header: ModelHeader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "proven", lambda: Proof(0.01, ("F32", "Q8_0", "Q4_0 repacked")))
    assert kernels.rounding_of(header, ()) == 0.01
    mixed = replace(header, tensors=tuple(replace(tensor, kind="Q4_0") for tensor in header.tensors))
    assert kernels.rounding_of(mixed, ()) == kernels.UNSTEADY
    assert kernels.rounding_of(mixed, [tensor.name for tensor in mixed.tensors]) == 0.01
