"""Chunks of a drafter's context that are in a file."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from test_views import NOISE, TOKENS, distance, row

from edgespec.engines.llamacpp.model import LlamaModel
from edgespec.engines.llamacpp.session import LlamaSession
from edgespec.engines.llamacpp.spill import Spill
from edgespec.errors import ContextFull, PagingError
from edgespec.modelfile.header import read_model
from edgespec.speculation.drafting.view import ViewedSession
from edgespec.speculation.retrieval import CHUNK, Shape
from edgespec.speculation.tree import DraftTree

CELLS = 512
WINDOW = [(0, 16), (300, 400)]


@pytest.fixture(scope="module")
def model(drafter_path: Path) -> Iterator[LlamaModel]:
    model = LlamaModel(read_model(drafter_path), None, threads=2)
    yield model
    model.close()


def session_of(model: LlamaModel, resident: int = CELLS) -> LlamaSession:
    return model.session(context=4096, chunk=64, max_nodes=8, voting=(0, model.header.layers - 1), resident=resident)


def spill_of(session: LlamaSession) -> Spill:
    assert session.spill is not None
    return session.spill


def filled(model: LlamaModel, resident: int = CELLS) -> LlamaSession:
    session = session_of(model, resident)
    session.extend(TOKENS)
    session.score(DraftTree(9))  # what was deferred is evaluated now
    return session


def test_what_comes_back_is_what_went(model: LlamaModel) -> None:
    session = filled(model)
    full = row(session)
    session.attend(WINDOW)
    assert spill_of(session).resident < 150
    alone = row(session)
    assert distance(alone, full) > 0.3
    session.attend([(0, 400)])
    assert spill_of(session).resident == 400
    assert distance(row(session), full) < NOISE
    session.attend([(0, 16), (96, 128), (300, 400)])
    everything = model.session(context=4096, chunk=64, max_nodes=8, voting=(0, model.header.layers - 1))
    everything.extend(TOKENS)
    everything.score(DraftTree(9))
    everything.attend([(0, 16), (96, 128), (300, 400)])
    assert distance(row(session), row(everything)) < NOISE
    session.close()
    everything.close()


def test_a_context_much_longer_than_its_cells(model: LlamaModel) -> None:
    viewed = ViewedSession(session := session_of(model), Shape("retrieval", 256))
    viewed.extend(TOKENS * 5)
    assert viewed.capacity == 4096
    pending = 9
    for _ in range(30):
        tree = DraftTree(pending)
        tree.add(0, 11, -1.0)
        tree.add(0, 12, -1.0)
        rows = viewed.score(tree)
        assert np.isfinite(rows).all()
        viewed.commit([0, 2], [pending, 12])
        pending = int(rows[2].argmax())
        assert spill_of(session).resident <= CELLS
    assert viewed.length == 2060
    assert spill_of(session).brought > 0
    with pytest.raises(ContextFull):
        viewed.extend([5] * 3000)
    session.close()


@pytest.mark.parametrize("length", [1999, 1500, 404, 16, 5, 0])
def test_rewinding_brings_back_what_comes_before(model: LlamaModel, length: int) -> None:
    session = filled(model)
    session.extend(TOKENS * 4)
    session.score(DraftTree(9))
    assert session.rewind(length) == length
    assert spill_of(session).resident <= CELLS
    session.extend([7, 8])
    assert np.isfinite(row(session)).all()
    short = session_of(model)
    short.extend((TOKENS * 5)[:length])
    short.extend([7, 8])
    if length < CELLS // 2:  # all of it is in view again, as it is in a session that never saw more
        assert distance(row(session), row(short)) < NOISE
    session.close()
    short.close()


def test_a_disk_that_fails_is_an_error_and_nothing_is_lost(model: LlamaModel, monkeypatch: pytest.MonkeyPatch) -> None:
    session = filled(model)
    full = row(session)

    def fails(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fails)
        with pytest.raises(PagingError, match=r"No space left.*free some disk space"):
            session.attend(WINDOW)
        patch.setattr(os, "pwrite", lambda *_: 1)
        with pytest.raises(PagingError, match="in part only"):
            session.attend(WINDOW)
    assert distance(row(session), full) < NOISE
    session.attend(WINDOW)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", fails)
        with pytest.raises(PagingError, match="check the disk"):
            session.attend([(0, 400)])
        patch.setattr(os, "pread", lambda *_: b"short")
        with pytest.raises(PagingError, match="cannot be read back whole"):
            session.attend([(0, 400)])
    session.attend([(0, 400)])
    assert distance(row(session), full) < NOISE
    session.close()


def test_the_file_has_no_name(model: LlamaModel, cache: Path) -> None:
    session = filled(model)
    before = sorted(cache.rglob("*"))
    session.attend(WINDOW)
    assert spill_of(session).evicted == (300 - 16) // CHUNK
    assert sorted(cache.rglob("*")) == before
    session.close()
