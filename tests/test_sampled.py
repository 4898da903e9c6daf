"""Drafting never changes what is drawn, whatever the KV cache has been through; only rounding could, and that is counted."""

from pathlib import Path

import pytest
from parity import Judge
from sampled import answers

import edgespec


@pytest.mark.parametrize(("temperature", "count"), [(1.0, 50), (0.8, 40), (0.0, 10)])
def test_the_same_seed_gives_the_same_answer_with_and_without_drafting(target_path: Path, temperature: float, count: int) -> None:
    judge = Judge(target_path)
    with edgespec.load(budget="1GiB", context=512, conversations=8, speculation="tree", threads=1) as model:
        found = list(answers(model, judge, count, temperature=temperature, max_tokens=40))
    judge.close()
    assert sum(one.drafted.statistics.accepted for one in found) > 3 * count
    assert sum(one.drafted.statistics.cached_tokens > 0 for one in found) == count
    assert [number for number, one in enumerate(found) if one.counted is False] == []
