"""A baseline says of another run whether it is slower, and does not take noise for news."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.bench.baseline import Comparison, Row, baseline, compare, rows_of
from edgespec.errors import UsageError

SCRIPT = Path(__file__).parents[2] / "scripts/compare_bench.py"


def bench(rates: dict[str, Sequence[float]], cap: int = 650) -> dict[str, Any]:
    """`rates` per configuration, one a round."""
    records = [
        {"round": number, "cap": cap, "name": name, "tokens_per_second": rate, "generated": 30, "passes": 10}
        for name, values in rates.items()
        for number, rate in enumerate(values, 1)
    ]
    failed = {"round": 1, "cap": cap, "name": "llama-server", "error": "killed"}
    return {"about": {"target_bytes": 1000, "machine": "m"}, "records": [*records, failed]}


def row(*ratios: float) -> Row:
    return Row(0.65, "auto", ratios, 3.0)


def test_ratios_are_to_stock_in_the_same_round(tmp_path: Path) -> None:
    kept = baseline(bench({"stock": [1.0, 2.0], "auto": [6.0, 14.0]}), "abc")
    assert (kept["commit"], kept["machine"]) == ("abc", "m")
    (tmp_path / "old.json").write_text(json.dumps(kept))
    assert rows_of(tmp_path / "old.json") == [Row(0.65, "auto", (6.0, 7.0), 3.0)]


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        (row(6.0, 6.1, 6.2), row(5.9, 6.0, 6.1), "same"),
        (row(6.0, 6.1, 6.2), row(5.0, 5.1, 5.2), "slower"),
        (row(6.0, 6.1, 6.2), row(5.0, 5.1, 6.1), "slower?"),
        (row(6.0, 6.1, 6.2), row(7.0, 7.1, 7.2), "faster"),
        (row(6.0, 6.1, 6.2), row(6.1, 7.1, 7.2), "faster?"),
    ],
)
def test_verdicts(old: Row, new: Row, verdict: str) -> None:
    assert Comparison(old, new).verdict == verdict


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=5))
def test_nothing_is_slower_or_faster_than_itself(ratios: list[float]) -> None:
    assert Comparison(row(*ratios), row(*ratios)).verdict == "same"


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="in common"):
        compare([row(1.0)], [Row(0.38, "auto", (1.0,), 3.0)])
    with pytest.raises(UsageError, match="no round of stock"):
        baseline(bench({"auto": [1.0]}), "abc")
    for text in ("", "{}", '{"rows": [1]}'):
        (tmp_path / "odd.json").write_text(text)
        with pytest.raises(UsageError, match="no bench or baseline"):
            rows_of(tmp_path / "odd.json")


def test_the_script_ends_with_1_for_what_is_slower(tmp_path: Path) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    new.write_text(json.dumps(bench({"stock": [1.0, 1.0], "auto": [6.0, 6.1], "off": [2.0, 2.1]})))
    assert subprocess.run([sys.executable, SCRIPT, "--keep", old, new], check=False).returncode == 0
    assert subprocess.run([sys.executable, SCRIPT, old, new], capture_output=True, check=False).returncode == 0
    new.write_text(json.dumps(bench({"stock": [1.0, 1.0], "auto": [5.0, 5.1], "off": [2.0, 2.1]})))
    done = subprocess.run([sys.executable, SCRIPT, old, new], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "| 65% | auto | 6.05x (6.00-6.10) | 5.05x (5.00-5.10) | 0.83 | 3.0 / 3.0 | slower |" in done.stdout
