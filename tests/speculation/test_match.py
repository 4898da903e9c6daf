"""The text's distribution is the target's, shown by chi-square; and the test would notice if it were not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from exact import exact, p_value

from edgespec.engines.fake import FakeModel, FakeSampler
from edgespec.speculation.tree import DraftTree
from edgespec.speculation.verify.match import match_target
from edgespec.types import Acceptance, Floats, SamplingParams

VOCABULARY, DRAWS, DEPTH = 6, 4000, 2
CRITICAL = 1e-4
Verifier = Callable[..., Acceptance]


def tree_of(shape: str) -> DraftTree:
    tree = DraftTree(1)
    if shape == "chain":
        tree.add(tree.add(0, 2, -1.0), 3, -2.0)
    else:
        for token in (2, 3, 4):
            node = tree.add(0, token, -1.0)
            for below in (0, 5):
                tree.add(node, below, -2.0)
    return tree


def decode(model: FakeModel, sampler: FakeSampler, tree: DraftTree, verifier: Verifier) -> tuple[int, ...]:
    session = model.session()
    tokens: list[int] = []
    while len(tokens) < DEPTH:
        rows = session.score(tree)
        accepted = verifier(tree, rows, sampler, ends=lambda token: False, most=DEPTH - len(tokens))
        session.commit(accepted.path, [tree.tokens[node] for node in accepted.path])
        tokens += accepted.tokens
        tree = DraftTree(tokens[-1])
    return tuple(tokens)


def judged(shape: str, params: SamplingParams, verifier: Verifier) -> float:
    """The p-value of DRAWS texts."""
    model, sampler = FakeModel(VOCABULARY, seed=3, sharpness=1.0), FakeSampler(params)

    def one() -> tuple[int, ...]:
        sampler._recent = []
        return decode(model, sampler, tree_of(shape), verifier)

    return p_value(exact(model, params, (1,), DEPTH), (one() for _ in range(DRAWS)))


Ends = Callable[[int], bool]


def draws_again_after_a_mismatch(tree: DraftTree, rows: Floats, sampler: FakeSampler, *, ends: Ends, most: int) -> Acceptance:
    """The classic mistake: a token that no child guessed is thrown away and drawn anew."""
    path: list[int] = []
    tokens: list[int] = []
    node: int | None = 0
    while node is not None and len(tokens) < most:
        token = sampler.draw(rows[node])
        if tree.children(node) and tree.child(node, token) is None:
            token = sampler.draw(rows[node])
        path.append(node)
        tokens.append(token)
        node = tree.child(node, token)
    return Acceptance(tuple(path), tuple(tokens), 0)


def accepts_the_drafter_too_often(tree: DraftTree, rows: Floats, sampler: FakeSampler, *, ends: Ends, most: int) -> Acceptance:
    """Lenience: one draw in ten takes a child whatever the target says."""
    accepted = match_target(tree, rows, sampler, ends=ends, most=most)
    if tree.children(0) and sampler._rng.random() < 0.1:
        return Acceptance((0,), (tree.tokens[tree.children(0)[0]],), 0)
    return accepted


@pytest.mark.parametrize("shape", ["chain", "tree"])
@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
        {"temperature": 0.7, "top_k": 4, "top_p": 1.0, "min_p": 0.0},
        {"temperature": 1.3, "top_k": 0, "top_p": 0.9, "min_p": 0.0},
        {"temperature": 1.0, "top_k": 5, "top_p": 0.95, "min_p": 0.05},
    ],
)
def test_the_distribution_is_the_targets(shape: str, options: dict[str, Any]) -> None:
    assert judged(shape, SamplingParams(seed=11, **options), match_target) > CRITICAL


@pytest.mark.parametrize("wrong", [accepts_the_drafter_too_often, draws_again_after_a_mismatch])
@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_a_wrong_verifier_is_noticed(shape: str, wrong: Verifier) -> None:
    params = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=11)
    assert judged(shape, params, wrong) < CRITICAL


def test_greedy_follows_the_best_path_and_stops_where_told() -> None:
    model, tree = FakeModel(VOCABULARY, seed=5), DraftTree(1)
    best: list[int] = []
    for _ in range(4):
        best.append(int(np.argmax(model.logits([1, *best]))))
    node = 0
    for token in best[:3]:
        node = tree.add(node, token, -1.0)
    rows = model.session().score(tree)
    sampler = FakeSampler(SamplingParams())
    assert match_target(tree, rows, sampler, ends=lambda token: False, most=9).tokens == tuple(best)
    assert match_target(tree, rows, sampler, ends=lambda token: False, most=2).tokens == tuple(best[:2])
    assert match_target(tree, rows, sampler, ends=lambda token: token == best[1], most=9).tokens[-1] == best[1]
