"""The engine's sampler: what may be drawn is llama.cpp's to say, the draw goes by ids."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edgespec.engines.draws import place_of
from edgespec.engines.llamacpp.model import LlamaModel
from edgespec.modelfile.header import read_model
from edgespec.types import SamplingParams

OPEN = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=7)


@pytest.fixture(scope="module")
def model(target_path: Path) -> Iterator[LlamaModel]:
    made = LlamaModel(read_model(target_path), None, threads=1)
    yield made
    made.close()


def rows(count: int, vocabulary: int) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 3, (count, vocabulary)).astype(np.float32)


@pytest.mark.parametrize(
    "params", [OPEN, SamplingParams(temperature=0.8, seed=3), SamplingParams(temperature=0.8, seed=3, top_k=0)]
)
def test_one_number_is_consumed_for_a_draw_and_falls_on_ids_in_order(model: LlamaModel, params: SamplingParams) -> None:
    sampler, numbers = model.sampler(params), np.random.RandomState(params.seed)
    for row in rows(40, model.tokenizer.size):
        wanted = place_of(sampler.probs(row), numbers.random_sample())
        assert sampler.draw(row) == wanted
        sampler.accept(wanted)
    sampler.close()


def test_rounding_that_swaps_neighbours_does_not_turn_draws(model: LlamaModel) -> None:
    """A whole vocabulary of pairs that change places in the order of logits."""
    size = model.tokenizer.size // 2 * 2
    row = np.repeat(rows(1, size // 2)[0], 2)
    up, down = model.sampler(OPEN, size), model.sampler(OPEN, size)
    swing = np.tile(np.array([1e-4, -1e-4], np.float32), size // 2)
    assert [up.draw(row + swing) for _ in range(200)] == [down.draw(row - swing) for _ in range(200)]
    up.close()
    down.close()


def test_near_ties_are_counted_by_what_the_build_rounds(model: LlamaModel, monkeypatch: pytest.MonkeyPatch) -> None:
    row = np.full(model.tokenizer.size, -20.0, np.float32)
    row[[5, 9]] = 0.0, 0.05
    counted = {}
    for rounding in (0.0, 0.02, 0.03):
        monkeypatch.setattr(model, "rounding", rounding)
        sampler = model.sampler(SamplingParams())
        assert sampler.draw(row) == 9
        counted[rounding] = sampler.near_ties
        sampler.close()
    assert counted == {0.0: 0, 0.02: 0, 0.03: 1}


def test_a_clone_has_accepted_the_same_and_begins_its_draws_anew(model: LlamaModel) -> None:
    params = SamplingParams(temperature=1.0, repeat_penalty=2.0, seed=5)
    first, *others = rows(5, model.tokenizer.size)
    sampler = model.sampler(params)
    sampler.accept(sampler.draw(first))
    twin = sampler.clone()
    assert all(np.array_equal(sampler.probs(row), twin.probs(row)) for row in others)
    assert twin.draw(others[0]) == place_of(sampler.probs(others[0]), np.random.RandomState(5).random_sample())
    twin.close()
    sampler.close()
