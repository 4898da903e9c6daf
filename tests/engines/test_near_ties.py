"""Draws that rounding could have turned are counted, all of them and not many others."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.engines.draws import place_of
from edgespec.engines.fake import FakeSampler
from edgespec.engines.near_ties import draw_near_tie, greedy_near_tie
from edgespec.types import SamplingParams

VOCABULARY = 12
grid = st.integers(-12, 12).map(lambda steps: steps / 8)  # coarse, so that many candidates are near an edge or a neighbour
logits_of = st.lists(grid, min_size=VOCABULARY, max_size=VOCABULARY).map(lambda values: np.array(values, np.float32))
noises = st.lists(st.sampled_from([-0.99, 0.0, 0.99]), min_size=VOCABULARY, max_size=VOCABULARY).map(np.array)
samplings = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.3, 0.8, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 3, 7]),
    top_p=st.sampled_from([1.0, 0.95, 0.6]),
    min_p=st.sampled_from([0.0, 0.05, 0.4, 1.0]),
)
draws = st.floats(0, 1, exclude_max=True)
roundings = st.sampled_from([0.01, 0.1, 0.5])


def drawn_token(logits: np.ndarray, params: SamplingParams, drawn: float) -> int:
    return place_of(FakeSampler(params).probs(logits), drawn)


@settings(max_examples=500)
@given(logits_of, noises, samplings, roundings)
def test_whatever_rounding_turns_is_counted(
    logits: np.ndarray, noise: np.ndarray, params: SamplingParams, rounding: float
) -> None:
    """For draws right beside the boundaries after rounding, which are the hardest to see before."""
    moved = (logits + rounding * noise).astype(np.float32)
    edges = np.cumsum(FakeSampler(params).probs(moved))
    for drawn in np.clip(np.concatenate([edges - 1e-6, edges + 1e-6]), 0, 1 - 1e-9):
        token = drawn_token(logits, params, drawn)
        assert token == drawn_token(moved, params, drawn) or draw_near_tie(logits, params, token, drawn, rounding)


@given(logits_of, noises, roundings)
def test_greedy_choices_that_rounding_turns_are_counted(logits: np.ndarray, noise: np.ndarray, rounding: float) -> None:
    same = np.argmax(logits) == np.argmax(logits + rounding * noise)
    assert same or greedy_near_tie(logits, rounding)


@given(logits_of, samplings, draws)
def test_an_engine_that_does_not_round_has_no_near_ties(logits: np.ndarray, params: SamplingParams, drawn: float) -> None:
    assert not draw_near_tie(logits, params, drawn_token(logits, params, drawn), drawn, 0.0)
    assert not greedy_near_tie(np.zeros(VOCABULARY), 0.0)


@pytest.mark.parametrize("rounding", [0.001, 0.01])
def test_boundaries_move_by_two_rounding_f_one_minus_f(rounding: float) -> None:
    params = SamplingParams(temperature=0.5, top_k=0, top_p=1.0, min_p=0.0)
    logits = np.log(np.array([0.3, 0.7], np.float32)) / 2  # at this temperature 0.3 and 0.7
    moves = 2 * rounding / params.temperature * 0.3 * 0.7 / (0.3 + 0.7)
    for away, counted in ((0.9 * moves, True), (1.1 * moves, False)):
        assert draw_near_tie(logits, params, 0, 0.3 - away, rounding) is counted
        assert draw_near_tie(logits, params, 1, 0.3 + away, rounding) is counted


def test_a_candidate_at_an_edge_counts_where_it_moves_the_draw() -> None:
    """Token 1 is the last that top-k lets in, by little: token 3 instead would let token 2 begin at 0.4 and end at 0.8."""
    logits = np.log(np.array([0.4, 0.2, 0.4, 0.199], np.float32))
    params = SamplingParams(temperature=1.0, top_k=3, top_p=1.0, min_p=0.0)
    tokens = {drawn: drawn_token(logits, params, drawn) for drawn in (0.2, 0.5, 0.7, 0.9)}
    counted = {drawn: draw_near_tie(logits, params, token, drawn, 0.01) for drawn, token in tokens.items()}
    assert counted == {0.2: False, 0.5: True, 0.7: False, 0.9: True}


def test_tokens_share_the_draw_in_the_order_of_their_ids() -> None:
    """So that the same number falls on the same token when rounding swaps two neighbours in the order of logits."""
    params = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
    near, swapped = np.array([1.0, 0.50, 0.51], np.float32), np.array([1.0, 0.51, 0.50], np.float32)
    assert all(drawn_token(near, params, drawn) == drawn_token(swapped, params, drawn) for drawn in np.linspace(0.05, 0.95, 10))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9).filter(any), st.floats(0, 1, exclude_max=True))
def test_nothing_impossible_is_drawn(distribution: list[float], drawn: float) -> None:
    assert distribution[place_of(np.array(distribution), drawn)] > 0
