import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.errors import UsageError
from edgespec.speculation.retrieval import CHUNK, Rebuild, Shape, View, chunk_scores, ranges_of


@given(st.sampled_from(["full", "window", "retrieval"]), st.integers(144, 2048), st.integers(0, 8192), st.integers(0, 99))
def test_a_view_keeps_its_promise(view: View, cells: int, length: int, seed: int) -> None:
    shape = Shape(view, cells)
    scores = np.random.default_rng(seed).random(length // CHUNK)
    ranges = ranges_of(shape, length, scores)
    assert all(a < b for pair in ranges for a, b in [pair])
    assert all(left[1] < right[0] for left, right in itertools.pairwise(ranges))
    if length:
        assert ranges[0][0] == 0
        assert ranges[-1][1] == length
    seen = sum(stop - start for start, stop in ranges)
    assert seen == length if view == "full" or length <= cells - 64 else seen <= cells - 64


@given(st.integers(0, 99), st.integers(1000, 3000))
def test_the_best_chunks_are_in_view(seed: int, length: int) -> None:
    shape = Shape("retrieval", 512)
    scores = np.random.default_rng(seed).random(length // CHUNK)
    ranges = ranges_of(shape, length, scores)
    candidates = range(1, (length - shape.window) // CHUNK)
    for chunk in sorted(candidates, key=lambda chunk: -scores[chunk])[: shape.chunks]:
        assert any(start <= chunk * CHUNK and (chunk + 1) * CHUNK <= stop for start, stop in ranges)


def test_the_chunk_that_is_asked_for_scores_best() -> None:
    rng = np.random.default_rng(1)
    means = rng.normal(size=(20, 2, 2, 16)).astype(np.float32)
    queries = np.repeat(means[7], 3, axis=1).reshape(1, 2, 6, 16) * 3  # three heads share a key head
    scores = chunk_scores(queries, means)
    assert scores.shape == (20,)
    assert scores.argmax() == 7
    assert scores.sum() == pytest.approx(1 * 2 * 6)


def test_too_few_cells_are_refused() -> None:
    with pytest.raises(UsageError, match="at least"):
        Shape("window", 100)
    Shape("full", 1)


def test_a_new_choice_is_due_after_a_stride_or_when_acceptance_drops() -> None:
    steady = Rebuild(stride=64)
    assert [steady.due(4) for _ in range(16)] == [False] * 15 + [True]
    steady.done()
    assert not steady.due(4)
    assert [steady.due(1) for _ in range(6)][-1]
