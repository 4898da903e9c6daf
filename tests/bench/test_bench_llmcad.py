"""The table of scripts/bench_llmcad.py, on records of arithmetic."""

from typing import Any

from bench_llmcad import ROWS, configurations, table


def record(name: str, number: int, rate: float, **more: Any) -> dict[str, Any]:
    return {"round": number, "cap": 65, "name": name, "tokens_per_second": rate, "generated": 30, **more}


def test_ratios_are_those_of_the_same_round_and_counts_those_of_all() -> None:
    drafts = {"passes": 10, "drafted": 40, "drafted_ahead": 50, "kept_ahead": 10}
    records = [
        record("off", n, rate, passes=30, drafted=0, drafted_ahead=0, kept_ahead=0) for n, rate in ((1, 1.0), (2, 2.0), (3, 4.0))
    ]
    records += [record("llmcad", n, rate, **drafts) for n, rate in ((1, 3.0), (2, 4.0), (3, 4.0))]
    records += [{"round": 1, "cap": 65, "name": "tree", "error": "killed"}]
    lines = list(table(records, 100))[1:]
    assert lines[0] == "| 65% | no drafts | 2.00 | 1.00 | 1.00-1.00 | 0.50 | 1.00 | 0.0 | 0.0 | - |"
    assert lines[1] == "| 65% | LLMCad | 4.00 | 2.00 | 1.00-3.00 | 1.00 | 3.00 | 4.0 | 5.0 | 20% |"
    assert lines[2].startswith("| 65% | tree of fixed size (LLMCad without fallback) | failed: killed |")


def test_every_configuration_has_a_row_and_one_part_switched_off() -> None:
    made = {one.name: one for one in configurations(15, stock=True)}
    assert list(made) == list(ROWS)
    assert (made["no tree"].speculation, made["no tree"].options["branching"]) == ("llmcad", False)
    assert (made["no pipeline"].speculation, made["no pipeline"].options["draft_ahead"]) == ("llmcad", False)
    assert all(one.options["stages"] == ["drafter"] for one in made.values() if one.engine == "edgespec")
