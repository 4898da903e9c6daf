"""The wiring: from file names and a budget to loaded models, in the order that refuses bad input before any loading."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Set
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from edgespec.cache import cache_folder
from edgespec.calibration import Calibrator
from edgespec.engines.llamacpp.model import LlamaModel
from edgespec.engines.llamacpp.repack import beside_the_file
from edgespec.errors import PagingError, UsageError
from edgespec.layers import layer_order, measured_influence
from edgespec.memory.budget import parse_budget, read_limits, resident_bytes
from edgespec.memory.costs import Corrections, CostModel
from edgespec.memory.cpu import usable_threads
from edgespec.memory.heap import give_back
from edgespec.memory.learned import recall, remember
from edgespec.memory.pagefile import PageFile
from edgespec.memory.plan import MARGIN, MOST_NODES, Request, make_plan
from edgespec.modelfile.header import check_pair, read_model
from edgespec.repacking import existing_pages, make_pages, repackable
from edgespec.shipped import embedded_model
from edgespec.speculation.policy import AutoPolicy
from edgespec.timeline import OFF, Timeline
from edgespec.types import Expected, KvType, MemoryPlan, ModelHeader, Pages, Stage

__all__ = [
    "Loaded", "Options", "Prepared", "auto_policy", "corrections", "expected", "keep_corrections", "keep_policy", "load_models",
    "prepare", "preview", "with_pages",
]  # fmt: skip

_VERIFIED = 16  # rows of a usual tree
_WORTHWHILE = 1.15  # times as fast must the repacked kernels be for a page file
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """What a user asks for; None means: decide for me."""

    target: str | os.PathLike[str] | None = None
    drafter: str | os.PathLike[str] | None = None
    budget: str | int | None = None
    context: int | None = None
    threads: int | None = None
    strict: bool = False
    kv_type: KvType = "f16"
    pages: Pages = "auto"
    stages: tuple[Stage, ...] = ("ngram", "drafter")
    draft_cells: int = 0  # of its context the drafter looks at; 0: all of it


@dataclass(frozen=True)
class Prepared:
    """Everything decided, nothing loaded."""

    target: ModelHeader
    drafter: ModelHeader | None
    plan: MemoryPlan
    costs: CostModel
    threads: int
    strict: bool
    notes: tuple[str, ...]
    pages: PageFile | None = None

    @property
    def pair_key(self) -> str:
        """Names what acceptance depends on: both files."""
        models = [model for model in (self.target, self.drafter) if model]
        return " ".join(f"{file.path}:{file.size}:{file.mtime_ns}" for model in models for file in model.files)

    @property
    def key(self) -> str:
        """Names what running costs depend on: both files, what is streamed, and the threads."""
        repacked = " repacked" if self.pages else ""
        return f"{self.pair_key} streamed {self.plan.streamed_bytes}{repacked} x{self.threads}"


@dataclass(frozen=True)
class Loaded:
    """Both models, closed together."""

    prepared: Prepared
    target: LlamaModel
    drafter: LlamaModel | None

    @property
    def models(self) -> tuple[LlamaModel, ...]:
        """The drafter first, which may use the target's bytes."""
        return (self.drafter, self.target) if self.drafter else (self.target,)

    def interrupt(self) -> None:
        """End the running pass and all later ones until `resume`; safe from any thread."""
        for model in self.models:
            model.interrupt()

    def resume(self) -> None:
        for model in self.models:
            model.resume()

    def close(self) -> None:
        """Interrupt what runs, wait for it, then free everything in order; idempotent."""
        self.interrupt()
        for model in self.models:
            model.close()
        give_back()


