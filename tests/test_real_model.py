"""A model that people use, with a vocabulary of 262,144 tokens and an embedding larger than all its layers, inside its budget."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgespec.bench import capped

pytestmark = pytest.mark.real_model
CONTEXT, MIB = 1024, 1 << 20


@pytest.fixture(scope="module", autouse=True)
def possible() -> None:
    try:
        capped.how()
    except capped.CannotCap as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def job(real_model_path: Path) -> dict[str, Any]:
    return {"target": str(real_model_path), "drafter": None, "context": CONTEXT, "mode": "tree"}


@pytest.fixture(scope="module")
def budgets(job: dict[str, Any]) -> tuple[int, int]:
    from report_memory import budgets

    return budgets(job)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_plan_is_what_is_held(share: float, job: dict[str, Any], budgets: tuple[int, int]) -> None:
    """From everything streamed to all resident; between them what fits as it is in the file and nothing streams."""
    from report_memory import living

    budget = int(budgets[0] + share * (budgets[1] - budgets[0]))
    done = living(job | {"budget": budget}, int(budget * 1.05))
    assert done["peak"] <= done["total"] <= budget
    assert done["total"] <= 1.1 * done["peak"]


def test_the_text_of_a_paged_run_is_that_of_a_resident_one(job: dict[str, Any], budgets: tuple[int, int]) -> None:
    from parity import Judge
    from report_memory import AMPLE, NO_CAP, flips, living

    wanted = living(job | {"budget": AMPLE, "mode": "off"}, NO_CAP)
    done = living(job | {"budget": budgets[0]}, NO_CAP)
    judge = Judge(Path(job["target"]), CONTEXT)
    assert sum(flip is not None for flip in flips(judge, wanted, done)) <= 1
    judge.close()


def test_a_model_that_is_not_made_for_chat_says_so(real_model_path: Path) -> None:
    command = [sys.executable, "-m", "edgespec", "run", str(real_model_path), "The capital of France is", "--max-tokens", "4"]
    done = subprocess.run([*command, "--context", "256"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout
    assert "no chat template" in done.stderr
