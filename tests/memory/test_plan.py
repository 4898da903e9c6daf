"""The plan is arithmetic, so it is tested on toy models with byte-exact sizes and on drawn ones with its promises."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from edgespec.errors import BudgetError, UsageError
from edgespec.memory.layout import PARTS, segment_sizes
from edgespec.memory.plan import Request, make_plan
from edgespec.types import FileIdentity, Item, MemoryPlan, ModelHeader, TensorExtent, Vocabulary

MIB = 1 << 20
VOCABULARY = Vocabulary("gpt2", "x", (b"a",) * 1000, 1, 2)


def model(layer_sizes: list[int], core: int = MIB, **changes: Any) -> ModelHeader:
    offset, tensors = 4096, []
    for name, size in [("token_embd.weight", core), *((f"blk.{i}.attn_q.weight", size) for i, size in enumerate(layer_sizes))]:
        tensors.append(TensorExtent(name, (size,), "I8", 0, offset, size))
        offset += -(-size // 4096) * 4096
    header = ModelHeader(
        (FileIdentity("/m.gguf", 1, 1, offset, 1),), (4096,), "llama", "toy", len(layer_sizes), 64, 128, 2,
        (1,) * len(layer_sizes), 32, 32, 4096, 0, 0, False, VOCABULARY, None, tuple(tensors),
    )  # fmt: skip
    return replace(header, **changes)


def plan(budget: int, target: ModelHeader, drafter: ModelHeader | None = None, context: int | None = 256) -> MemoryPlan:
    return make_plan(Request(budget, target, drafter, 50 * MIB, context))


layers = st.lists(st.integers(1 * MIB, 64 * MIB), min_size=2, max_size=40)


@given(layers, st.integers(60 * MIB, 3000 * MIB), st.booleans())
def test_a_plan_never_exceeds_its_budget_and_accounts_for_every_layer(sizes: list[int], budget: int, drafted: bool) -> None:
    target, drafter = model(sizes), model([2 * MIB] * 2) if drafted else None
    try:
        made = plan(budget, target, drafter)
    except BudgetError as error:
        made = plan(error.minimum or 0, target, drafter)
        budget = error.minimum or 0
    assert made.total <= budget
    slots = segment_sizes(target)
    assert set(made.streamed) <= set(slots)
    assert made.segments == len(slots)
    assert made.minimum <= budget
    assert (made.paging == "resident") == (not made.streamed)
    assert made.streamed_bytes == sum(slots[key] for key in made.streamed)
    if made.streamed:
        assert made.ring_bytes >= max(slots[key] for key in made.streamed)


@given(layers, st.integers(120 * MIB, 2000 * MIB), st.randoms())
def test_layers_that_draft_are_pinned_whole_in_their_order(sizes: list[int], budget: int, random: Random) -> None:
    target, order = model(sizes), list(range(len(sizes)))
    random.shuffle(order)
    request = Request(budget, target, None, 50 * MIB, 256, order=tuple(order))
    try:
        made = make_plan(request)
    except BudgetError:
        return
    assert made.total <= budget
    assert set(made.kept) == set(order[: len(made.kept)])
    assert not {key // len(PARTS) for key in made.streamed} & set(made.kept)
    assert not made.kept or made.streamed
    if made.kept:
        assert next(item.size for item in made.items if item.name == "layers that draft, KV cache") > 0


@given(layers, st.integers(300, 6000))
def test_of_a_drafters_cache_what_it_looks_at_is_in_memory(sizes: list[int], cells: int) -> None:
    target, drafter = model(sizes), model([2 * MIB] * 2, kv_heads=(8, 8), key_size=64, value_size=64)
    asked = Request(4000 * MIB, target, drafter, 50 * MIB, 4096, viewed=(drafter,), draft_cells=cells)

    def cache(request: Request) -> Item:
        return next(item for item in make_plan(request).items if item.name == "drafter, KV cache")

    made, whole = make_plan(asked), cache(replace(asked, draft_cells=0))
    assert (made.draft_cells > 0) == (cells + 256 < 4096) or abs(cells + 256 - 4096) < 512
    if made.draft_cells:
        assert cells < made.draft_cells < 4096
        assert cache(asked).size * 4096 == whole.size * made.draft_cells
        assert "in a file" in cache(asked).note
    else:
        assert cache(asked) == whole


@given(layers, st.integers(60 * MIB, 2000 * MIB), st.integers(1, 500 * MIB))
def test_more_budget_never_streams_more(sizes: list[int], budget: int, more: int) -> None:
    target = model(sizes)
    try:
        small = plan(budget, target)
    except BudgetError:
        assume(False)
    large = plan(budget + more, target)
    assume(small.chunk == large.chunk)  # a wider prompt chunk may be worth a layer
    if max(sizes) <= 2 * min(sizes):
        assert len(large.streamed) <= len(small.streamed)
    slots = segment_sizes(target)  # evenly spaced ones cannot be cut finer than the smallest of them
    assert large.streamed_bytes <= small.streamed_bytes + min((slots[key] for key in large.streamed), default=0)


@given(layers)
def test_the_stated_minimum_works_and_is_the_least(sizes: list[int]) -> None:
    target = model(sizes)
    with pytest.raises(BudgetError) as refused:
        plan(MIB, target)
    minimum = refused.value.minimum
    assert minimum is not None
    assert plan(minimum, target).total <= minimum
    with pytest.raises(BudgetError, match="the minimum is"):
        plan(minimum - 1, target)


def test_the_context_shrinks_to_fit_unless_it_was_asked_for() -> None:
    target = model([4 * MIB] * 8, kv_heads=(64,) * 8, key_size=128, value_size=128)
    room = 200 * MIB
    assert plan(room, target, context=None).context < 4096
    with pytest.raises(BudgetError):
        plan(room, target, context=4096)
    with pytest.raises(UsageError, match="4096"):
        plan(room, target, context=5000)


def test_a_large_untied_embedding_counts_only_its_rows() -> None:
    tied = model([8 * MIB] * 4, core=300 * MIB)
    head = TensorExtent("output.weight", (MIB,), "I8", 0, 1 << 30, MIB)
    untied = replace(tied, tensors=(*tied.tensors, head))
    with pytest.raises(BudgetError):
        plan(200 * MIB, tied)
    assert plan(200 * MIB, untied).paging == "slots"


def test_special_targets_are_announced() -> None:
    for change, word in (
        ({"experts": 8}, "mixture"),
        ({"recurrent": True}, "recurrent"),
        ({"sliding_window": 512}, "attends within"),
    ):
        assert word in plan(400 * MIB, model([4 * MIB] * 4, **change)).notes[0]


def test_what_fits_as_it_is_in_the_file_needs_no_ring() -> None:
    """An embedding that is larger than a layer, and a layout that takes more memory than the file."""
    target = model([MIB] * 4, core=100 * MIB)
    request = Request(0, target, None, 50 * MIB, 256, target_beside=100 * MIB)
    least = plan(1 << 40, target).total  # resident, with nothing beside
    made = make_plan(replace(request, budget=least + 10 * MIB))
    assert (made.paging, made.streamed, made.ring_bytes, made.kept) == ("slots", (), 0, ())
    assert make_plan(replace(request, budget=least + 110 * MIB)).paging == "resident"
    assert make_plan(replace(request, budget=made.minimum)).streamed


@given(st.integers(100, 3000), st.sampled_from([1000, 32_000, 262_144]))
def test_rows_of_a_large_vocabulary_stay_a_small_part_of_the_budget(megabytes: int, tokens: int) -> None:
    target = model([4 * MIB] * 4, vocabulary=replace(VOCABULARY, tokens=(b"a",) * tokens))
    try:
        made = make_plan(Request(megabytes * MIB, target, None, 50 * MIB, 256, max_nodes=32))
    except BudgetError:
        return
    assert made.max_nodes in (32, 15, 7)
    assert made.max_nodes == 7 or 2 * 4 * (made.max_nodes + 1) * tokens <= made.budget // 16
    assert made.max_nodes == 32 or any(f"at most {made.max_nodes} nodes" in note for note in made.notes)


def test_a_target_without_speculation_has_one_row() -> None:
    target = model([4 * MIB] * 4, vocabulary=replace(VOCABULARY, tokens=(b"a",) * 262_144))
    with pytest.raises(BudgetError) as plain:
        make_plan(Request(MIB, target, None, 50 * MIB, 256, max_nodes=0))
    with pytest.raises(BudgetError) as drafted:
        make_plan(Request(MIB, target, None, 50 * MIB, 256, max_nodes=32))
    assert plain.value.minimum
    assert drafted.value.minimum == pytest.approx(plain.value.minimum + 14 * MIB, abs=2 * MIB)