def prepare(options: Options, progress: Progress = lambda text: None) -> Prepared:
    """Check the arguments, the files, the pair and the budget. Reads headers and measures once what it must know."""
    if options.threads is not None and not 1 <= options.threads <= 512:
        raise UsageError(f"threads={options.threads} is out of range: 1 to 512")
    budget = parse_budget(options.budget, read_limits())
    target_path, drafter_path = _paths(options)
    target = read_model(target_path)
    drafter = read_model(drafter_path) if drafter_path is not None else None
    if drafter:
        check_pair(target, drafter)
    threads = options.threads or usable_threads()
    calibrator = _calibrator(threads, budget, progress)
    stages = _usable_stages(target, options)
    request = _request(options, stages, budget, target, drafter)
    plan = make_plan(request)
    if "self" in stages and plan.paging != "resident":
        raise UsageError("a target that drafts by itself must fit the memory: raise --budget, or leave the stage self out")
    if "layers" in stages and plan.streamed:
        progress("finding the layers that matter")
        order = layer_order(measured_influence(target, plan, threads))
        give_back()
        request = replace(request, order=order, process=resident_bytes())
        plan = make_plan(request)
    notes = [*_notes(options, stages, target, request.drafter, plan)]
    pages = existing_pages(target) if plan.paging == "slots" and options.pages == "auto" else None
    if pages:
        notes.append(f"paging repacked weights from {pages.identity.path}")
        request = replace(request, target=pages.weights(target))
        plan = make_plan(request)
    costs = calibrator.costs(target, request.drafter, plan, repacked=bool(pages), probe=target.files[0])
    left = resident_bytes() - MARGIN  # measuring may have left more than the plan leaves room for
    plan = make_plan(replace(request, process=max(request.process, left)))
    notes += [*plan.notes, *calibrator.notes]
    return _corrected(Prepared(target, request.drafter, plan, costs, threads, options.strict, tuple(notes), pages))


def _paths(options: Options) -> tuple[str | os.PathLike[str], str | os.PathLike[str] | None]:
    if options.target is not None:
        return options.target, options.drafter
    if options.drafter is not None:
        raise UsageError("a drafter without a target: name the target too")
    return embedded_model("target"), embedded_model("drafter")


def _usable_stages(target: ModelHeader, options: Options) -> Set[Stage]:
    """Trees are for targets that can drop part of a sequence, and go over few weights for many tokens."""
    return set() if target.recurrent or target.experts else set(options.stages)


def _request(options: Options, stages: Set[Stage], budget: int, target: ModelHeader, drafter: ModelHeader | None) -> Request:
    drafter = drafter if "drafter" in stages else None
    give_back()  # what reading headers took
    return Request(
        budget, target, drafter, resident_bytes(), options.context,
        max_nodes=MOST_NODES if drafter or stages - {"drafter"} else 0,
        kv_type=options.kv_type,
        spoken=bool(stages & {"ngram", "datastore"}),
        viewed=((drafter,) if drafter and options.draft_cells else ()) + ((target,) if "self" in stages else ()),
        draft_cells=options.draft_cells,
        target_beside=beside_the_file(target),
        drafter_beside=beside_the_file(drafter) if drafter else 0,
    )  # fmt: skip


def _notes(
    options: Options, stages: Set[Stage], target: ModelHeader, drafter: ModelHeader | None, plan: MemoryPlan
) -> Iterator[str]:  # fmt: skip
    """What a user may not expect."""
    if not target.chat_template:
        yield (
            "the model has no chat template, it is not made for chat: `run` continues the prompt as it is, "
            "messages reach it as lines such as 'user: hello'"
        )
    if options.target is None:
        yield "no --target given: using the small pair that ships with edgespec"
    if stages and not (drafter or stages & {"self", "layers"}):
        spoken = stages & {"ngram", "datastore"}
        yield "no drafter: " + ("guesses come from what was said before" if spoken else "speculation is off")
    if "layers" in stages and not plan.kept:
        yield "no layers draft: " + ("none fits the budget" if plan.streamed else "all are resident")


def with_pages(prepared: Prepared, options: Options, progress: Progress) -> Prepared:
    """Make the page file that `prepared` could use and does not have, if verifying is so much faster with it.

    Without room for it the plain layout is paged, with a note.
    """
    if prepared.plan.paging != "slots" or options.pages != "auto" or prepared.pages:
        return prepared
    if not repackable(prepared.target):
        return prepared
    fast = _calibrator(prepared.threads, prepared.plan.budget, progress).passes(prepared.target, repacked=True)
    if prepared.costs.target.seconds(_VERIFIED) < _WORTHWHILE * fast.seconds(_VERIFIED):
        return prepared
    try:
        return prepare(options, progress) if make_pages(prepared.target, progress) else prepared
    except PagingError as error:
        return replace(prepared, notes=(*prepared.notes, f"paging weights as they are: {error}"))


