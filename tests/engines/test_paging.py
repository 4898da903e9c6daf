"""The paged engine against the same engine reading its own mapping, and every way the paging can fail."""

import ctypes
import errno
import mmap
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgespec.engines.llamacpp.model import LlamaModel
from edgespec.engines.llamacpp.pointers import Graph, Refusal, check_graph
from edgespec.engines.llamacpp.rows import EmbeddingRows
from edgespec.engines.llamacpp.standin import mappings, stand_in, unpopulated
from edgespec.errors import EngineError, ModelChanged, PagingError
from edgespec.memory.layout import PARTS, segment_sizes, spread
from edgespec.memory.resident import Resident
from edgespec.memory.weightfile import WeightFile
from edgespec.modelfile.header import read_model
from edgespec.speculation.tree import DraftTree
from edgespec.types import MemoryPlan, ModelHeader, Paging

TOKENS = [1, 40, 50, 60, 70]


def plan_for(header: ModelHeader, paging: Paging, share: float = 0.4) -> MemoryPlan:
    sizes = segment_sizes(header)
    streamed = tuple(list(sizes)[index] for index in spread(list(sizes.values()), int(share * sum(sizes.values()))))
    return MemoryPlan(1 << 30, paging, 256, 64, 16, "f16", (), len(sizes), streamed, 8 << 20, 0, 0)


@pytest.fixture(scope="module")
def header(inflated_path: Path) -> ModelHeader:
    return read_model(inflated_path)


def tree() -> DraftTree:
    made = DraftTree(9)
    for parent, token in ((0, 11), (0, 12), (1, 13), (2, 14)):
        made.add(parent, token, -1.0)
    return made


def rows_of(model: LlamaModel) -> list[np.ndarray]:
    session = model.session(context=256, chunk=64, max_nodes=16)
    session.extend(TOKENS)
    first = np.array(session.score(tree()))
    session.commit([0, 2], [9, 12])
    second = np.array(session.score(DraftTree(33)))
    session.close()
    return [first, second]


@pytest.fixture(scope="module")
def wanted(header: ModelHeader) -> Iterator[list[np.ndarray]]:
    model = LlamaModel(header, plan_for(header, "mmap"), threads=2)
    yield rows_of(model)
    model.close()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.0])
def test_paged_logits_are_the_engines_own_bit_for_bit(header: ModelHeader, wanted: list[np.ndarray], share: float) -> None:
    model = LlamaModel(header, plan_for(header, "slots", share), threads=2, strict=True)
    assert model.paging == "slots"
    for have, want in zip(rows_of(model), wanted, strict=True):
        np.testing.assert_array_equal(have, want)
    assert model.bytes_read > 0
    model.close()
    model.close()


