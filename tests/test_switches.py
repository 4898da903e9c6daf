"""Parts of LLMCad's method can be switched off one by one: branches, and drafting while the target waits."""

from pathlib import Path
from typing import Any

import pytest
from budgets import tight_budget

import edgespec
from edgespec.errors import UsageError
from edgespec.types import Statistics

PROMPT = "It was a sunny morning, and Tom"


def answered(inflated: Path, drafter: Path, **options: Any) -> tuple[Statistics, list[str]]:
    budget = tight_budget(inflated, drafter)
    with edgespec.load(inflated, drafter, budget=budget, context=512, speculation="llmcad", **options) as model:
        assert model.paging == "slots"
        return model.generate(PROMPT, max_tokens=32).statistics, model.explain()


def test_a_paged_target_is_drafted_for_while_it_waits_unless_told_otherwise(inflated_path: Path, drafter_path: Path) -> None:
    used, said = answered(inflated_path, drafter_path)
    assert used.drafted_ahead > 0
    assert "drafts: trees, also while the target waits for the disk" in said
    alone, said = answered(inflated_path, drafter_path, branching=False, draft_ahead=False)
    assert alone.drafted_ahead == 0 < alone.accepted
    assert "drafts: chains, never while the target waits" in said


def test_a_tree_that_may_not_branch_is_refused_before_loading() -> None:
    with pytest.raises(UsageError, match="speculation chain"):
        edgespec.load("/nowhere.gguf", speculation="tree", branching=False)