def preview(target: ModelHeader, drafter: ModelHeader | None, options: Options, progress: Progress) -> Prepared:
    """As `prepare`, for models of which only the headers are here, on the disk that edgespec itself is on.

    Raises PairMismatch and BudgetError as `prepare` does.
    """
    if drafter:
        check_pair(target, drafter)
    threads = options.threads or usable_threads()
    budget, stages = parse_budget(options.budget, read_limits()), _usable_stages(target, options)
    calibrator = _calibrator(threads, budget, progress)
    request = _request(options, stages, budget, target, drafter)
    plan, probe = make_plan(request), read_model(embedded_model("target")).files[0]
    costs = calibrator.costs(target, request.drafter, plan, repacked=False, probe=probe)
    return Prepared(target, request.drafter, plan, costs, threads, options.strict, (*plan.notes, *calibrator.notes))


def _calibrator(threads: int, budget: int, progress: Progress) -> Calibrator:
    return Calibrator(threads, budget, lambda: read_model(embedded_model("target")), progress)


def expected(prepared: Prepared) -> Expected:
    """What to expect of a run, by calibrated costs and by what earlier runs of this pair taught."""
    policy = auto_policy(prepared)
    drafts = prepared.drafter or prepared.plan.kept
    return Expected(policy.plain_rate, *policy.expected_range()) if drafts else Expected(policy.plain_rate)


def auto_policy(prepared: Prepared, manner: str = "") -> AutoPolicy:
    """The measured policy for this pair under this plan, begun with what earlier runs in the same manner learned."""
    policy = AutoPolicy(
        sweep_cost=prepared.costs.sweep,
        draft_cost=prepared.costs.drafting(1),
        largest=min(prepared.plan.max_nodes, MOST_NODES - 1),  # with the root, whole blocks of rows
    )
    policy.begin_with(recall(_learned(), prepared.pair_key + manner) | recall(_learned(), prepared.key))
    return policy


def keep_policy(prepared: Prepared, policy: AutoPolicy, manner: str = "") -> None:
    """Remember what a run taught, for the next `auto_policy`."""
    remember(_learned(), prepared.pair_key + manner, policy.acceptance)
    remember(_learned(), prepared.key, policy.costs)


def corrections(prepared: Prepared) -> Corrections:
    """What rounds took, in earlier runs of this pair under this plan, over what was predicted."""
    return Corrections(recall(_learned(), f"{prepared.key} rounds"))


def keep_corrections(prepared: Prepared, learned: Corrections) -> None:
    """For the next `corrections`."""
    if learned.tables:
        remember(_learned(), f"{prepared.key} rounds", learned.tables)


def _corrected(prepared: Prepared) -> Prepared:
    return replace(prepared, costs=prepared.costs.corrected(corrections(prepared)))


def _learned() -> Path:
    return cache_folder() / "learned.json"


def load_models(prepared: Prepared, progress: Progress = lambda text: None, timeline: Timeline = OFF) -> Loaded:
    """Load both models as planned. Raises EngineError, PagingError or ModelChanged; leaves nothing behind then."""
    with ExitStack() as undo:
        drafter = None
        if prepared.drafter:
            progress("loading the drafter")
            drafter = LlamaModel(prepared.drafter, None, threads=prepared.threads)
            undo.callback(drafter.close)
        progress(f"loading the target ({prepared.plan.paging})")
        target = LlamaModel(
            prepared.target, prepared.plan, threads=prepared.threads, strict=prepared.strict, pages=prepared.pages,
            timeline=timeline,
        )  # fmt: skip
        undo.callback(target.close)
        if prepared.plan.kept:
            drafter = target.shallow()
        undo.pop_all()
    give_back()  # what reading vocabularies took
    return Loaded(prepared, target, drafter)
