from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edgespec.speculation.logprobs import logprobs_of
from edgespec.types import Acceptance, Floats

ROWS = arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(2, 40)), elements=st.floats(-50, 50, width=32))


@given(ROWS, st.integers(0, 20), st.randoms(use_true_random=False))
def test_they_are_of_the_softmax_of_each_nodes_row_likeliest_first(rows: Floats, top: int, random: Random) -> None:
    nodes, size = rows.shape
    top = min(top, size)
    tokens = tuple(random.randrange(size) for _ in range(nodes))
    found = logprobs_of(Acceptance(tuple(range(nodes)), tokens, 0), rows, top)
    assert len(found) == nodes
    for row, token, one in zip(rows.astype(np.float64), tokens, found, strict=True):
        expected = row - np.logaddexp.reduce(row)
        assert one.logprob == pytest.approx(expected[token], abs=1e-4)
        order = sorted(range(size), key=lambda place: (-row[place], place))
        assert [place for place, _ in one.top_logprobs] == order[:top]
        assert [value for _, value in one.top_logprobs] == pytest.approx(expected[order[:top]], abs=1e-4)


def test_nobody_asked_and_nothing_is_computed() -> None:
    assert logprobs_of(Acceptance((0,), (1,), 0), np.full((1, 4), np.nan, np.float32), None) == ()
