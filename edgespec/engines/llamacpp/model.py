"""A loaded llama.cpp model: weights, how they are kept, its tokenizer, and the sessions over it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any

from edgespec.engines.lanes import Lanes
from edgespec.engines.llamacpp import crash
from edgespec.engines.llamacpp.callbacks import Callbacks
from edgespec.engines.llamacpp.capture import Capture
from edgespec.engines.llamacpp.cells import Cells
from edgespec.engines.llamacpp.kernels import rounding_of
from edgespec.engines.llamacpp.library import engine_version, llama
from edgespec.engines.llamacpp.native import native_library
from edgespec.engines.llamacpp.paging import Observer, PagedWeights, load_paged
from edgespec.engines.llamacpp.params import load_file
from edgespec.engines.llamacpp.pointers import Refusal
from edgespec.engines.llamacpp.repack import repacked_when_resident
from edgespec.engines.llamacpp.sampler import LlamaSampler
from edgespec.engines.llamacpp.session import LlamaSession
from edgespec.engines.llamacpp.shallow import load_shallow
from edgespec.engines.llamacpp.spill import Spill
from edgespec.engines.llamacpp.tokenizer import LlamaTokenizer
from edgespec.errors import EngineError, ModelChanged
from edgespec.memory.pagefile import PageFile
from edgespec.memory.pager import Pager
from edgespec.memory.weightfile import WeightFile
from edgespec.modelfile.header import unchanged
from edgespec.modelfile.layers import some_layers
from edgespec.modelfile.quants import number_of
from edgespec.timeline import OFF, Timeline
from edgespec.types import KvType, MemoryPlan, ModelHeader, Paging, SamplingParams

__all__ = ["LlamaModel"]

_log = logging.getLogger(__name__)


class LlamaModel:
    """Close order: sessions, then this (pager, slots, engine model). One pass at a time.

    `observe` is shown what leaves each layer of a paged model. `shift` displaces the self-check's expectation and `file`
    replaces the reader; both are for fault tests.
    """

    def __init__(
        self, header: ModelHeader, plan: MemoryPlan | None, *, threads: int, strict: bool = False,
        pages: PageFile | None = None, file: WeightFile | None = None, shift: int = 0, timeline: Timeline = OFF,
        observe: Observer | None = None, lender: LlamaModel | None = None,
    ) -> None:  # fmt: skip
        self.header, self._plan, self._threads = header, plan, threads
        self._pages, self._timeline = pages, timeline
        self._observe, self._lender = observe, lender
        self._sessions: list[LlamaSession] = []
        self._file = file
        self._paged: PagedWeights | None = None
        self.paging: Paging = plan.paging if plan else "resident"
        self.notes: list[str] = []
        if not all(unchanged(identity) for identity in header.files):
            raise ModelChanged(f"{header.path} was changed since it was checked: load it again")
        self.engine = engine_version()
        self._stage = f"in a pass over {header.name} with {self.engine}"
        crash.stage(f"loading {header.name} with {self.engine}")
        self._model: Any = self._load(plan, strict, shift)
        self.rounding = rounding_of(header, self._repacked())
        self._callbacks = self._paged.callbacks if self._paged else Callbacks(header.layers)
        self.tokenizer = LlamaTokenizer(self._model)

    def shallow(self) -> LlamaModel:
        """The model of the layers that the plan keeps to draft with, on this model's bytes; close it before this one.

        Raises EngineError where the engine does not let that happen.
        """
        kept = self._plan.kept if self._plan else ()
        return LlamaModel(some_layers(self.header, kept), None, threads=self._threads, lender=self)

    def _load(self, plan: MemoryPlan | None, strict: bool, shift: int) -> Any:
        if self._lender:
            return self._lender._lend()
        if plan is None or plan.paging == "resident":
            return load_file(self.header.path, mapped=False, repack=True)
        if plan.paging == "slots":
            try:
                if native_library() is None:
                    raise Refusal("the C callbacks were not built (no compiler at install)")
                files = [self._pages.identity] if self._pages else self.header.files
                self._file = self._file or WeightFile(files)
                model, self._paged = load_paged(
                    self.header, plan, self._file, pages=self._pages, shift=shift, timeline=self._timeline,
                    observe=self._observe,
                )  # fmt: skip
                return model
            except Refusal as refusal:
                self._fall_back(refusal, strict)
        return load_file(self.header.path, mapped=True, repack=False)

    def _repacked(self) -> Collection[str]:
        """Names of the weights that the engine's kernels for repacked weights compute with."""
        if self.paging == "resident" and not self._lender:
            return repacked_when_resident(self.header)
        pages = self._lender._pages if self._lender else self._pages
        return pages.repacked if pages and self.paging != "mmap" else ()

    def _lend(self) -> Any:
        if self._paged is None or self._plan is None:
            raise EngineError("layers to draft with need paged weights: leave the stage layers out")
        try:
            return load_shallow(self.header, self._plan.kept, self._paged)
        except Refusal as refusal:
            raise EngineError(f"the resident layers cannot draft: {refusal}: leave the stage layers out") from refusal

    def _fall_back(self, refusal: Refusal, strict: bool) -> None:
        if strict:
            raise EngineError(f"the weights cannot be paged: {refusal}: drop --strict to run on plain mmap") from refusal
        self.paging = "mmap"
        note = f"paging by plain mmap: {refusal}; truncating the model file while it runs can kill the process"
        self.notes.append(note)
        _log.warning("%s", note)

    @property
    def _pager(self) -> Pager | None:
        return self._paged.pager if self._paged else None

    @property
    def bytes_read(self) -> int:
        return self._file.bytes_read if self._file else 0

    @property
    def wait_seconds(self) -> float:
        """Time the passes spent waiting for the disk."""
        return self._pager.wait_seconds if self._pager else 0.0

    @property
    def idle_seconds(self) -> float:
        """Time of such waits that was put to use."""
        return self._pager.idle_seconds if self._pager else 0.0

    @property
    def read_seconds(self) -> float:
        """Time the reader spent reading streamed layers."""
        return self._pager.read_seconds if self._pager else 0.0

    @property
    def callback_seconds(self) -> float:
        """Time the passes spent in Python at layer boundaries, waiting not counted."""
        return self._callbacks.seconds - self.wait_seconds - self.idle_seconds

    def session(
        self, *, context: int, chunk: int, max_nodes: int, kv_type: KvType = "f16", voting: Sequence[int] = (),
        forked: bool = False, resident: int = 0,
    ) -> LlamaSession:  # fmt: skip
        """A timeline of `context` tokens, for passes of `chunk` tokens or `max_nodes` drafted nodes; trees have as many leaves.

        With `voting` layers it is a `ViewableSession`, for models that are resident; `forked` leaves room for one fork.
        Such a one may keep `resident` cells in memory, when not 0, and the others in a file.
        """
        lanes = Lanes(max_nodes + 1)
        capture = Capture(self.header, voting, context) if voting else None
        keeper = lanes.count if capture else None
        reserved = Lanes(lanes.count, first=lanes.count + 1) if forked else None
        sequences = lanes.count * (1 + forked) + bool(capture) + bool(resident)
        cells = Cells(
            self._model, self.tokenizer.size, capture.callbacks if capture else self._callbacks,
            context=resident or context + (lanes.count if forked else 0), chunk=chunk, sequences=sequences,
            threads=self._threads, keys=number_of(kv_type.upper()), flash=bool(capture),
            porters=int(bool(resident)), before_pass=self._before_pass,
        )  # fmt: skip
        spill = Spill(cells, keeper, sequences - 1) if resident and keeper is not None else None
        capacity = context if spill else cells.capacity - (lanes.count if forked else 0)
        session = LlamaSession(cells, lanes, chunk, capacity, capture, keeper, reserved, spill)
        self._sessions.append(session)
        return session

    def _before_pass(self, tokens: Sequence[int]) -> None:
        crash.stage(self._stage)
        if self._paged and self._paged.rows:
            self._paged.rows.ensure(tokens)
        if self._lender and self._lender._paged and self._lender._paged.rows:
            self._lender._paged.rows.ensure_beside(tokens)

    def sampler(self, params: SamplingParams, vocabulary: int | None = None) -> LlamaSampler:
        """For rows of `vocabulary` logits (default: this model's)."""
        return LlamaSampler(params, self.tokenizer, vocabulary or self.tokenizer.size, self.rounding)

    def interrupt(self) -> None:
        """End the running pass and all later ones until `resume`; safe from any thread."""
        for callbacks in self._all_callbacks:
            callbacks.interrupt()

    def resume(self) -> None:
        for callbacks in self._all_callbacks:
            callbacks.resume()

    @property
    def _all_callbacks(self) -> list[Callbacks]:
        return [self._callbacks, *(session.capture.callbacks for session in self._sessions if session.capture)]

    def close(self) -> None:
        for session in self._sessions:
            session.close()
        self._sessions.clear()
        if self._model:
            model, self._model = self._model, None
            if self._paged:
                self._paged.stop()
            llama().llama_model_free(model)
            if self._paged:
                self._paged.close()
            if self._file:
                self._file.close()
