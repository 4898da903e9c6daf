"""A model that people use, with a vocabulary of 262,144 tokens and an embedding larger than all its layers, inside its budget."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import report_memory
from parity import Judge

pytestmark = [pytest.mark.real_model, pytest.mark.usefixtures("kernel_cap")]
CONTEXT = 1024


@pytest.fixture(scope="module")
def job(real_model_path: Path) -> dict[str, Any]:
    return {"target": str(real_model_path), "drafter": None, "context": CONTEXT, "mode": "tree"}


@pytest.fixture(scope="module")
def budgets(job: dict[str, Any]) -> tuple[int, int]:
    return report_memory.budgets(job)


@pytest.fixture(scope="module")
def unguessed(job: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return report_memory.references(job)


@pytest.fixture(scope="module")
def judge(real_model_path: Path) -> Iterator[Judge]:
    judge = Judge(real_model_path, CONTEXT)
    yield judge
    judge.close()


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_plan_is_what_is_held_and_guesses_leave_the_text_as_it_is(
    share: float, job: dict[str, Any], budgets: tuple[int, int], unguessed: dict[str, dict[str, Any]], judge: Judge
) -> None:
    """From everything streamed to all resident."""
    budget = int(budgets[0] + share * (budgets[1] - budgets[0]))
    first = report_memory.living(job | {"budget": budget}, int(budget * 1.05))  # measures speeds in what the plan leaves free
    assert first["peak"] <= budget
    done = report_memory.living(job | {"budget": budget}, int(budget * 1.05))
    assert done["peak"] <= done["total"] <= budget
    assert done["total"] <= 1.1 * done["peak"]
    turned = report_memory.flips(judge, unguessed[done["paging"]], done)
    assert turned.count(None) >= len(turned) - 1


def test_a_model_that_is_not_made_for_chat_says_so(real_model_path: Path) -> None:
    command = [sys.executable, "-m", "edgespec", "run", str(real_model_path), "one, two, three, four, five,", "--max-tokens", "4"]
    done = subprocess.run([*command, "--context", "256", "--budget", "1GiB"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(" six, seven")
    assert "no chat template" in done.stderr
