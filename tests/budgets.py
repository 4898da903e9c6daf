"""Budgets that make a model page."""

from pathlib import Path

import pytest

import edgespec
from edgespec import errors


def tight_budget(target: Path, drafter: Path | None) -> int:
    with pytest.raises(errors.BudgetError) as refused:
        edgespec.load(target, drafter, budget=1000, context=512)
    assert refused.value.minimum is not None
    return refused.value.minimum + (20 << 20)
