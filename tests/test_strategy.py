"""Who guesses and how guesses are judged, on real engines: the text stays the target's."""

from pathlib import Path
from typing import Any

import pytest
from budgets import tight_budget
from parity import Judge

import edgespec
from edgespec.errors import UsageError
from edgespec.modelfile.header import read_model
from edgespec.shipped import embedded_model
from edgespec.speculation.drafting.datastore import write_datastore
from edgespec.types import Completion, SamplingParams


def agree(path: Path, prompt: list[int], plain: Completion, done: Completion, context: int = 768) -> None:
    """The same greedy text, up to a near-tie that flipped at that very place."""
    judge = Judge(path, context)
    judge.flip(prompt, plain.tokens, done.tokens, SamplingParams(max_tokens=64))
    judge.close()


@pytest.mark.parametrize(
    "options",
    [
        {"stages": ["ngram"]},
        {"stages": ["drafter"]},
        {"stages": ["self"], "draft_view": "retrieval", "draft_cells": 160},
        {"stages": ["drafter", "self"], "draft_view": "retrieval", "draft_cells": 160},
        {"draft_view": "window", "draft_cells": 160},
        {"draft_view": "retrieval", "draft_cells": 160},
        {"verify": "tree"},
        {"verify": "block", "speculation": "chain"},
    ],
)
def test_whatever_guesses_and_judges_greedy_text_is_the_targets(options: dict[str, Any], target_path: Path) -> None:
    """The embedded pair after some 400 tokens; up to a near-tie that flips."""
    prompt = (
        "Anna walked to the river and found a red lamp. " * 30 + "It was a sunny morning, and Tom was brave. Tom walked to the"
    )
    with edgespec.load(budget="1GiB", context=768, speculation="off") as model:
        plain = model.generate(prompt, max_tokens=64)
    with edgespec.load(budget="1GiB", context=768, **{"speculation": "tree", **options}) as model:
        done = model.generate(prompt, max_tokens=64)
        assert model.explain()[0].startswith("stages: ")
        tokens = model.prompt_tokens(prompt)
    agree(target_path, tokens, plain, done)
    assert done.statistics.accepted > 0


@pytest.mark.parametrize(
    "options",
    [
        {"stages": ["magic"]}, {"stages": ["datastore"]}, {"stages": ["self"]}, {"verify": "luck"}, {"lossy": "match"},
        {"lossy": "bild", "verify": "tree"}, {"draft_view": "half"}, {"draft_view": "window", "draft_cells": 10},
        {"stages": ["self", "layers"], "draft_view": "window"}, {"stages": ["layers", "drafter"]},
    ],
)  # fmt: skip
def test_bad_ways_to_guess_are_refused_before_loading(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        edgespec.load("/nowhere.gguf", **options)


def test_resident_layers_of_a_paged_target_draft_for_it(inflated_path: Path) -> None:
    budget = tight_budget(inflated_path, None) + (60 << 20)
    with edgespec.load(inflated_path, budget=budget, context=512, speculation="off") as model:
        plain = model.generate("It was a sunny morning, and Tom", max_tokens=48)
    budget = tight_budget(inflated_path, None) + (60 << 20)  # this process has grown
    with edgespec.load(inflated_path, budget=budget, context=512, stages=["layers"], speculation="tree") as model:
        assert model.paging == "slots"
        assert model.plan.kept
        done = model.generate("It was a sunny morning, and Tom", max_tokens=48)
        assert done.statistics.stages == ("layers",)
        assert done.statistics.drafted_ahead > 0  # inside the stalls of the weights it shares
        tokens = model.prompt_tokens("It was a sunny morning, and Tom")
    agree(inflated_path, tokens, plain, done)
    assert done.statistics.accepted > 20


def test_keys_and_values_out_of_view_leave_memory(target_path: Path) -> None:
    """Of a drafter whose context is longer than what it looks at."""
    prompt = "Anna walked to the river and found a red lamp. Tom was brave. " * 40  # some 600 tokens
    with edgespec.load(budget="1GiB", context=2048, speculation="off") as model:
        plain = model.generate(prompt, max_tokens=48)
    options: dict[str, Any] = {"draft_view": "retrieval", "draft_cells": 256, "stages": ["drafter"], "speculation": "tree"}
    with edgespec.load(budget="1GiB", context=2048, **options) as model:
        assert 0 < model.plan.draft_cells < 600
        done = model.generate(prompt, max_tokens=48)
        assert model.generate(prompt, max_tokens=8).tokens == done.tokens[:8]
        tokens = model.prompt_tokens(prompt)
    agree(target_path, tokens, plain, done, context=2048)
    assert done.statistics.draft_acceptance > 0.2


def test_layers_cannot_draft_for_a_resident_target(inflated_path: Path) -> None:
    with edgespec.load(inflated_path, budget="2GiB", context=512, stages=["layers"]) as model:
        assert any("all are resident" in note for note in model.notes)
        assert model.generate("Hello!", max_tokens=4).statistics.stages == ()


def test_auto_tries_chosen_and_drawn_guesses_and_says_what_was_faster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EDGESPEC_CACHE", str(tmp_path))  # nothing is known of this pair
    with edgespec.load(budget="1GiB", context=512, verify="auto") as model:
        assert model.generate("Hello!", max_tokens=8).statistics.verify == "match"  # greedy
        used = [
            model.generate("It was a cold evening.", max_tokens=48, temperature=0.8, seed=seed).statistics.verify
            for seed in range(4)
        ]
        assert set(used) == {"match", "tree"}
        explained = model.explain()
    assert sum("tokens/s measured" in line for line in explained) == 2
    assert explained[0].endswith(f"verified by {used[-1]}")


def test_a_datastore_guesses_and_lossy_text_is_marked(tmp_path: Path) -> None:
    prompt = "It was a cold evening, and Anna was"
    with edgespec.load(budget="1GiB", context=512, stages=["ngram"]) as model:
        said = model.generate(prompt, max_tokens=24).tokens
        header = read_model(embedded_model("target"))
        write_datastore([[*model.tokenize(prompt), *said]], header.vocabulary, tmp_path / "store")
    with edgespec.load(
        budget="1GiB", context=512, stages=["datastore"], datastore=tmp_path / "store", speculation="tree", lossy="typical"
    ) as model:
        done = model.generate(prompt, max_tokens=16)
    assert done.statistics.stages == ("datastore",)
    assert done.statistics.accepted > 8
    assert done.statistics.verify == "lossy typical"
