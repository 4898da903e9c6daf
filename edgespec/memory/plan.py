"""Pure: from a budget and headers to where every byte goes, and what is streamed.

Nothing here looks at the machine. Refusals state the minimum that would work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from edgespec.errors import BudgetError, UsageError
from edgespec.memory import needs
from edgespec.memory.budget import format_size
from edgespec.memory.layout import PARTS, pin_layers, segment_sizes, spread
from edgespec.types import Item, KvType, MemoryPlan, ModelHeader, Paging

__all__ = ["DRAFT_CHUNK", "MARGIN", "MOST_NODES", "SPOKEN_CONTEXTS", "Request", "make_plan", "resident_cells", "voting_layers"]

DEFAULT_CONTEXT = 4096
MOST_NODES = 32
DRAFT_CHUNK = 64  # tokens of a prompt the drafter reads at a time: short enough for a stall, and little scratch
SPOKEN_CONTEXTS = 2  # contexts' worth of tokens that are remembered to guess from
_SPOKEN_BYTES = 320  # such a token takes
_CHUNKS = (512, 256, 128, 64)
_FEWER_NODES = (15, 7)  # of trees whose rows of logits would take too much; with the root whole blocks of rows
_CHUNK_SHARE, _LOGITS_SHARE = 25, 16  # one part in so many of the budget may go there
MARGIN = 12 << 20  # what the process takes later: code and modules on first use, allocator slack, stacks
_HUGE = 2 << 20  # the arena is rounded up to huge pages


@dataclass(frozen=True)
class Request:
    """What is asked for. `process` is what the process holds already; `context=None` takes what fits up to 4096."""

    budget: int
    target: ModelHeader
    drafter: ModelHeader | None
    process: int
    context: int | None = None
    max_nodes: int = MOST_NODES
    kv_type: KvType = "f16"
    spoken: bool = False  # whether what is said is remembered to guess from
    viewed: tuple[ModelHeader, ...] = ()  # models that draft from a part of their context, chosen by its keys
    draft_cells: int = 0  # tokens of its context that a drafter in `viewed` looks at
    order: tuple[int, ...] = ()  # layers of a paged target that are to draft, the most influential first
    target_beside: int = 0  # bytes that resident weights take more than in the file, as the engine lays them out
    drafter_beside: int = 0


@dataclass(frozen=True)
class _Passes:
    """How wide passes are: prompt tokens in one, and drafted nodes."""

    chunk: int
    nodes: int


def make_plan(request: Request) -> MemoryPlan:
    """The best plan within the budget. Raises BudgetError with the minimum, UsageError for what the model cannot do."""
    if request.kv_type != "f16" and request.target.key_size % needs.KEY_BLOCK:
        raise UsageError(f"heads of {request.target.key_size} numbers cannot be cached as {request.kv_type}: use --kv-type f16")
    trained = request.target.trained_context or DEFAULT_CONTEXT
    if request.context is not None:
        if not 1 <= request.context <= trained:
            raise UsageError(f"context {request.context} is not within the {trained} tokens the target was trained on")
        return _plan_for(request, request.context)
    context = min(trained, DEFAULT_CONTEXT)
    while True:
        try:
            return _plan_for(request, context)
        except BudgetError:
            if context <= needs.CELLS_STEP:
                raise
            context = max(needs.CELLS_STEP, context // 2)


def resident_cells(viewed: int, nodes: int) -> int:
    """What a drafter needs in memory that looks at `viewed` tokens of its context: these, and one pass of any kind."""
    return -(-(viewed + DRAFT_CHUNK + 2 * (nodes + 1)) // needs.CELLS_STEP) * needs.CELLS_STEP


def _plan_for(request: Request, context: int) -> MemoryPlan:
    """With the widest passes that are worth their memory and fit. Raises BudgetError."""
    *wider, narrowest = _passes(request, context)
    minimum = _minimum(request, context, narrowest)
    if minimum > request.budget:
        raise BudgetError(_refusal(request, context, minimum), minimum)
    passes = next((each for each in wider if _minimum(request, context, each) <= request.budget), narrowest)
    return _with_passes(request, context, passes, minimum)


def _passes(request: Request, context: int) -> Iterator[_Passes]:
    """The widest first, those that take a small part of the budget; the narrowest in any case."""
    nodes = [request.max_nodes, *(few for few in _FEWER_NODES if few < request.max_nodes)]
    chunks = [chunk for chunk in _CHUNKS if chunk <= max(context, _CHUNKS[-1])]
    for some in nodes:
        if some != nodes[-1] and _logits_bytes(request, some) > request.budget // _LOGITS_SHARE:
            continue
        least = _target_scratch(request, context, _Passes(chunks[-1], some))
        for chunk in chunks:
            passes = _Passes(chunk, some)
            if _target_scratch(request, context, passes) - least <= request.budget // _CHUNK_SHARE:
                yield passes


def _logits_bytes(request: Request, nodes: int) -> int:
    """Rows of both models, as they are computed and as they are handed out."""
    target, drafter = request.target, request.drafter
    rows = 2 * needs.output_bytes(target, _target_rows(request, nodes))
    return rows + (2 * needs.output_bytes(drafter, _drafter_rows(request, nodes)) if drafter else 0)


def _target_rows(request: Request, nodes: int) -> int:
    """Sequences of the target's context: a leaf each, the same again where it drafts by itself, and one that has all cells."""
    return 2 * (nodes + 1) + 1 if request.target in request.viewed else nodes + 1


