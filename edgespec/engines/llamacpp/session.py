"""A timeline on a llama.cpp context: trees become sequence ids, passes become `llama_decode`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from edgespec.engines.base import Idle
from edgespec.engines.lanes import Lanes
from edgespec.engines.llamacpp.batch import Batch
from edgespec.engines.llamacpp.callbacks import Callbacks
from edgespec.engines.llamacpp.library import llama
from edgespec.engines.llamacpp.params import context_params
from edgespec.errors import Cancelled, ContextFull, EngineError, RuntimeFault
from edgespec.speculation.tree import DraftTree
from edgespec.types import Floats

__all__ = ["LlamaSession"]


class LlamaSession:
    """Implements `engines.base.Session`. Every lane is tagged with the committed prefix; see `engines.lanes`."""

    def __init__(
        self, model: Any, vocabulary: int, callbacks: Callbacks, *, context: int, chunk: int, max_nodes: int, threads: int,
        keys: int, before_pass: Callable[[Sequence[int]], None] = lambda tokens: None,
    ) -> None:  # fmt: skip
        self._lanes = Lanes(max_nodes + 1)
        self._callbacks, self._before_pass, self._vocabulary = callbacks, before_pass, vocabulary
        self._chunk = chunk
        lanes = self._lanes.count  # the engine wants room for an output of each
        params = context_params(context=context, chunk=chunk, lanes=lanes, outputs=lanes, threads=threads, keys=keys)
        callbacks.install(params)
        self._context = llama().llama_init_from_model(model, params)
        if not self._context:
            raise EngineError("the engine refuses this context: choose a smaller --context")
        self._memory = llama().llama_get_memory(self._context)
        self._batch = Batch(chunk, self._lanes.count)
        self._evaluated = 0
        self._deferred: list[int] = []
        self._idle: Idle | None = None
        self._busy = threading.RLock()  # `close` may come from another thread, at exit
        self.capacity = int(llama().llama_n_ctx(self._context))
        self.passes = 0

    @contextmanager
    def _open(self) -> Iterator[None]:
        """The context, alive while the block runs."""
        with self._busy:
            if not self._context:
                raise RuntimeFault("this session is closed: load the model again")
            yield

    @property
    def length(self) -> int:
        return self._evaluated + len(self._deferred)

    def extend(self, tokens: Sequence[int]) -> None:
        with self._open():
            if self.length + len(tokens) > self.capacity:
                raise ContextFull(
                    f"{self.length + len(tokens)} tokens do not fit the context of {self.capacity}: raise --context"
                )
            if tokens:
                self._drop_tree()
            self._deferred += tokens
            while len(self._deferred) > self._chunk:
                self._evaluate_deferred(self._chunk)

    def score(self, tree: DraftTree, start: int = 0) -> Floats:
        with self._open():
            if self.length + len(tree) > self.capacity:
                raise ContextFull(f"the context of {self.capacity} tokens is full: raise --context")
            if start == 0:
                self._drop_tree()
                while len(self._deferred) + len(tree) > self._chunk:
                    self._evaluate_deferred(min(len(self._deferred), self._chunk))
            assignment = self._lanes.assign(tree.parents, tree.depths, start)
            base = self._evaluated + len(self._deferred)
            for source, lane, depth in assignment.forks:
                llama().llama_memory_seq_cp(self._memory, source, lane, base, base + depth)
            used = tuple(sorted({lane for lanes in assignment.lanes for lane in lanes}))
            self._batch.clear()
            for offset, token in enumerate(self._deferred):
                self._batch.add(token, self._evaluated + offset, used, output=False)
            for node, lanes in zip(range(start, len(tree)), assignment.lanes, strict=True):
                self._batch.add(tree.tokens[node], base + tree.depths[node], lanes, output=True)
            self._decode()
            if self._deferred:
                self._share(used[0], self._evaluated, base)
                self._evaluated, self._deferred = base, []
            return self._rows(len(tree) - start)

    def offer(self, idle: Idle | None) -> None:
        self._idle = idle

    def commit(self, path: Sequence[int], tokens: Sequence[int], keep: Sequence[int] = ()) -> None:
        with self._open():
            kept = [node for node in path if node < self._lanes.scored]
            if kept:
                end, tip = self._evaluated + len(kept), self._lanes.lane(kept[-1])
                through = self._lanes.keep(keep)  # these run through the path already
                for lane in set(range(self._lanes.count)) - through:
                    self._remove(lane, end if lane == tip else self._evaluated)
                self._share(tip, self._evaluated, end, but=through)
                self._evaluated = end
            else:
                self._drop_tree()
            self.extend(tokens[len(kept) :])

    def rewind(self, length: int) -> int:
        with self._open():
            self._drop_tree()
            if length >= self._evaluated:
                del self._deferred[max(0, length - self._evaluated) :]
                return self.length
            self._deferred = []
            lib = llama()
            kept = length if all(self._remove(lane, length) for lane in range(self._lanes.count)) else 0
            if kept and lib.llama_memory_seq_pos_max(self._memory, 0) != kept - 1:
                kept = 0
            if kept == 0:
                lib.llama_memory_clear(self._memory, True)
            self._evaluated = kept
            return kept

    def close(self) -> None:
        with self._busy:  # another thread's pass must have ended; it was interrupted
            if self._context:
                self._batch.close()
                llama().llama_free(self._context)
                self._context = None

    def _evaluate_deferred(self, count: int) -> None:
        """One wide pass over `count` deferred tokens, without logits."""
        self._drop_tree()
        self._batch.clear()
        for offset, token in enumerate(self._deferred[:count]):
            self._batch.add(token, self._evaluated + offset, (0,), output=False)
        self._decode()
        self._share(0, self._evaluated, self._evaluated + count)
        self._evaluated += count
        del self._deferred[:count]

    def _decode(self) -> None:
        """Run the batch, or leave the committed timeline as it was and raise."""
        try:
            self._before_pass(self._batch.tokens)
            with self._callbacks.running(self._idle):
                code = llama().llama_decode(self._context, self._batch.raw)
        except BaseException:
            self._drop_tree()
            raise
        error = self._callbacks.take_error()
        if error is None and code == 0:
            self.passes += 1
            return
        for lane in range(self._lanes.count):  # an aborted pass frees only each token's first lane
            self._remove(lane, self._evaluated)
        self._lanes.reset()
        if error is not None:
            raise error
        if code == 2:
            raise Cancelled("stopped while computing")
        raise EngineError(f"the engine failed in the middle of a pass (code {code}): lower --context, or see EDGESPEC_LOG=debug")

    def _rows(self, count: int) -> Floats:
        pointer = llama().llama_get_logits(self._context)
        return np.ctypeslib.as_array(pointer, shape=(count, self._vocabulary))

    def _drop_tree(self) -> None:
        if self._lanes.scored:
            for lane in range(self._lanes.count):
                self._remove(lane, self._evaluated)
            self._lanes.reset()

    def _remove(self, lane: int, start: int) -> bool:
        return bool(llama().llama_memory_seq_rm(self._memory, lane, start, -1))

    def _share(self, source: int, start: int, end: int, but: Collection[int] = ()) -> None:
        """Tag the cells that `source` has from `start` to `end` with every lane, those in `but` left out."""
        for lane in range(self._lanes.count):
            if lane != source and lane not in but:
                llama().llama_memory_seq_cp(self._memory, source, lane, start, end)