def test_an_engine_that_only_shows_whole_layers_is_paged_by_layers(
    header: ModelHeader, wanted: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    def picky(graph: Graph, weights: dict[str, tuple[int, ...]], segments: dict[int, list[str]]) -> None:
        if any(key % len(PARTS) != len(PARTS) - 1 for key in segments):
            raise Refusal("no such nodes")
        check_graph(graph, weights, segments)

    monkeypatch.setattr("edgespec.engines.llamacpp.paging.check_graph", picky)
    model = LlamaModel(header, plan_for(header, "slots"), threads=2, strict=True)
    np.testing.assert_array_equal(rows_of(model)[0], wanted[0])
    model.close()


@pytest.mark.parametrize("share", [0.0, 0.4, 0.8, 1.0])
def test_of_whole_layers_as_many_stay_as_the_plan_has_room_for(header: ModelHeader, share: float) -> None:
    plan, file = plan_for(header, "slots", share), WeightFile(header.files)
    fine, whole = (Resident(header, plan, file, fine=kind) for kind in (True, False))
    held = [sum(layout.size for layout, _ in each.pinned) for each in (fine, whole)]
    largest = max(layout.size for layout in whole.streamed.values()) if whole.streamed else 0
    seams = 2 * 4096 * plan.segments  # pages that segments of one layer share
    assert held[0] - largest - seams <= held[1] <= held[0]
    assert bool(whole.streamed) == bool(fine.streamed)
    for each in (fine, whole):
        each.close()
    file.close()


def test_a_graph_in_another_order_is_refused() -> None:
    good = Graph([("a-0", ((1, "blk.0.w"),), 0), ("l_out-0", (), 0), ("b-1", ((2, "blk.1.w"),), 0), ("l_out-1", (), 0)])
    weights, segments = {"blk.0.w": (1,), "blk.1.w": (2,)}, {3: ["blk.0.w"], 7: ["blk.1.w"]}
    check_graph(good, weights, segments)
    early = Graph([("a-0", ((2, "blk.1.w"),), 0), *good.nodes])
    late = Graph([*good.nodes, ("c-1", ((1, "blk.0.w"),), 0)])
    viewed = Graph([("v-0", (), 1), *good.nodes])
    unnamed = Graph(good.nodes[:-1])
    twice = Graph([*good.nodes, ("l_out-1", (), 0)])
    for graph, reason in ((early, "outside"), (late, "outside"), (viewed, "view"), (unnamed, "no node"), (twice, "several")):
        with pytest.raises(Refusal, match=reason):
            check_graph(graph, weights, segments)


def test_the_inflated_model_is_the_small_one(header: ModelHeader, wanted: list[np.ndarray], target_path: Path) -> None:
    model = LlamaModel(read_model(target_path), plan_for(read_model(target_path), "mmap"), threads=2)
    for have, want in zip(rows_of(model), wanted, strict=True):
        np.testing.assert_allclose(have, want, atol=0.05)
    model.close()


def test_a_shifted_expectation_leads_to_the_fallback_or_refusal(header: ModelHeader, wanted: list[np.ndarray]) -> None:
    model = LlamaModel(header, plan_for(header, "slots"), threads=2, shift=32)
    assert model.paging == "mmap"
    assert "truncating the model file" in model.notes[0]
    np.testing.assert_array_equal(rows_of(model)[0], wanted[0])
    model.close()
    with pytest.raises(EngineError, match="drop --strict"):
        LlamaModel(header, plan_for(header, "slots"), threads=2, strict=True, shift=32)


def test_a_missing_compiler_leads_to_the_fallback(header: ModelHeader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgespec.engines.llamacpp.model.native_library", lambda: None)
    model = LlamaModel(header, plan_for(header, "slots"), threads=2)
    assert model.paging == "mmap"
    assert "not built" in model.notes[0]
    model.close()


def test_a_fault_at_every_paging_read_fails_the_pass_cleanly_and_the_next_is_right(
    header: ModelHeader, wanted: list[np.ndarray]
) -> None:
    calls, due = 0, -1

    def read(fd: int, buffers: list[memoryview], offset: int) -> int:
        nonlocal calls
        calls += 1
        if due >= 0 and calls >= due:
            raise OSError(errno.EIO, "Input/output error")
        return os.preadv(fd, buffers, offset)

    model = LlamaModel(
        header, plan_for(header, "slots", 0.7), threads=2, strict=True, file=WeightFile(header.files, read_into=read)
    )
    session = model.session(context=256, chunk=64, max_nodes=16)
    session.extend(TOKENS)
    np.testing.assert_array_equal(session.score(tree()), wanted[0])
    failures = 0
    for ahead in range(1, 40):
        due = calls + ahead
        try:
            session.score(tree())
        except PagingError:
            failures += 1
        due = -1
        assert session.length == len(TOKENS)
        np.testing.assert_array_equal(session.score(tree()), wanted[0])
    assert failures >= 5
    model.close()


def test_an_exception_at_every_callback_emits_nothing_and_the_next_pass_is_right(
    header: ModelHeader, wanted: list[np.ndarray]
) -> None:
    model = LlamaModel(header, plan_for(header, "slots", 0.7), threads=2, strict=True)
    session = model.session(context=256, chunk=64, max_nodes=16)
    session.extend(TOKENS)
    np.testing.assert_array_equal(session.score(tree()), wanted[0])
    real, seen, due = model._callbacks._handler, 0, 0
    assert real is not None

    def handler(layer: int, before: bool, tensor: int) -> None:
        nonlocal seen
        seen += 1
        if seen == due:
            raise ZeroDivisionError(f"callback {due}")
        real(layer, before, tensor)

    model._callbacks._handler = handler
    for nth in range(1, 1000):
        seen, due = 0, nth
        try:
            session.score(tree())
        except ZeroDivisionError:
            np.testing.assert_array_equal(session.score(tree()), wanted[0])
        else:
            break
    assert 10 <= nth == seen + 1
    model.close()


def test_a_file_changed_while_in_use_is_noticed(header: ModelHeader, tmp_path: Path) -> None:
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(Path(header.path).read_bytes())
    changed = read_model(copy)
    model = LlamaModel(changed, plan_for(changed, "slots", 0.2), threads=2, strict=True)
    session = model.session(context=256, chunk=64, max_nodes=16)
    session.extend(TOKENS)
    session.score(tree())
    os.utime(copy, ns=(1, 1))
    layers_ahead = 3  # what the ring holds was read before the change
    with pytest.raises(ModelChanged):
        [session.score(tree()) for _ in range(layers_ahead)]
    model.close()
    with pytest.raises(ModelChanged):
        LlamaModel(changed, plan_for(changed, "slots"), threads=2)


def test_an_interrupted_pass_stops_and_the_timeline_stays(header: ModelHeader, wanted: list[np.ndarray]) -> None:
    from edgespec.errors import Cancelled

    for paging in ("slots", "mmap"):
        model = LlamaModel(header, plan_for(header, paging), threads=2)
        session = model.session(context=256, chunk=64, max_nodes=16)
        session.extend(TOKENS)
        model.interrupt()
        with pytest.raises(Cancelled):
            session.score(tree())
        model.resume()
        np.testing.assert_array_equal(session.score(tree()), wanted[0])
        model.close()


def test_loading_reads_only_what_stays_resident(header: ModelHeader) -> None:
    plan = plan_for(header, "slots", 0.5)
    model = LlamaModel(header, plan, threads=2, strict=True)
    pinned = sum(size for key, size in segment_sizes(header).items() if key not in plan.streamed)
    core = sum(tensor.size + 8192 for tensor in header.core_tensors)
    assert model.bytes_read <= pinned + core + plan.ring_bytes
    model.close()


def test_the_stand_in_has_the_header_and_holes_and_is_gone_afterwards(header: ModelHeader) -> None:
    with stand_in(header) as paths:
        copy = Path(paths[0])
        start = header.header_sizes[0]
        assert copy.stat().st_size == header.files[0].size
        assert copy.stat().st_blocks * 512 < header.files[0].size / 10
        with copy.open("rb") as a, open(header.path, "rb") as b:
            assert a.read(start) == b.read(start)
        assert mappings(paths) == []
    assert not copy.exists()
    with pytest.raises(ModelChanged), stand_in(replace(header, files=(replace(header.files[0], mtime_ns=1),))):
        pass


def test_populating_a_stand_in_is_stopped_and_its_holes_come_back(header: ModelHeader) -> None:
    with stand_in(header) as paths:
        with unpopulated(paths, header), open(paths[0], "rb") as file:
            mapping = mmap.mmap(file.fileno(), header.files[0].size, mmap.MAP_SHARED, mmap.PROT_READ)
            deadline = time.monotonic() + 10
            while os.path.getsize(paths[0]) == header.files[0].size and time.monotonic() < deadline:
                time.sleep(0.001)
            assert os.path.getsize(paths[0]) <= header.header_sizes[0] + 4096
        assert os.path.getsize(paths[0]) == header.files[0].size
        assert mapping[-8:] == bytes(8)
        assert mapping[:4] == b"GGUF"
        mapping.close()


def test_embedding_rows_are_read_on_first_use(header: ModelHeader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgespec.engines.llamacpp.rows.ROW_BUDGET", 64 << 10)
    file = WeightFile(header.files)
    extent = next(tensor for tensor in header.tensors if tensor.name == "token_embd.weight")
    rows = EmbeddingRows(extent, file)
    size = extent.size // extent.shape[1]
    data = Path(header.path).read_bytes()
    for tokens in ([5, 6], [3000], range(0, 200, 20), [5]):
        rows.ensure(tokens)
        for token in tokens:
            start = extent.offset + token * size
            assert ctypes.string_at(rows.address + token * size, size) == data[start : start + size]
    rows.close()
    file.close()
    assert EmbeddingRows.for_model(header, file) is None  # tied, so it stays resident