def _drafter_rows(request: Request, nodes: int) -> int:
    return nodes + 1 + (2 if request.viewed else 0)


def _target_scratch(request: Request, context: int, passes: _Passes) -> int:
    rows, viewed = _target_rows(request, passes.nodes), request.target in request.viewed
    return needs.context_bytes(request.target, context, passes.chunk, rows, flash=viewed) + needs.sampling_bytes(request.target)


def _minimum(request: Request, context: int, passes: _Passes) -> int:
    """The least budget with such passes: everything streams, or all stays where that is less."""
    sizes, target = segment_sizes(request.target), request.target
    paged = needs.core_bytes(target) + _HUGE + min(_ring_bytes(sizes), sum(sizes.values()))
    fixed = sum(item.size for item in _fixed_items(request, context, passes))
    return fixed + min(target.weight_bytes + request.target_beside, paged)


def _draft_cells(request: Request, context: int) -> int:
    """Of a drafter that looks at a part of its context only that is in memory: a pass over more would cost more, too."""
    cells = resident_cells(request.draft_cells, request.max_nodes) if request.draft_cells and request.drafter else 0
    return cells if cells < context else 0


def _with_passes(request: Request, context: int, passes: _Passes, minimum: int) -> MemoryPlan:
    """Resident as the engine lays weights out, resident as they are in the file, or streamed: the first that fits."""
    target = request.target
    fixed = _fixed_items(request, context, passes)
    sizes = segment_sizes(target)
    room = request.budget - sum(item.size for item in fixed)
    whole = Item("target, all layers", target.weight_bytes + request.target_beside, "resident")
    if whole.size <= room:
        return _finish(request, context, passes, "resident", [*fixed, whole], (), 0, minimum)
    core = Item("target, embedding and head", needs.core_bytes(target) + _HUGE)
    room -= core.size
    if sum(sizes.values()) <= room:
        pinned = Item("target, all layers", sum(sizes.values()), "resident, as they are in the file")
        return _finish(request, context, passes, "slots", [*fixed, core, pinned], (), 0, minimum)
    ring = _ring_bytes(sizes)
    drafting, kept, room = _drafting_layers(request, context, passes, sizes, room - ring)
    loose = {key: size for key, size in sizes.items() if key // len(PARTS) not in kept}
    streamed = tuple(list(loose)[index] for index in spread(list(loose.values()), room))
    pinned_bytes = sum(size for key, size in sizes.items() if key not in streamed)
    items = [
        *fixed,
        *drafting,
        core,
        Item("target, pinned", pinned_bytes, f"{len(sizes) - len(streamed)} of {len(sizes)} segments"),
        Item("target, slots", ring, f"{len(streamed)} segments stream through"),
    ]
    return _finish(request, context, passes, "slots", items, streamed, ring, minimum, kept)


def _drafting_layers(
    request: Request, context: int, passes: _Passes, sizes: dict[int, int], room: int
) -> tuple[list[Item], tuple[int, ...], int]:
    """What drafting with the target's own layers takes beside their weights, which of them, and the room then left."""
    target = request.target
    beside = (
        needs.context_bytes(target, context, DRAFT_CHUNK, passes.nodes + 1)
        + needs.tokenizer_bytes(target)
        + needs.sampling_bytes(target)
    )
    beside += _voting_bytes(target, context) if request.draft_cells else 0
    left = room - beside
    if not request.order or left <= 0:
        return [], (), room
    cache = max(needs.kv_bytes(replace(target, kv_heads=(heads,)), context, "f16") for heads in target.kv_heads)  # of one layer
    kept, left = pin_layers(sizes, request.order, cache, left)
    if not kept:
        return [], (), room
    items = [
        Item("layers that draft, KV cache", len(kept) * cache, f"{len(kept)} of {target.layers} layers"),
        Item("layers that draft, scratch", beside),
    ]
    return items, kept, left


def _fixed_items(request: Request, context: int, passes: _Passes) -> list[Item]:
    """What is there whatever the target's residency."""
    target, drafter = request.target, request.drafter
    beside = passes.nodes + 1 if target in request.viewed else 0
    items = [
        Item("process", request.process + MARGIN),
        Item("tokenizers", sum(needs.tokenizer_bytes(model) for model in (target, drafter) if model)),
        Item("target, KV cache", needs.kv_bytes(target, context + beside, request.kv_type), _tokens(context, request.kv_type)),
        Item("target, scratch", _target_scratch(request, context, passes), f"{passes.chunk} tokens, {passes.nodes} nodes a pass"),
    ]
    if request.spoken:
        items.append(Item("n-grams", SPOKEN_CONTEXTS * context * _SPOKEN_BYTES, f"of {SPOKEN_CONTEXTS * context} tokens"))
    if drafter:
        items += _drafter_items(request, drafter, context, passes)
    for model in request.viewed:
        items.append(Item("keys to choose by", _voting_bytes(model, context), f"of {len(voting_layers(model))} layers"))
    return items


def _drafter_items(request: Request, drafter: ModelHeader, context: int, passes: _Passes) -> list[Item]:
    cells, viewed = _draft_cells(request, context), drafter in request.viewed and request.draft_cells < context
    rows = _drafter_rows(request, passes.nodes)
    scratch = needs.context_bytes(drafter, cells or context, DRAFT_CHUNK, rows, flash=viewed) + needs.sampling_bytes(drafter)
    return [
        Item("drafter", drafter.weight_bytes + request.drafter_beside, "resident"),
        Item("drafter, KV cache", needs.kv_bytes(drafter, cells or context, "f16"), _aside(context, cells)),
        Item("drafter, scratch", scratch),
    ]


def _tokens(context: int, keys: KvType) -> str:
    return f"{context} tokens, keys in {keys}"


def _voting_bytes(model: ModelHeader, context: int) -> int:
    return 2 * context * len(voting_layers(model)) * model.kv_heads[0] * model.key_size


def _aside(context: int, cells: int) -> str:
    return f"{cells} of {context} tokens, the others in a file until they are looked at" if cells else ""


def voting_layers(model: ModelHeader) -> tuple[int, ...]:
    """Whose attention chooses what a drafter looks at."""
    return (model.layers // 2, model.layers - 1)


def _finish(
    request: Request,
    context: int,
    passes: _Passes,
    paging: Paging,
    items: list[Item],
    streamed: tuple[int, ...],
    ring: int,
    minimum: int,
    kept: tuple[int, ...] = (),
) -> MemoryPlan:
    target = request.target
    sizes = segment_sizes(target)
    streamed_bytes = sum(sizes[key] for key in streamed)
    return MemoryPlan(
        budget=request.budget,
        paging=paging,
        context=context,
        chunk=passes.chunk,
        max_nodes=passes.nodes,
        kv_type=request.kv_type,
        items=tuple(items),
        segments=len(sizes),
        streamed=streamed,
        ring_bytes=ring,
        streamed_bytes=streamed_bytes,
        minimum=minimum,
        notes=_notes(request, passes),
        kept=kept,
        draft_cells=_draft_cells(request, context),
    )


def _ring_bytes(sizes: dict[int, int]) -> int:
    """One layer: enough for its segments to overlap reading with computing, and for engines that only show whole layers."""
    layers: Counter[int] = Counter()
    for key, size in sizes.items():
        layers[key // len(PARTS)] += size
    return max(layers.values())


def _notes(request: Request, passes: _Passes) -> tuple[str, ...]:
    target, notes = request.target, []
    if passes.nodes < request.max_nodes:
        tokens = len(target.vocabulary.tokens)
        notes.append(f"trees have at most {passes.nodes} nodes: a vocabulary of {tokens} tokens makes each of them large")
    if target.recurrent:
        notes.append("the target is recurrent or hybrid: it cannot drop part of a sequence, so it runs without speculation")
    if target.experts:
        notes.append("the target is a mixture of experts: a tree touches most experts, so speculation is off")
    if target.sliding_window:
        notes.append(
            f"the target attends within {target.sliding_window} tokens in some layers; its full KV cache is kept and counted"
        )
    return tuple(notes)


def _refusal(request: Request, context: int, minimum: int) -> str:
    with_drafter = " with its drafter" if request.drafter else ""
    return (
        f"a budget of {format_size(request.budget)} cannot hold {request.target.name}{with_drafter} "
        f"at {context} tokens of context: "
        f"the minimum is {format_size(minimum)}; raise --budget or lower --context"
    )
