"""Sessions that look at part of what was said; both engines."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgespec.engines.base import ViewableSession
from edgespec.engines.fake import FakeModel
from edgespec.engines.llamacpp.model import LlamaModel
from edgespec.errors import UsageError
from edgespec.modelfile.header import read_model
from edgespec.speculation.drafting.view import ViewedSession
from edgespec.speculation.retrieval import CHUNK, Rebuild, Shape
from edgespec.speculation.tree import DraftTree

TOKENS = [(37 * place) % 900 + 6 for place in range(400)]
NOISE = 0.25  # logits that flash attention, summing in half precision, moves when chunks are cut elsewhere
Factory = Callable[[], ViewableSession]


@pytest.fixture(scope="module")
def llama(drafter_path: Path) -> Iterator[LlamaModel]:
    model = LlamaModel(read_model(drafter_path), None, threads=2)
    yield model
    model.close()


@pytest.fixture(params=["fake", "llamacpp"])
def make(request: pytest.FixtureRequest) -> Factory:
    if request.param == "fake":
        return lambda: FakeModel(3072, order=300).session(1024)
    model = request.getfixturevalue("llama")
    return lambda: model.session(context=1024, chunk=64, max_nodes=8, voting=(0, model.header.layers - 1))


def row(session: ViewableSession, pending: int = 9) -> np.ndarray:
    return np.array(session.score(DraftTree(pending))[0])


def distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a - b).max())


def filled(make: Factory) -> ViewableSession:
    session = make()
    session.extend(TOKENS)
    session.score(DraftTree(9))  # what was deferred is evaluated now
    return session


def test_looking_at_all_of_it_in_pieces_changes_nothing_and_less_does(make: Factory) -> None:
    session = filled(make)
    full = row(session)
    session.attend([(0, 100), (100, 250), (250, 400)])
    assert distance(row(session), full) < 1e-4
    session.attend([(0, 16), (300, 400)])
    assert distance(row(session), full) > 0.3
    session.attend(None)
    assert distance(row(session), full) < 1e-4


def test_a_tree_survives_a_change_of_view_and_commits_under_it(make: Factory) -> None:
    session = filled(make)
    tree = DraftTree(9)
    tree.add(tree.add(0, 11, -1.0), 12, -2.0)
    tree.add(0, 13, -1.0)
    session.score(tree)
    below, nodes = tree.below(1)
    session.commit([0], [9], nodes)
    session.attend([(0, 16), (300, 401)])
    below.add(1, 14, -3.0)
    session.score(below, 2)
    session.commit([0, 1, 2], [11, 12, 14])
    assert session.length == 404
    assert np.isfinite(row(session)).all()
    assert session.rewind(350) == 350
    fresh = make()
    fresh.extend(TOKENS[:350])
    assert distance(row(session), row(fresh)) < NOISE


def test_keys_and_queries_follow_the_tokens(make: Factory) -> None:
    """A chunk's mean key is what it is however the tokens came: in a prompt, through a tree, or after a rewind."""
    prompted, drafted = make(), make()
    prompted.extend(TOKENS[:64])
    prompted.score(DraftTree(9))
    drafted.extend(TOKENS[:60])
    tree = DraftTree(TOKENS[60])
    node = tree.add(0, 5, -1.0)
    for token in TOKENS[61:64]:
        node = tree.add(node if node != 1 else 0, token, -1.0)
    drafted.score(tree)
    path = tree.path(node)
    drafted.commit(path, [tree.tokens[n] for n in path])
    drafted.score(DraftTree(9))
    (queries, means), (others, other_means) = prompted.attention(CHUNK), drafted.attention(CHUNK)
    assert means.shape[0] == 4
    assert queries.shape[1:] == others.shape[1:]
    assert distance(means, other_means) < 0.02 * np.abs(means).max()


def test_means_are_those_of_what_is_there_now(make: Factory) -> None:
    """Also of chunks that were asked for before and were said anew since."""
    session, fresh = make(), make()
    session.extend(TOKENS[:128])
    session.score(DraftTree(9))
    session.attention(CHUNK)
    session.rewind(40)
    session.extend(TOKENS[200:300])
    fresh.extend([*TOKENS[:40], *TOKENS[200:300]])
    for each in (session, fresh):
        each.score(DraftTree(9))
    (_, means), (_, wanted) = session.attention(CHUNK), fresh.attention(CHUNK)
    assert means.shape == wanted.shape
    assert distance(means, wanted) < 0.02 * np.abs(wanted).max()


def test_a_viewed_session_keeps_within_its_cells_and_chooses_what_is_asked_for(make: Factory) -> None:
    session = filled(make)
    shape = Shape("retrieval", 192, spare=32)
    viewed = ViewedSession(session, shape, Rebuild(stride=32))
    seen: list[Any] = []
    attend = session.attend

    def noted(ranges: Sequence[tuple[int, int]] | None) -> None:
        seen.append(ranges)
        attend(ranges)

    session.attend = noted  # type: ignore[method-assign]
    for token in range(40, 100):
        viewed.score(DraftTree(token))
        viewed.commit([0], [token])
    assert viewed.rebuilds == len(seen) == 2
    for ranges in seen:
        assert sum(stop - start for start, stop in ranges) <= shape.cells - shape.spare
    viewed.extend(TOKENS[:64])  # a prompt: all is in sight again
    assert seen[-1] is None
    assert viewed.rewind(10) == 10


def test_a_fork_drafts_over_the_same_cells(llama: LlamaModel) -> None:
    """It sees what the other session committed, keeps its own subtree, and leaves the other one as it is."""
    layers = (0, llama.header.layers - 1)
    main = llama.session(context=1024, chunk=64, max_nodes=8, voting=layers, forked=True)
    alone = llama.session(context=1024, chunk=64, max_nodes=8, voting=layers)
    fork = main.fork()
    main.extend(TOKENS)
    alone.extend(TOKENS)
    tree = DraftTree(9)
    tree.add(tree.add(0, 11, -1.0), 12, -2.0)
    tree.add(0, 13, -1.0)
    drafted = np.array(fork.score(tree))
    assert distance(drafted, np.array(alone.score(tree))) < NOISE
    assert distance(drafted, np.array(main.score(tree))) < NOISE
    below, nodes = tree.below(1)
    for session in (main, fork):
        session.commit([0], [9], nodes)
    fork.attend([(0, 16), (200, 401)])
    fork.attend(None)
    below.add(1, 14, -3.0)
    kept = np.array(fork.score(below, 2)[0])
    alone.rewind(400)
    alone.extend([9, 11, 12])
    assert distance(kept, row(alone, 14)) < NOISE
    for session in (main, fork):
        session.commit([0, 1], [11, 12])
    alone.rewind(403)
    assert main.length == fork.length == 403
    assert distance(row(fork, 5), row(alone, 5)) < NOISE
    assert distance(row(main, 5), row(alone, 5)) < NOISE
    assert main.rewind(300) == fork.rewind(300) == 300
    alone.rewind(300)
    assert distance(row(fork, 5), row(alone, 5)) < NOISE
    with pytest.raises(UsageError, match="another timeline"):
        main.fork()


def test_views_and_forks_are_refused_where_none_were_asked_for(llama: LlamaModel) -> None:
    session = llama.session(context=256, chunk=64, max_nodes=8)
    for use in (session.fork, lambda: session.attend(None), lambda: session.attention(CHUNK)):
        with pytest.raises(UsageError, match="without"):
            use()
