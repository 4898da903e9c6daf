"""The golden file is what this engine computes, and a comparison that finds what is wrong."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgespec.engines.golden import SURE, TOLERANCE, GoldenFile, GoldenPass
from edgespec.engines.llamacpp.model import LlamaModel
from edgespec.engines.llamacpp.proof import GOLDEN
from edgespec.engines.llamacpp.selftest import scored
from edgespec.errors import ModelInvalid
from edgespec.modelfile.header import read_model
from edgespec.shipped import embedded_model, shipped
from edgespec.speculation.tree import DraftTree


@pytest.fixture(scope="module")
def golden() -> GoldenFile:
    return GoldenFile.read(shipped(GOLDEN))


@pytest.mark.parametrize("role", ["target", "drafter"])
def test_every_pass_is_what_the_engine_computes(golden: GoldenFile, role: str) -> None:
    passes = [one for one in golden.passes if one.model == role]
    assert {len(one.tokens) for one in passes} == {1, 16, 32}
    with closing(LlamaModel(read_model(embedded_model(role)), None, threads=2)) as model:
        for one in passes:
            rows = scored(model, one)
            assert one.difference(rows) is None
            assert one.difference(rows[:, ::-1]) is not None


def rows_with(best: float, second: float) -> np.ndarray:
    rows = np.zeros((1, 10), np.float32)
    rows[0, 3], rows[0, 4] = best, second
    return rows


@pytest.fixture
def one() -> GoldenPass:
    return GoldenPass.of("a row", "target", (1, 2), DraftTree(5), rows_with(4.0, 3.0))


def test_differences_are_named(one: GoldenPass) -> None:
    assert one.difference(rows_with(4.0, 3.0)) is None
    assert one.difference(rows_with(4.0 + 0.9 * TOLERANCE, 3.0)) is None
    assert "off by 1.2" in str(one.difference(rows_with(4.0 + 1.2 * TOLERANCE, 3.0)))
    assert "off by nan" in str(one.difference(rows_with(np.nan, 3.0)))
    assert "token 4 instead of 3" in str(one.difference(rows_with(3.4, 3.6)))
    assert "2 rows" in str(one.difference(np.zeros((2, 10), np.float32)))


def test_a_near_tie_may_turn(one: GoldenPass) -> None:
    near = GoldenPass.of("a row", "target", (1, 2), DraftTree(5), rows_with(4.0, 4.0 - 0.9 * SURE))
    assert near.difference(rows_with(3.7, 3.8)) is None


def test_a_file_is_read_as_it_was_written(one: GoldenPass, tmp_path: Path) -> None:
    wide = replace(one, tokens=(5, 6), parents=(-1, 0), best=one.best * 2, logits=one.logits * 2)
    written = GoldenFile({"target": "00"}, (one, wide))
    written.write(tmp_path / "golden.json")
    assert GoldenFile.read(tmp_path / "golden.json") == written
    assert wide.tree.parents == [-1, 0]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "models": {}, "passes": [{"name": 1}]}'])
def test_what_is_no_golden_file_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "golden.json").write_text(text)
    with pytest.raises(ModelInvalid, match="golden"):
        GoldenFile.read(tmp_path / "golden.json")
