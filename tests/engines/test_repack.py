"""Weights paged from a page file are computed as the engine's own repacked ones; the head alone stays as it is."""

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgespec
from edgespec import repacking
from edgespec.engines.llamacpp.model import LlamaModel
from edgespec.engines.llamacpp.repack import Repacker, beside_the_file
from edgespec.errors import BudgetError
from edgespec.memory.layout import segment_sizes
from edgespec.memory.pagefile import PageFile
from edgespec.modelfile.header import read_model
from edgespec.speculation.tree import DraftTree
from edgespec.types import MemoryPlan, ModelHeader

TOKENS = [1, 40, 50, 60, 70]


@pytest.fixture(scope="module")
def header(target_path: Path, tmp_path_factory: pytest.TempPathFactory) -> ModelHeader:
    from edgespec.bench.inflate import inflate

    path = tmp_path_factory.mktemp("q4") / "inflated-q4.gguf"
    inflate(target_path, path, 60 << 20, kind="Q4_0")
    header = read_model(path)
    repacker = Repacker()
    supported = any(repacker.supports(tensor) for tensor in header.layer_tensors(0))
    repacker.close()
    if not supported:
        pytest.skip("this engine repacks no Q4_0 on this CPU")
    return header


@pytest.fixture(scope="module")
def pages(header: ModelHeader) -> Iterator[PageFile]:
    said: list[str] = []
    made = repacking.make_pages(header, said.append)
    assert made is not None
    assert "once" in said[0]
    yield made
    Path(made.identity.path).unlink()


def rows(model: LlamaModel) -> np.ndarray:
    session = model.session(context=256, chunk=64, max_nodes=15)
    session.extend(TOKENS)
    tree = DraftTree(9)
    for node in range(12):
        tree.add(node // 2, 300 + node, -1.0)
    return np.array(session.score(tree))


def least(header: ModelHeader) -> int:
    """A budget that makes this process page."""
    with pytest.raises(BudgetError) as refused:
        edgespec.load(header.path, budget="1MiB", context=256)
    assert refused.value.minimum is not None
    return refused.value.minimum + (8 << 20)


def plan_for(header: ModelHeader, pinned: int) -> MemoryPlan:
    sizes = segment_sizes(header)
    streamed = tuple(key for index, key in enumerate(sizes) if index % 5 >= pinned)
    return MemoryPlan(1 << 30, "slots", 256, 64, 16, "f16", (), len(sizes), streamed, 16 << 20, 0, 0)


@pytest.mark.parametrize("pinned", [0, 2])
def test_paged_repacked_logits_are_the_resident_ones(header: ModelHeader, pages: PageFile, pinned: int) -> None:
    resident = LlamaModel(header, None, threads=2)
    wanted = rows(resident)
    resident.close()
    paged = LlamaModel(header, plan_for(pages.weights(header), pinned), threads=2, strict=True, pages=pages)
    assert np.abs(rows(paged) - wanted).max() < 1e-5  # the head's own sums; kernels of another layout differ by 1e-2
    paged.close()


def test_norms_and_the_embedding_stay_as_they_are(header: ModelHeader, pages: PageFile) -> None:
    names = {tensor.name for tensor in header.tensors}
    assert pages.repacked < names
    assert all(name.startswith("blk.") and "norm" not in name for name in pages.repacked)


def test_a_page_file_is_made_used_and_announced(header: ModelHeader, drafter_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgespec.loading._WORTHWHILE", 0.0)
    options: dict[str, Any] = {"target": header.path, "budget": least(header), "context": 256, "strict": True}
    with edgespec.load(**options) as runtime:
        assert any("repacked weights" in note for note in runtime.notes)
        text = runtime.generate("It was a cold evening", max_tokens=12).text
    with edgespec.load(**options | {"budget": least(header)}, pages="off") as runtime:
        assert not any("repacked" in note for note in runtime.notes)
        assert runtime.generate("It was a cold evening", max_tokens=4).tokens
    assert text


def test_without_room_the_weights_are_paged_as_they_are(header: ModelHeader, monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    monkeypatch.setattr("edgespec.loading._WORTHWHILE", 0.0)
    monkeypatch.setattr("edgespec.loading.existing_pages", lambda header: None)
    monkeypatch.setattr("edgespec.memory.pagefile.shutil.disk_usage", lambda folder: SimpleNamespace(free=10))
    with edgespec.load(header.path, budget=least(header), context=256) as runtime:
        assert any("paging weights as they are" in note and "free some" in note for note in runtime.notes)


def test_what_a_resident_model_takes_beside_its_file_is_what_the_engine_says(
    header: ModelHeader, caplog: pytest.LogCaptureFixture
) -> None:
    """The embedding of this one is tied and has fast kernels: it is there twice."""
    with caplog.at_level(logging.DEBUG, "edgespec.engine"):
        LlamaModel(header, None, threads=2).close()
    held = sum(float(size) for size in re.findall(r"model buffer size = +([\d.]+) MiB", caplog.text)) * (1 << 20)
    planned = header.weight_bytes + beside_the_file(header)
    assert beside_the_file(header) > 0
    assert held <= planned + 20_000  # as it is rounded in the log
    assert planned <= 1.05 * held
