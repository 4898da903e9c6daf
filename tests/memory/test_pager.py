import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.errors import ModelChanged, PagingError, UsageError
from edgespec.memory.arena import Arena
from edgespec.memory.layout import PAGE, Layout, Run, lay_out
from edgespec.memory.pager import Pager, _Ring, _Slot
from edgespec.memory.weightfile import WeightFile
from edgespec.types import FileIdentity, TensorExtent

LAYERS = 5


def identity(path: Path) -> FileIdentity:
    stat = path.stat()
    return FileIdentity(str(path), stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)


Weights = tuple[FileIdentity, dict[int, Layout], dict[int, bytes]]


@pytest.fixture
def weights(tmp_path: Path) -> Weights:
    """A file of five layers of different sizes, layer i filled with byte i + 1; the last ends off a page boundary."""
    data, layouts, contents = bytearray(100), {}, {}
    for layer in range(LAYERS):
        size = 3000 + 5000 * layer
        layouts[layer] = lay_out([TensorExtent(f"blk.{layer}.w", (size,), "I8", 0, len(data), size)])
        contents[layer] = bytes([layer + 1]) * size
        data += contents[layer]
    path = tmp_path / "weights"
    path.write_bytes(data)
    return identity(path), layouts, contents


def sweep(pager: Pager, arena_view: memoryview, base: int, layouts: dict[int, Layout], contents: dict[int, bytes]) -> None:
    for layer in range(LAYERS):
        start = pager.acquire(layer) - base + layouts[layer].places[0][1]
        assert bytes(arena_view[start : start + len(contents[layer])]) == contents[layer]
        pager.release(layer)


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("pages", [7, 12, 40])
def test_sweeps_see_every_layer_whole_and_in_order(weights: Weights, pages: int, direct: bool) -> None:
    file_id, layouts, contents = weights
    file, arena = WeightFile([file_id], direct=direct), Arena(pages * PAGE)
    ring = arena.take(pages * PAGE)
    pager = Pager(file, layouts, range(LAYERS), ring)
    for _ in range(4):
        sweep(pager, ring.view, ring.address, layouts, contents)
    pager.acquire(0)  # a sweep that was aborted after its first layer
    sweep(pager, ring.view, ring.address, layouts, contents)
    pager.close()
    pager.close()
    file.close()


class Flaky:
    """Reads that go wrong at the n-th call, once or from then on."""

    def __init__(self, nth: int, *, forever: bool, fault: Callable[[list[memoryview]], int]) -> None:
        self.nth, self.forever, self.fault, self.calls = nth, forever, fault, 0

    def __call__(self, fd: int, buffers: list[memoryview], offset: int) -> int:
        self.calls += 1
        if self.calls == self.nth or (self.forever and self.calls > self.nth):
            return self.fault(buffers)
        return os.preadv(fd, buffers, offset)


def io_error(buffers: list[memoryview]) -> int:
    raise OSError(errno.EIO, "Input/output error")


def short(buffers: list[memoryview]) -> int:
    return 0


@pytest.mark.parametrize("fault", [io_error, short])
@pytest.mark.parametrize("forever", [False, True])
def test_a_fault_at_every_read_is_retried_or_raised_and_the_pager_stays_usable(
    weights: Weights, fault: Callable[[list[memoryview]], int], forever: bool
) -> None:
    file_id, layouts, contents = weights
    nth = 0
    while True:
        nth += 1
        flaky = Flaky(nth, forever=forever, fault=fault)
        file, arena = WeightFile([file_id], read_into=flaky), Arena(16 * PAGE)
        ring = arena.take(16 * PAGE)
        pager = Pager(file, layouts, range(LAYERS), ring)
        try:
            sweep(pager, ring.view, ring.address, layouts, contents)
            failed = False
        except PagingError:
            failed = True
        assert failed == (forever and flaky.calls >= nth and nth <= LAYERS)
        flaky.forever, flaky.nth = False, -1
        with suppress(PagingError):  # what was read ahead may have failed too, and says so once
            pager.acquire(0)
        sweep(pager, ring.view, ring.address, layouts, contents)
        pager.close()
        file.close()
        if nth > LAYERS:
            return


def test_a_changed_file_is_detected(weights: Weights) -> None:
    file_id, layouts, _ = weights
    file, arena = WeightFile([file_id]), Arena(16 * PAGE)
    os.utime(file_id.path, ns=(1, 1))
    pager = Pager(file, layouts, range(LAYERS), arena.take(16 * PAGE))
    with pytest.raises(ModelChanged, match="changed while in use"):
        pager.acquire(0)
    pager.close()
    file.close()


def test_a_truncated_file_is_an_error_not_a_bus_error(weights: Weights) -> None:
    file_id, layouts, _ = weights
    file = WeightFile([file_id])
    os.truncate(file_id.path, 10)
    with pytest.raises((ModelChanged, PagingError)):
        file.read(layouts[3].runs[0], Arena(64 * PAGE).take(64 * PAGE).view)
    file.close()


def test_errors_of_any_kind_reach_the_caller(weights: Weights) -> None:
    file_id, layouts, _ = weights

    def broken(fd: int, buffers: list[memoryview], offset: int) -> int:
        raise ZeroDivisionError

    file, arena = WeightFile([file_id], read_into=broken), Arena(16 * PAGE)
    pager = Pager(file, layouts, range(LAYERS), arena.take(16 * PAGE))
    with pytest.raises(PagingError, match="ZeroDivisionError"):
        pager.acquire(0)
    pager.close()
    with pytest.raises(PagingError, match="closed"):
        pager.acquire(0)
    file.close()


