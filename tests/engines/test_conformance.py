"""One promise, two engines: whatever implements `Session` behaves so."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from edgespec.engines.base import Session
from edgespec.engines.fake import FakeModel
from edgespec.engines.llamacpp.model import LlamaModel
from edgespec.errors import ContextFull
from edgespec.modelfile.header import read_model
from edgespec.speculation.tree import DraftTree

CONTEXT = 256
Factory = Callable[[], Session]
PROMPT = [1, 40, 50, 60, 70, 80]


@pytest.fixture(scope="module")
def llama(target_path: Path) -> Iterator[LlamaModel]:
    model = LlamaModel(read_model(target_path), None, threads=2)
    yield model
    model.close()


@pytest.fixture(params=["fake", "llamacpp"])
def make(request: pytest.FixtureRequest) -> Factory:
    if request.param == "fake":
        return lambda: FakeModel(3072, order=8).session(CONTEXT)
    model = request.getfixturevalue("llama")
    return lambda: model.session(context=CONTEXT, chunk=64, max_nodes=16)


def branchy(pending: int = 9) -> DraftTree:
    """0 -> 1, 2, 3; 1 -> 4, 5; 5 -> 6; 3 -> 7."""
    tree = DraftTree(pending)
    for parent, token in ((0, 11), (0, 12), (0, 13), (1, 14), (1, 15), (5, 16), (3, 17)):
        tree.add(parent, token, tree.logprobs[parent] - 1.0)
    return tree


def plain(make: Factory, tokens: list[int]) -> np.ndarray:
    """The row after `tokens`, by plain decoding on a fresh timeline."""
    session = make()
    session.extend(tokens[:-1])
    row = np.array(session.score(DraftTree(tokens[-1]))[0])
    session.close()
    return row


def close(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.abs(a - b).max() < 0.02)


def test_every_node_sees_its_own_path_alone(make: Factory) -> None:
    session, tree = make(), branchy()
    session.extend(PROMPT)
    rows = np.array(session.score(tree))
    for node in range(len(tree)):
        path = [tree.tokens[other] for other in tree.path(node)]
        assert close(rows[node], plain(make, PROMPT + path)), node


def test_scoring_in_pieces_equals_scoring_at_once(make: Factory) -> None:
    whole, pieces = make(), make()
    full, growing = branchy(), DraftTree(9)
    whole.extend(PROMPT)
    pieces.extend(PROMPT)
    rows = np.array(whole.score(full))
    parts = [np.array(pieces.score(growing))]
    for stop in (3, 6, 8):
        start = len(growing)
        for node in range(start, stop):
            growing.add(full.parents[node], full.tokens[node], full.logprobs[node])
        parts.append(np.array(pieces.score(growing, start)))
    assert close(np.concatenate(parts), rows)


@pytest.mark.parametrize("path", [[0], [0, 1], [0, 3, 7], [0, 1, 5, 6], [0, 2]])
def test_commit_then_score_equals_a_fresh_prefill(make: Factory, path: list[int]) -> None:
    session, tree = make(), branchy()
    session.extend(PROMPT)
    session.score(tree)
    tokens = [tree.tokens[node] for node in path]
    session.commit(path, tokens)
    assert session.length == len(PROMPT) + len(path)
    second = branchy(99)
    rows = np.array(session.score(second))
    assert close(rows[0], plain(make, [*PROMPT, *tokens, 99]))
    assert close(rows[6], plain(make, [*PROMPT, *tokens, 99, 11, 15, 16]))


@pytest.mark.parametrize(("path", "root"), [([0, 1], 5), ([0], 1), ([0, 3], 7), ([0], 3), ([0, 1, 5], 6)])
def test_what_was_scored_below_the_next_token_stays_scored(make: Factory, path: list[int], root: int) -> None:
    """Twice in a row, with nodes added below and beside what was kept."""
    session, tree = make(), branchy()
    session.extend(PROMPT)
    session.score(tree)
    history = PROMPT + [tree.tokens[node] for node in path]
    below, nodes = tree.below(root)
    session.commit(path, [tree.tokens[node] for node in path], nodes)
    assert session.length == len(history)
    kept = len(below)
    for parent, token in ((0, 21), (kept - 1, 22), (0, 23), (kept, 24)):
        below.add(parent, token, -9.0)
    rows = np.array(session.score(below, kept))
    for row, node in zip(rows, range(kept, len(below)), strict=True):
        assert close(row, plain(make, history + [below.tokens[n] for n in below.path(node)])), node
    again, nodes = below.below(kept)
    session.commit([0], [below.tokens[0]], nodes)
    again.add(len(again) - 1, 25, -9.0)
    history += [below.tokens[0], *(again.tokens[n] for n in again.path(len(again) - 1))]
    assert close(np.array(session.score(again, len(again) - 1)[0]), plain(make, history))


def test_nodes_that_were_not_scored_are_appended(make: Factory) -> None:
    session, tree = make(), DraftTree(9)
    session.extend(PROMPT)
    session.score(tree)
    tree.add(tree.add(0, 11, -1.0), 12, -2.0)
    session.commit([0, 1, 2], [9, 11, 12])
    assert session.length == len(PROMPT) + 3
    assert close(np.array(session.score(DraftTree(7))[0]), plain(make, [*PROMPT, 9, 11, 12, 7]))


@pytest.mark.parametrize("kept", [1, 2, 4, 5, 7])
def test_trimmed_nodes_can_be_other_ones(make: Factory, kept: int) -> None:
    session, tree = make(), branchy()
    session.extend(PROMPT)
    session.score(tree)
    tree.cut(kept)
    session.trim(kept)
    for parent, token in ((0, 31), (kept - 1, 32), (kept, 33)):
        tree.add(parent, token, -9.0)
    rows = np.array(session.score(tree, kept))
    for row, node in zip(rows, range(kept, len(tree)), strict=True):
        assert close(row, plain(make, PROMPT + [tree.tokens[n] for n in tree.path(node)])), node
    path = tree.path(len(tree) - 1)
    tokens = [tree.tokens[node] for node in path]
    session.commit(path, tokens)
    assert close(np.array(session.score(DraftTree(9))[0]), plain(make, [*PROMPT, *tokens, 9]))


def test_scoring_again_forgets_the_tree_before(make: Factory) -> None:
    session = make()
    session.extend(PROMPT)
    session.score(branchy(5))
    assert close(np.array(session.score(DraftTree(9))[0]), plain(make, [*PROMPT, 9]))


def test_rewind_keeps_the_prefix(make: Factory) -> None:
    session = make()
    session.extend([*PROMPT, 100, 101, 102])
    session.score(branchy())
    assert session.rewind(4) == session.length == 4
    session.extend([33])
    assert close(np.array(session.score(DraftTree(9))[0]), plain(make, [*PROMPT[:4], 33, 9]))
    session.rewind(0)
    session.extend(PROMPT)
    assert close(np.array(session.score(DraftTree(9))[0]), plain(make, [*PROMPT, 9]))


def test_long_prompts_go_in_chunks(make: Factory) -> None:
    tokens = [(7 * place) % 900 + 6 for place in range(150)]
    session = make()
    session.extend(tokens)
    assert session.length == 150
    assert close(np.array(session.score(DraftTree(9))[0]), plain(make, [*tokens, 9]))


def test_a_full_context_is_an_error_and_changes_nothing(make: Factory) -> None:
    session = make()
    session.extend([5] * (CONTEXT - 2))
    with pytest.raises(ContextFull):
        session.extend([5, 5, 5])
    with pytest.raises(ContextFull):
        session.score(branchy())
    session.rewind(3)
    assert session.score(branchy()).shape[0] == 8
