"""What a release reached, small enough to keep, and whether another run of the bench is slower.

Rates are kept as ratios to stock in the same round and cap: machines and hours differ, but not between the sides of a ratio.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgespec.errors import UsageError

__all__ = ["Comparison", "Row", "baseline", "compare", "rows_of"]

_NOISE = 0.05  # medians this close are equal: two runs of one commit differ as much
_ABOUT = (
    "target", "target_bytes", "drafter_bytes", "context", "max_tokens", "prompts", "enforced_by", "disk", "engine", "machine",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One configuration under one cap, a share of the target's file; `ratios` are to stock, one a round."""

    cap: float
    name: str
    ratios: tuple[float, ...]
    tokens_per_pass: float | None

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)


@dataclass(frozen=True)
class Comparison:
    old: Row
    new: Row

    @property
    def ratio(self) -> float:
        return self.new.median / self.old.median

    @property
    def verdict(self) -> str:
        """Faster and slower are beyond the noise of medians, and no round of one side reached the other's."""
        if abs(self.ratio - 1) <= _NOISE:
            return "same"
        if self.ratio < 1:
            return "slower" if max(self.new.ratios) < min(self.old.ratios) else "slower?"
        return "faster" if min(self.new.ratios) > max(self.old.ratios) else "faster?"


def baseline(bench: dict[str, Any], commit: str) -> dict[str, Any]:
    """To be kept as JSON, from what `edgespec bench` wrote. Raises UsageError where stock did not run."""
    about = {name: bench["about"].get(name) for name in _ABOUT}
    return {"commit": commit, **about, "rows": [asdict(row) for row in _rows(bench)]}


def rows_of(path: Path) -> list[Row]:
    """Of a baseline, or of a file that `edgespec bench` wrote. Raises UsageError for what is neither."""
    try:
        found = json.loads(path.read_text())
        if "records" in found:
            return list(_rows(found))
        return [Row(row["cap"], row["name"], tuple(row["ratios"]), row["tokens_per_pass"]) for row in found["rows"]]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path} is no bench or baseline ({error}): name a file that `edgespec bench --out` wrote") from error


def compare(old: Sequence[Row], new: Sequence[Row]) -> list[Comparison]:
    """Of all that both have. Raises UsageError where that is nothing."""
    known = {(row.cap, row.name): row for row in old}
    pairs = [Comparison(known[row.cap, row.name], row) for row in new if (row.cap, row.name) in known]
    if not pairs:
        raise UsageError("the two have no cap and configuration in common: run the bench with the same --caps and --modes")
    return pairs


def _rows(bench: dict[str, Any]) -> Iterator[Row]:
    size, ran = bench["about"]["target_bytes"], [one for one in bench["records"] if "tokens_per_second" in one]
    stock = {(one["round"], one["cap"]): one["tokens_per_second"] for one in ran if one["name"] == "stock"}
    if not stock:
        raise UsageError("no round of stock in this bench: run it with --modes stock,...")
    for cap, name in dict.fromkeys((one["cap"], one["name"]) for one in ran if one["name"] != "stock"):
        runs = [one for one in ran if (one["cap"], one["name"]) == (cap, name) and (one["round"], cap) in stock]
        ratios = tuple(round(one["tokens_per_second"] / stock[one["round"], cap], 3) for one in runs)
        passes = [one["generated"] / one["passes"] for one in runs if one.get("passes")]
        if ratios:
            yield Row(round(cap / size, 2), name, ratios, round(statistics.median(passes), 3) if passes else None)
