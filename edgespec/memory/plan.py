"""Pure: from a budget and headers to where every byte goes, and what is streamed.

Nothing here looks at the machine. Refusals state the minimum that would work.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from edgespec.errors import BudgetError, UsageError
from edgespec.memory.budget import format_size
from edgespec.memory.layout import PAGE, PARTS, pin_layers, segment_sizes, spread
from edgespec.memory.resident import ROW_BUDGET, embedding_by_rows
from edgespec.types import Item, KvType, MemoryPlan, ModelHeader, Paging

__all__ = ["DRAFT_CHUNK", "MOST_NODES", "SPOKEN_CONTEXTS", "Request", "make_plan", "resident_cells", "voting_layers"]

KV_STEP = 256  # the engine rounds contexts up to this
DEFAULT_CONTEXT = 4096
MOST_NODES = 32
DRAFT_CHUNK = 64  # tokens of a prompt the drafter reads at a time: short enough for a stall, and little scratch
SPOKEN_CONTEXTS = 2  # contexts' worth of tokens that are remembered to guess from
_SPOKEN_BYTES = 320  # such a token takes
_CHUNKS = (512, 256, 128, 64)
_TOKEN_BYTES = 320  # an engine's tokenizer takes for each token of the vocabulary
_MARGIN = 16 << 20  # allocator slack, thread stacks, tokenizer tables
_HUGE = 2 << 20  # the arena is rounded up to huge pages
_KEY_BYTES = {"f16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}  # per cached number
_KEY_BLOCK = 32  # a head's keys are quantized in blocks of this many


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


def make_plan(request: Request) -> MemoryPlan:
    """The best plan within the budget. Raises BudgetError with the minimum, UsageError for what the model cannot do."""
    if request.kv_type != "f16" and request.target.key_size % _KEY_BLOCK:
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
            if context <= KV_STEP:
                raise
            context = max(KV_STEP, context // 2)


def resident_cells(viewed: int, nodes: int) -> int:
    """What a drafter needs in memory that looks at `viewed` tokens of its context: these, and one pass of any kind."""
    return -(-(viewed + DRAFT_CHUNK + 2 * (nodes + 1)) // KV_STEP) * KV_STEP


def _plan_for(request: Request, context: int) -> MemoryPlan:
    """The widest prompt chunk whose scratch is a small part of the budget, or the narrowest that fits at all."""
    plans: list[MemoryPlan] = []
    for chunk in [chunk for chunk in _CHUNKS if chunk <= max(context, _CHUNKS[-1])]:
        try:
            plan = _with_chunk(request, context, chunk)
        except BudgetError as error:
            if chunk == _CHUNKS[-1] and not plans:
                raise error
            continue
        if _scratch(request.target, context, chunk, request.max_nodes) <= request.budget // 25:
            return plan
        plans.append(plan)
    return plans[-1]


def _draft_cells(request: Request, context: int) -> int:
    """Of a drafter that looks at a part of its context only that is in memory: a pass over more would cost more, too."""
    cells = resident_cells(request.draft_cells, request.max_nodes) if request.draft_cells and request.drafter else 0
    return cells if cells < context else 0


def _with_chunk(request: Request, context: int, chunk: int) -> MemoryPlan:
    target = request.target
    fixed = _fixed_items(request, context, chunk)
    sizes = segment_sizes(target)
    room = request.budget - sum(item.size for item in fixed)
    ring = _ring_bytes(sizes)
    whole = Item("target, all layers", target.weight_bytes + _largest_tensor(target), "resident")
    minimum = request.budget - room + min(whole.size, _core_bytes(target) + _HUGE + ring)
    if whole.size <= room:
        return _finish(request, context, chunk, "resident", [*fixed, whole], (), 0, minimum)
    room -= _core_bytes(target) + _HUGE
    if room < ring:
        raise BudgetError(_refusal(request, context, minimum), minimum)
    drafting, kept, room = _drafting_layers(request, context, sizes, room - ring)
    loose = {key: size for key, size in sizes.items() if key // len(PARTS) not in kept}
    streamed = tuple(list(loose)[index] for index in spread(list(loose.values()), room))
    pinned_bytes = sum(size for key, size in sizes.items() if key not in streamed)
    items = [
        *fixed,
        *drafting,
        Item("target, embedding and head", _core_bytes(target) + _HUGE),
        Item("target, pinned", pinned_bytes, f"{len(sizes) - len(streamed)} of {len(sizes)} segments"),
        Item("target, slots", ring, f"{len(streamed)} segments stream through"),
    ]
    return _finish(request, context, chunk, "slots", items, streamed, ring, minimum, kept)


def _drafting_layers(request: Request, context: int, sizes: dict[int, int], room: int) -> tuple[list[Item], tuple[int, ...], int]:
    """What drafting with the target's own layers takes beside their weights, which of them, and the room then left."""
    target = request.target
    scratch = _scratch(target, context, DRAFT_CHUNK, request.max_nodes)
    beside = scratch + _TOKEN_BYTES * len(target.vocabulary.tokens)
    beside += _voting_bytes(target, context) if request.draft_cells else 0
    left = room - beside
    if not request.order or left <= 0:
        return [], (), room
    cache = max(_kv(replace(target, kv_heads=(heads,)), context, "f16") for heads in target.kv_heads)  # of one layer
    kept, left = pin_layers(sizes, request.order, cache, left)
    if not kept:
        return [], (), room
    items = [
        Item("layers that draft, KV cache", len(kept) * cache, f"{len(kept)} of {target.layers} layers"),
        Item("layers that draft, scratch", beside),
    ]
    return items, kept, left


