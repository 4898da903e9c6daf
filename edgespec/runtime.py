"""The public API: `edgespec.load(...)` gives a `Runtime` that generates text inside a memory budget."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, get_args

from edgespec.engines.base import Tokenizer
from edgespec.engines.llamacpp.grammar import grammar_of_schema
from edgespec.errors import BudgetError, Busy, ContextFull, RuntimeFault, UsageError
from edgespec.generation import Generator
from edgespec.loading import Loaded, Options, Progress, load_models, prepare, with_pages
from edgespec.memory.budget import format_size, resident_bytes
from edgespec.memory.plan import voting_layers
from edgespec.parked import Parking
from edgespec.speculation.drafting.datastore import Datastore
from edgespec.speculation.retrieval import View
from edgespec.strategy import DRAFT_CELLS, SpeculationOptions, Strategy
from edgespec.text.prompt import Prompt, Prompter
from edgespec.text.template import Message
from edgespec.timeline import OFF, Timeline
from edgespec.types import (
    Chunk,
    Completion,
    Expected,
    KvType,
    MemoryPlan,
    ModelHeader,
    Pages,
    SamplingParams,
    Speculation,
    Stage,
)  # fmt: skip

__all__ = ["Runtime", "load"]


def load(
    target: str | os.PathLike[str] | None = None,
    drafter: str | os.PathLike[str] | None = None,
    *,
    budget: str | int | None = None,
    context: int | None = None,
    threads: int | None = None,
    speculation: Speculation = "auto",
    draft_nodes: int = 15,
    stages: Sequence[Stage] | None = None,
    datastore: str | os.PathLike[str] | None = None,
    verify: str = "match",
    lossy: str | None = None,
    draft_view: View = "full",
    draft_cells: int = DRAFT_CELLS,
    branching: bool = True,
    draft_ahead: bool = True,
    kv_type: KvType = "f16",
    pages: Pages = "auto",
    conversations: int = 1,
    strict: bool = False,
    progress: Progress = lambda text: None,
    timeline: Timeline = OFF,
) -> Runtime:
    """Load a pair inside `budget` bytes ("2GiB", "60%", a number; default half of what the process may use).

    Without a target, the embedded pair. `context` tokens of KV cache (default: trained, 4096, or what fits).
    `draft_nodes` is the size of the fixed modes "tree" and "chain"; 3, 7, 15 fill the kernels' blocks of rows. Without
    `branching` the drafter grows chains in every mode, without `draft_ahead` nothing while the target waits for the disk.
    `stages` guess: "ngram" from what was said, "datastore" from the folder `datastore`, "drafter" (default: all there are of
    these), "layers" of a paged target that stay in memory, or "self", a resident target that looks at part of its context.
    `verify` is a lossless method of `speculation.verify.METHODS`; `lossy` one that leaves the target's distribution.
    Of a longer context the drafter looks at `draft_cells` tokens by `draft_view`: "window", "retrieval", or "full".
    `kv_type` is how the target's keys are cached; only f16 leaves its text as it is. `pages`: whether streamed weights may
    be kept on disk a second time, in the engine's repacked layout where that is faster. `conversations`: of how many keys and
    values are kept, the newest's in memory, others' in files of the cache folder. `strict` refuses every fallback. `timeline`
    collects where the time goes.

    Raises UsageError, ModelError, BudgetError (before anything is loaded), EngineMissing or RuntimeFault.
    """
    if kv_type not in get_args(KvType):
        raise UsageError(f"kv_type={kv_type!r}: choose one of {', '.join(get_args(KvType))}")
    if pages not in get_args(Pages):
        raise UsageError(f"pages={pages!r}: choose one of {', '.join(get_args(Pages))}")
    guessing = SpeculationOptions(
        speculation, draft_nodes, tuple(stages) if stages else None, datastore, verify, lossy, draft_view, draft_cells,
        branching, draft_ahead,
    )  # fmt: skip
    if conversations < 1:
        raise UsageError(f"conversations={conversations} is out of range: at least 1")
    started = time.perf_counter()
    options = Options(
        target, drafter, budget, context, threads, strict, kv_type, pages, stages=guessing.wanted, draft_cells=guessing.cells
    )
    prepared = with_pages(prepare(options, progress), options, progress)
    store = guessing.open_datastore(prepared.target.vocabulary)
    loaded = load_models(prepared, progress, timeline)
    try:
        return Runtime(loaded, guessing, store, Parking(conversations - 1), time.perf_counter() - started, timeline)
    except BaseException:
        loaded.close()
        raise


class Runtime:
    """One loaded pair, one generation at a time. Only `cancel` may be called from another thread.

    A context manager; `close` is idempotent, and a process that exits without it exits cleanly.
    """

    def __init__(
        self, loaded: Loaded, guessing: SpeculationOptions, datastore: Datastore | None, parking: Parking,
        load_seconds: float, timeline: Timeline = OFF,
    ) -> None:  # fmt: skip
        self._loaded = loaded
        self.plan: MemoryPlan = loaded.prepared.plan
        self.paging, self.engine = loaded.target.paging, loaded.target.engine
        self.notes = (*loaded.prepared.notes, *loaded.target.notes)
        itself = "self" in guessing.wanted
        self._target = loaded.target.session(
            context=self.plan.context, chunk=self.plan.chunk, max_nodes=self.plan.max_nodes, kv_type=self.plan.kv_type,
            voting=voting_layers(loaded.prepared.target) if itself else (), forked=itself,
        )  # fmt: skip
        self._strategy = Strategy(guessing, loaded, self._target, datastore)
        self.speculation: Speculation = self._strategy.mode
        self._prompter = Prompter(loaded.prepared.target)
        self._generator = Generator(loaded, self._target, self._strategy, parking, load_seconds, timeline)
        self._lock = threading.Lock()
        self._finalizer = weakref.finalize(self, loaded.close)  # also runs at exit, before the interpreter is gone

    @property
    def _closed(self) -> bool:
        return not self._finalizer.alive

    @property
    def _tokenizer(self) -> Tokenizer:
        if self._closed:
            raise RuntimeFault("this runtime is closed: load it again")
        return self._loaded.target.tokenizer

    def tokenize(self, text: str, *, special: bool = False, bos: bool = False) -> list[int]:
        """Tokens of `text`; with `special`, markup is read as control tokens; with `bos`, as at the start of a document."""
        return self._tokenizer.encode(text, special=special, bos=bos)

    def detokenize(self, tokens: Sequence[int]) -> str:
        return b"".join(map(self.piece, tokens)).decode("utf-8", "replace")

    def piece(self, token: int) -> bytes:
        """What a token is in UTF-8, which may be a part of a character."""
        return self._tokenizer.piece(token)

    def generate(self, prompt: Prompt, *, wait: bool = True, speculate: bool = True, **sampling: Any) -> Completion:
        """The continuation of `prompt`, usually plain text. `sampling`: the fields of `SamplingParams`.

        Without `speculate` nothing guesses this time. Raises UsageError, ContextFull, Busy (another generation runs and
        `wait` is false), RuntimeFault, Cancelled.
        """
        return _collect(self.stream(prompt, wait=wait, speculate=speculate, **sampling))

    def chat(
        self, messages: Sequence[Message], *, wait: bool = True, speculate: bool = True, **sampling: Any
    ) -> Completion:  # fmt: skip
        """The assistant's next message; the model's own template turns `messages` (role, content) into a prompt."""
        return _collect(self.stream(messages, wait=wait, speculate=speculate, **sampling))

    def stream(self, prompt: Prompt, *, wait: bool = True, speculate: bool = True, **sampling: Any) -> Iterator[Chunk]:
        """As `generate` (text) or `chat` (messages), piece by piece. Leaving early keeps the runtime usable."""
        params = _params(sampling)
        tokens = self.prompt_tokens(prompt)
        return self._locked(tokens, params, wait, speculate)

    async def astream(
        self, prompt: Prompt, *, wait: bool = True, speculate: bool = True, **sampling: Any
    ) -> AsyncGenerator[Chunk, None]:  # fmt: skip
        """`stream` for asyncio: passes run in a worker thread; cancelling the task stops the pass."""
        chunks = self.stream(prompt, wait=wait, speculate=speculate, **sampling)
        step: asyncio.Future[Chunk | None] | None = None
        try:
            while True:
                step = asyncio.ensure_future(asyncio.to_thread(next, chunks, None))
                chunk = await asyncio.shield(step)
                if chunk is None:
                    return
                yield chunk
        except asyncio.CancelledError:
            self.cancel()
            raise
        finally:
            if step is not None:
                await asyncio.wait([step])
            await asyncio.to_thread(chunks.close)  # type: ignore[attr-defined]

    def cancel(self) -> None:
        """Stop the running generation within a layer; its last chunk says "cancelled". Safe from any thread."""
        self._generator.cancelled.set()
        self._loaded.interrupt()

    def grammar_of(self, schema: Mapping[str, Any], *, strict: bool = False) -> str:
        """The `grammar` of texts that are JSON of this JSON schema; `strict` refuses keywords that a grammar cannot hold.

        Raises UsageError where there is none.
        """
        return grammar_of_schema(schema, strict=strict)

    def prompt_tokens(self, prompt: Prompt, *, tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """The tokens `stream` starts from; messages may be told of `tools`, JSON-schema functions that the model may call.

        Raises UsageError when there are none, ContextFull when they do not fit.
        """
        tokens = self._prompter.tokens(prompt, self._tokenizer, tools)
        if len(tokens) >= self._target.capacity:
            raise ContextFull(
                f"the prompt's {len(tokens)} tokens do not fit the context of {self._target.capacity}: raise --context"
            )
        return tokens

    def _locked(self, tokens: list[int], params: SamplingParams, wait: bool, speculate: bool) -> Iterator[Chunk]:
        if not self._lock.acquire(blocking=wait):
            raise Busy("another generation is running on this runtime: wait for it, or load another")
        try:
            self._generator.cancelled.clear()
            self._loaded.resume()
            yield from self._generator.chunks(tokens, params, speculate)
        finally:
            if not self._closed:
                self._generator.settle()
            self._lock.release()

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Who guesses, in order; nobody where speculation is off."""
        return self._strategy.stages

    @property
    def expected_tokens_per_second(self) -> Expected:
        """What to expect of the next generation, by measured costs: without drafts, and a range with them, by acceptance."""
        return self._strategy.expected_tokens_per_second

    def explain(self) -> list[str]:
        """What guesses, how guesses are judged, and why, in lines for people."""
        return self._strategy.explain()

    def save_context(self, path: str | os.PathLike[str], drafter: str | os.PathLike[str] | None = None) -> tuple[int, int]:
        """Write keys and values of what was said last, the target's and, where named, the drafter's; of how many tokens each.

        No file is written for 0. Raises EngineError, Busy.
        """
        with self._alone():
            return self._generator.save(os.fspath(path), os.fspath(drafter) if drafter else None)

    def load_context(self, path: str | os.PathLike[str], drafter: str | os.PathLike[str] | None = None) -> int:
        """Go on from what `save_context` wrote with the same models and engine: the tokens that need not be read again, or 0."""
        with self._alone():
            return self._generator.load(os.fspath(path), os.fspath(drafter) if drafter else None)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._lock.acquire(blocking=False):
            raise Busy("a generation is running on this runtime: wait for it")
        try:
            yield
        finally:
            self._lock.release()

    @property
    def header(self) -> ModelHeader:
        """The target's."""
        return self._loaded.prepared.target

    @property
    def drafter_header(self) -> ModelHeader | None:
        """Of the small model, if there is one."""
        return self._loaded.prepared.drafter

    @property
    def memory_used(self) -> int:
        """Bytes this process holds right now."""
        return resident_bytes()

    def check_budget(self) -> None:
        """The promise as a check: the plan within the budget, and the process within the plan's budget."""
        used = self.memory_used
        if self.plan.total > self.plan.budget or used > self.plan.budget:
            raise BudgetError(f"{format_size(used)} are used of {format_size(self.plan.budget)}: please report this plan", None)

    def close(self) -> None:
        """Stop the reader, free contexts, models and slots, in that order; idempotent. An open stream is over then."""
        if not self._closed:
            self._strategy.keep()
            self._generator.keep()
        self._finalizer()

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _params(sampling: dict[str, Any]) -> SamplingParams:
    known = SamplingParams.__dataclass_fields__
    if unknown := sorted(set(sampling) - set(known)):
        raise UsageError(f"unknown sampling option {unknown[0]!r}: choose from {', '.join(known)}")
    if isinstance(stop := sampling.get("stop"), str):
        sampling = {**sampling, "stop": (stop,)}
    return SamplingParams(**{**sampling, "stop": tuple(sampling.get("stop") or ())})


def _collect(chunks: Iterator[Chunk]) -> Completion:
    done = list(chunks)
    last = done[-1]
    return Completion(
        text="".join(chunk.text for chunk in done),
        tokens=tuple(token for chunk in done for token in chunk.tokens),
        finish_reason=last.finish_reason or "length",
        statistics=last.statistics,
        logprobs=tuple(logprob for chunk in done for logprob in chunk.logprobs),
    )