def test_the_reader_runs_ahead_while_nobody_computes(weights: Weights) -> None:
    file_id, layouts, _ = weights
    file, arena = WeightFile([file_id]), Arena(64 * PAGE)
    pager = Pager(file, layouts, range(LAYERS), arena.take(64 * PAGE))
    total = sum(layouts[layer].size for layer in range(LAYERS))
    deadline = time.monotonic() + 10
    while file.bytes_read < total - PAGE and time.monotonic() < deadline:
        time.sleep(0.001)
    assert file.bytes_read >= total - PAGE
    pager.close()
    file.close()


@given(st.integers(1, 40), st.lists(st.tuples(st.booleans(), st.integers(1, 20)), max_size=80))
def test_ring_slots_never_overlap(size: int, steps: list[tuple[bool, int]]) -> None:
    ring = _Ring(size)
    for free, wanted in steps:
        if free and ring.slots:
            ring.slots.popleft()
        elif (start := ring.place(wanted)) is not None:
            assert 0 <= start <= start + wanted <= size
            assert all(start + wanted <= s.start or s.start + s.size <= start for s in ring.slots)
            ring.slots.append(_Slot(0, start, wanted))
        elif not ring.slots:
            assert wanted > size


def test_a_ring_too_small_for_a_layer_is_refused(weights: Weights) -> None:
    file_id, layouts, _ = weights
    file = WeightFile([file_id])
    with pytest.raises(PagingError, match="cannot hold"):
        Pager(file, layouts, range(LAYERS), Arena(PAGE).take(PAGE))
    file.close()


def test_arena_refuses_more_than_it_has() -> None:
    arena = Arena(2 * PAGE)
    arena.take(PAGE + 1)
    with pytest.raises(UsageError, match="plan is wrong"):
        arena.take(1)


def test_a_closed_arena_gives_its_memory_back_whoever_holds_a_piece() -> None:
    arena = Arena(64 << 20)
    piece = arena.take(64 << 20)
    piece.view[:] = b"x" * len(piece.view)
    used = psutil.Process().memory_info().rss
    arena.close()
    assert psutil.Process().memory_info().rss < used - (60 << 20)


def test_file_systems_without_direct_reads_are_read_through_the_cache(weights: Weights) -> None:
    file_id, layouts, contents = weights

    def refuses_direct(fd: int, buffers: list[memoryview], offset: int) -> int:
        import fcntl

        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return os.preadv(fd, buffers, offset)

    file, view = WeightFile([file_id], read_into=refuses_direct), Arena(64 * PAGE).take(64 * PAGE).view
    file.read(layouts[2].runs[0], view)
    start = layouts[2].places[0][1]
    assert bytes(view[start : start + len(contents[2])]) == contents[2]
    assert not file.direct
    file.close()


def test_runs_past_the_end_of_the_file_read_what_is_there(weights: Weights) -> None:
    file_id, _, _ = weights
    file, view = WeightFile([file_id]), Arena(64 * PAGE).take(64 * PAGE).view
    last = file_id.size // PAGE * PAGE
    file.read(Run(0, last, PAGE, 0), view)
    assert bytes(view[: file_id.size - last]) == Path(file_id.path).read_bytes()[last:]
    file.close()


def slow(fd: int, buffers: list[memoryview], offset: int) -> int:
    time.sleep(0.02)
    return os.preadv(fd, buffers, offset)


def test_waits_are_offered_with_the_time_the_reader_needs_alone(weights: Weights) -> None:
    file_id, layouts, contents = weights
    file, arena = WeightFile([file_id], read_into=slow), Arena(16 * PAGE)
    ring = arena.take(16 * PAGE)
    pager = Pager(file, layouts, range(LAYERS), ring)
    offered: list[float] = []

    def idle(seconds: float) -> bool:
        offered.append(seconds)
        time.sleep(0.002)
        return True

    for _ in range(3):
        for layer in range(LAYERS):
            start = pager.acquire(layer, idle) - ring.address + layouts[layer].places[0][1]
            assert bytes(ring.view[start : start + len(contents[layer])]) == contents[layer]
            pager.release(layer)
    assert offered[0] == 0.0  # nothing is known of the disk yet
    assert any(seconds > 0.01 for seconds in offered)
    assert pager.idle_seconds > 0.01
    assert pager.wait_seconds >= 0
    pager.close()
    file.close()


def test_who_has_nothing_to_do_is_asked_once_a_wait(weights: Weights) -> None:
    file_id, layouts, _ = weights
    file, arena = WeightFile([file_id], read_into=slow), Arena(16 * PAGE)
    pager = Pager(file, layouts, range(LAYERS), arena.take(16 * PAGE))
    asked: list[float] = []

    def nothing(seconds: float) -> bool:
        asked.append(seconds)
        return False

    for layer in range(LAYERS):
        pager.acquire(layer, nothing)
        pager.release(layer)
    assert 1 <= len(asked) <= LAYERS
    pager.close()
    file.close()


def test_what_the_idle_work_raises_leaves_the_wait_and_the_pager_stays_usable(weights: Weights) -> None:
    file_id, layouts, contents = weights
    file, arena = WeightFile([file_id], read_into=slow), Arena(16 * PAGE)
    ring = arena.take(16 * PAGE)
    pager = Pager(file, layouts, range(LAYERS), ring)

    def failing(seconds: float) -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        pager.acquire(0, failing)
    sweep(pager, ring.view, ring.address, layouts, contents)
    pager.close()
    file.close()
