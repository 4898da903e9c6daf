from pathlib import Path

import pytest

from edgespec.memory.learned import recall, remember
from edgespec.speculation.policy import AutoPolicy

TABLES = {"sweep": {0: 0.5, 16: 0.7}, "draft": {16: 0.1}, "step": {4: 1.5}}


def test_what_was_remembered_is_recalled_per_key(tmp_path: Path) -> None:
    cache = tmp_path / "learned.json"
    assert recall(cache, "a") == {}
    remember(cache, "a", TABLES)
    remember(cache, "b", {})
    assert recall(cache, "a") == TABLES
    assert recall(cache, "c") == {}


@pytest.mark.parametrize(
    "text", ["", "[]", '{"a": 3}', '{"a": {"sweep": 3}}', '{"a": {"sweep": {"x": 1}}}', '{"a": {"sweep": {"0": NaN}}}']
)
def test_a_damaged_file_teaches_nothing(tmp_path: Path, text: str) -> None:
    cache = tmp_path / "learned.json"
    cache.write_text(text)
    assert recall(cache, "a") == {}
    remember(cache, "a", TABLES)
    assert recall(cache, "a") == TABLES


def test_only_the_newest_keys_are_kept_and_a_read_only_place_is_no_error(tmp_path: Path) -> None:
    cache = tmp_path / "learned.json"
    for number in range(70):
        remember(cache, str(number), TABLES)
    assert recall(cache, "3") == {}
    assert recall(cache, "69") == TABLES
    remember(Path("/proc/nowhere/learned.json"), "a", TABLES)


def test_a_policy_starts_from_what_it_is_given() -> None:
    policy = AutoPolicy(lambda nodes: 1.0, lambda nodes: 0.0)
    policy.begin_with({"sweep": {0: 0.01, 4: 5.0, 8: 5.0, 16: 5.0, 32: 5.0, 7: 1.0}, "draft": {}, "step": {4: 0.1}})
    assert policy.size() == 0
    assert 7 not in policy.tables()["sweep"]
