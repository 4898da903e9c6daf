"""Whatever is drafted and however the weights are paged, greedy text is stock llama-cpp-python's, and sampled text that of the
same seed without drafting, out of the distribution that stock draws from.
"""

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parity import Judge, Stock, plain_tokens

import edgespec
from edgespec.speculation.tree import DraftTree
from edgespec.types import SamplingParams, Speculation

PROMPTS = [
    "What is edgespec?", "Tell me a short story.", "What is the capital of France?", "Count from 3 to 9.",
    "What is 3 plus 4?", "Repeat after me: red boat winter lamp cat", "Which is larger, 7 or 12?",
]  # fmt: skip
SAMPLINGS: list[dict[str, Any]] = [
    {},
    {"repeat_penalty": 1.2},
    {"temperature": 0.8, "seed": 1, "frequency_penalty": 0.4, "presence_penalty": 0.3},
    {"temperature": 0.8, "seed": 2, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    {"temperature": 1.5, "seed": 3, "top_k": 20, "top_p": 0.9},
]


@pytest.fixture(scope="module")
def engines(target_path: Path, inflated_path: Path) -> Iterator[dict[str, tuple[Stock, Judge]]]:
    """The stock engine and the judge of its text, for the resident model and the paged one."""
    made = {"resident": (Stock(target_path), Judge(target_path)), "slots": (Stock(inflated_path), Judge(inflated_path))}
    yield made
    for stock, judge in made.values():
        stock.close()
        judge.close()


def budgets(path: Path, drafter: Path | None) -> dict[str, int]:
    """One that streams and one that holds everything."""
    with pytest.raises(edgespec.errors.BudgetError) as refused:
        edgespec.load(path, drafter, budget="1MiB", context=512)
    assert refused.value.minimum is not None
    return {"slots": refused.value.minimum + (10 << 20), "resident": 1 << 30}


@pytest.mark.parametrize(("mode", "paging"), [*product(["tree", "chain", "auto"], ["slots", "resident"]), ("off", "slots")])
def test_text_is_the_targets_up_to_near_ties(
    record_property: Callable[[str, object], None],
    mode: Speculation,
    paging: str,
    engines: dict[str, tuple[Stock, Judge]],
    inflated_path: Path,
    target_path: Path,
    drafter_path: Path,
) -> None:
    path = inflated_path if paging == "slots" else target_path
    budget = budgets(path, drafter_path)[paging]
    stock, judge = engines[paging]
    flips = positions = 0
    with edgespec.load(path, drafter_path, budget=budget, context=512, speculation=mode, threads=2) as runtime:
        assert runtime.paging == paging
        for text, options in product(PROMPTS, SAMPLINGS):
            params = SamplingParams(max_tokens=48, **options)
            messages = [{"role": "user", "content": text}]
            prompt = runtime.prompt_tokens(messages)
            wanted = plain_tokens(stock, runtime, messages, params)
            have = [token for chunk in runtime.stream(messages, max_tokens=48, **options) for token in chunk.tokens]
            positions += len(wanted)
            flips += judge.flip(prompt, wanted, have, params) is not None
    record_property("near_tie_flips", f"{flips} of {positions}")
    assert flips <= 0.02 * positions


@pytest.mark.parametrize("options", SAMPLINGS[2:])
def test_what_may_be_drawn_and_how_likely_is_stocks(options: dict[str, Any], engines: dict[str, tuple[Stock, Judge]]) -> None:
    """At every place of an answer, after what was said before it."""
    (stock, judge), params = engines["resident"], SamplingParams(**options)
    session, sampler = judge.model.session(context=256, chunk=64, max_nodes=0), judge.model.sampler(params)
    pending = 9
    said: list[int] = []
    for _ in range(24):
        row = np.array(session.score(DraftTree(pending))[0])
        ours, theirs = sampler.probs(row), stock.probs(row, said, params)
        assert np.flatnonzero(ours).tolist() == np.flatnonzero(theirs).tolist()
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
        session.commit([0], [pending])
        pending = sampler.draw(row)
        sampler.accept(pending)
        said.append(pending)
    session.close()
    sampler.close()


def test_drafting_really_happens(target_path: Path, drafter_path: Path) -> None:
    with edgespec.load(target_path, drafter_path, budget="1GiB", speculation="tree") as runtime:
        stats = runtime.chat([{"role": "user", "content": "Tell me a short story."}], max_tokens=60).statistics
    assert stats.accepted > 10
    assert stats.passes < stats.tokens
