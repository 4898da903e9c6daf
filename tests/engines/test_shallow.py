"""Drafting with the layers of a paged model that stay in memory."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_paging import rows_of

from edgespec.engines.llamacpp.model import LlamaModel
from edgespec.errors import EngineError
from edgespec.layers import Influence, layer_order, measured_influence
from edgespec.memory.layout import PARTS, segment_sizes
from edgespec.modelfile.header import read_model
from edgespec.modelfile.layers import original_name, write_some_layers
from edgespec.types import MemoryPlan, ModelHeader

KEPT = (0, 2, 5)


def plan_for(header: ModelHeader, kept: tuple[int, ...] = KEPT) -> MemoryPlan:
    streamed = tuple(key for key in segment_sizes(header) if key // len(PARTS) not in kept)
    return MemoryPlan(1 << 30, "slots", 256, 64, 16, "f16", (), 0, streamed, 8 << 20, 0, 0, kept=kept)


@pytest.fixture(scope="module")
def header(inflated_path: Path) -> ModelHeader:
    return read_model(inflated_path)


@pytest.fixture(scope="module")
def target(header: ModelHeader) -> Iterator[LlamaModel]:
    model = LlamaModel(header, plan_for(header), threads=2, strict=True)
    yield model
    model.close()


def test_it_computes_what_a_file_of_these_layers_would(target: LlamaModel, header: ModelHeader, tmp_path: Path) -> None:
    whole = tmp_path / "whole.gguf"
    write_some_layers(header, KEPT, whole)
    originals = {tensor.name: tensor for tensor in header.tensors}
    with whole.open("r+b") as file, open(header.path, "rb") as source:
        for tensor in read_model(whole).tensors:
            source.seek(originals[original_name(tensor.name, KEPT)].offset)
            file.seek(tensor.offset)
            file.write(source.read(tensor.size))
    reference = LlamaModel(read_model(whole), replace(plan_for(header), paging="mmap"), threads=2)
    shallow = target.shallow()
    for have, want in zip(rows_of(shallow), rows_of(reference), strict=True):
        np.testing.assert_array_equal(have, want)
    shallow.close()
    reference.close()


def test_its_passes_read_nothing_and_leave_the_targets_logits_as_they_are(target: LlamaModel) -> None:
    before = rows_of(target)
    shallow = target.shallow()
    rows_of(shallow)
    read = target.bytes_read
    rows_of(shallow)
    assert target.bytes_read - read <= 8 << 20  # the pager reads on into its ring, whoever computes
    shallow.close()
    for have, want in zip(rows_of(target), before, strict=True):
        np.testing.assert_array_equal(have, want)


def test_streamed_layers_cannot_draft(header: ModelHeader) -> None:
    model = LlamaModel(header, replace(plan_for(header), kept=(0, 1)), threads=2, strict=True)
    with pytest.raises(EngineError, match=r"blk\.1.*leave the stage layers out"):
        model.shallow()
    model.close()
    resident = LlamaModel(header, None, threads=2)
    with pytest.raises(EngineError, match="paged weights"):
        resident.shallow()
    resident.close()


def test_influence_finds_the_layers_that_do_nothing(header: ModelHeader) -> None:
    """The inflated model's added layers, and none of the others; measured once."""
    influence = measured_influence(header, plan_for(header), threads=2)
    assert set(influence) == set(range(header.layers))
    assert set(layer_order(influence)) == set(range(6))
    missing = replace(plan_for(header), ring_bytes=0)  # it could not run
    assert measured_influence(header, missing, threads=2) == influence


def test_influence_is_one_minus_the_cosine_of_the_rows_that_both_have() -> None:
    influence = Influence()
    influence.see(0, np.array([[1, 0], [1, 0], [0, 2]], np.float32))
    influence.see(1, np.array([[3, 0], [0, 1], [0, 1]], np.float32))
    influence.see(2, np.array([[1, 1]], np.float32))  # the last row alone
    assert influence.by_layer == pytest.approx({0: 1.0, 1: 1 / 3, 2: 1 - 1 / 2**0.5})
    assert layer_order(influence.by_layer) == (0, 1, 2)
