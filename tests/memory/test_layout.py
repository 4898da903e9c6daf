import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.memory.layout import PAGE, PARTS, cut, key_of, lay_out, pin_layers, spread
from edgespec.types import TensorExtent

extents = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 300_000), st.integers(1, 50_000)), min_size=1, max_size=12)


def tensors(spots: list[tuple[int, int, int]]) -> list[TensorExtent]:
    """Tensors one behind the other with the drawn gaps, per file."""
    ends = {0: 0, 1: 0, 2: 0}
    made = []
    for number, (file, gap, size) in enumerate(spots):
        offset = (ends[file] + gap) // 32 * 32 + 32
        made.append(TensorExtent(f"t{number}", (size,), "I8", file, offset, size))
        ends[file] = offset + size
    return made


@given(extents)
def test_every_tensor_lies_whole_inside_what_is_read(spots: list[tuple[int, int, int]]) -> None:
    made = tensors(spots)
    layout = lay_out(made)
    places = dict(layout.places)
    for tensor in made:
        run = next(r for r in layout.runs if r.file == tensor.file and r.offset <= tensor.offset < r.offset + r.size)
        assert tensor.offset + tensor.size <= run.offset + run.size
        assert places[tensor.name] == run.place + tensor.offset - run.offset


@given(extents)
def test_runs_are_page_aligned_and_do_not_overlap(spots: list[tuple[int, int, int]]) -> None:
    layout = lay_out(tensors(spots))
    end = 0
    for run in layout.runs:
        assert run.offset % PAGE == run.size % PAGE == run.place % PAGE == 0
        assert run.place == end
        end += run.size
    assert end == layout.size


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=60), st.integers(0, 40_000))
def test_spread_fits_and_leaves_no_room_that_a_segment_would_fit(sizes: list[int], room: int) -> None:
    streamed = spread(sizes, room)
    pinned = sum(sizes) - sum(sizes[layer] for layer in streamed)
    assert pinned <= room
    assert list(streamed) == sorted(set(streamed))
    assert all(sizes[index] > room - pinned for index in streamed)


@given(st.integers(1, 60), st.integers(0, 70))
def test_spread_of_equal_segments_is_even_and_minimal(count: int, fitting: int) -> None:
    streamed = spread([10] * count, 10 * fitting + 3)
    assert len(streamed) == max(0, count - fitting)
    gaps = [b - a for a, b in itertools.pairwise(streamed)]
    assert not gaps or max(gaps) - min(gaps) <= 1


LLAMA = ["attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"]
GELU = ["attn_norm", "attn_qkv", "attn_output", "ffn_norm", "ffn_up", "ffn_down", "layer_output_norm"]


@pytest.mark.parametrize("kinds", [LLAMA, GELU])
def test_a_layer_is_cut_into_segments_that_hold_every_tensor_once(kinds: list[str]) -> None:
    made = [TensorExtent(f"blk.3.{kind}.weight", (32,), "I8", 0, 4096 * i, 32) for i, kind in enumerate(kinds)]
    fine, whole = cut(3, made, fine=True), cut(3, made, fine=False)
    assert list(fine) == sorted(fine)
    assert {key // len(PARTS) for key in fine} == {3}
    assert sorted(t.name for tensors in fine.values() for t in tensors) == sorted(t.name for t in made)
    assert list(whole) == [key_of(3, len(PARTS) - 1)]
    assert next(t.name for t in fine[key_of(3, 3)]) == "blk.3.ffn_down.weight"
    gate = key_of(3, 1 if "ffn_gate" in kinds else 2)
    assert fine[gate][0].name == "blk.3.ffn_norm.weight"


def test_spread_is_even() -> None:
    assert spread([1] * 12, 9) == (2, 6, 10)
    assert spread([1] * 4, 0) == (0, 1, 2, 3)
    assert spread([1] * 4, 4) == ()


def test_layers_are_pinned_by_their_order_until_one_does_not_fit() -> None:
    sizes = {key_of(0, 0): 5, key_of(0, 1): 5, key_of(1, 0): 30, key_of(2, 0): 10}
    assert pin_layers(sizes, [2, 0, 1], 1, 30) == ((0, 2), 8)
    assert pin_layers(sizes, [1, 0, 2], 1, 30) == ((), 30)
    assert pin_layers(sizes, [], 1, 30) == ((), 30)