def _fixed_items(request: Request, context: int, chunk: int) -> list[Item]:
    """What is there whatever the target's residency."""
    target, drafter = request.target, request.drafter
    cells = _draft_cells(request, context)
    items = [
        Item("process", request.process + _MARGIN),
        Item("target, KV cache", _kv(target, context, request.kv_type), f"{context} tokens, keys in {request.kv_type}"),
        Item("target, scratch", _scratch(target, context, chunk, request.max_nodes), f"{chunk} tokens a pass"),
    ]
    if request.spoken:
        items.append(Item("n-grams", SPOKEN_CONTEXTS * context * _SPOKEN_BYTES, f"of {SPOKEN_CONTEXTS * context} tokens"))
    if drafter:
        items += [
            Item("drafter", drafter.weight_bytes + _largest_tensor(drafter), "resident"),
            Item("drafter, KV cache", _kv(drafter, cells or context, "f16"), _aside(context, cells)),
            Item("drafter, scratch", _scratch(drafter, context, DRAFT_CHUNK, request.max_nodes)),
        ]
    for model in request.viewed:
        items.append(Item("keys to choose by", _voting_bytes(model, context), f"of {len(voting_layers(model))} layers"))
    return items


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
    chunk: int,
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
        chunk=chunk,
        max_nodes=request.max_nodes,
        kv_type=request.kv_type,
        items=tuple(items),
        segments=len(sizes),
        streamed=streamed,
        ring_bytes=ring,
        streamed_bytes=streamed_bytes,
        minimum=minimum,
        notes=_notes(target),
        kept=kept,
        draft_cells=_draft_cells(request, context),
    )


def _ring_bytes(sizes: dict[int, int]) -> int:
    """One layer: enough for its segments to overlap reading with computing, and for engines that only show whole layers."""
    layers: Counter[int] = Counter()
    for key, size in sizes.items():
        layers[key // len(PARTS)] += size
    return max(layers.values())


def _notes(target: ModelHeader) -> tuple[str, ...]:
    notes = []
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


def _kv(header: ModelHeader, context: int, keys: KvType) -> int:
    """Keys as asked and values in half precision, for `context` tokens and one tree, rounded as the engine does."""
    cells = -(-context // KV_STEP) * KV_STEP
    return int(cells * sum(header.kv_heads) * (header.key_size * _KEY_BYTES[keys] + header.value_size * 2))


def _scratch(header: ModelHeader, context: int, chunk: int, nodes: int) -> int:
    """Compute buffer: activations and attention scores of one pass, and logits twice; fitted to what the engine reports."""
    width = max(header.width, header.heads * header.key_size)
    cells = -(-context // KV_STEP) * KV_STEP
    activations = 4 * (9 * width + max(9 * header.ffn // 4, header.heads * cells) + 2 * cells)  # one or the other at a time
    logits = 2 * 4 * (nodes + 1) * len(header.vocabulary.tokens)
    return chunk * activations + logits


def _largest_tensor(header: ModelHeader) -> int:
    """Repacking passes each tensor through a staging buffer."""
    return max(tensor.size for tensor in header.tensors)


def _core_bytes(header: ModelHeader) -> int:
    sizes = {tensor.name: tensor.size for tensor in header.core_tensors}
    if by_rows := embedding_by_rows(header):
        sizes[by_rows.name] = ROW_BUDGET
    return sum(-(-size // PAGE) * PAGE + PAGE for size in sizes.values())
