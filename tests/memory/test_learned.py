from pathlib import Path

import pytest

from edgespec.memory.learned import recall, remember

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
