"""A llama.cpp context: the cells of a KV cache, tagged with the sequences that see them, and the passes that fill them.

Several timelines may live in one: each leases sequences of its own, and all of them hold the same committed tokens.
"""

from __future__ import annotations

import ctypes
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
from edgespec.errors import Cancelled, EngineError, RuntimeFault
from edgespec.types import Floats

__all__ = ["Cells"]


class Cells:
    """`evaluated` tokens are committed: their cells are there for every sequence, though not all may look at all of them."""

    def __init__(
        self, model: Any, vocabulary: int, callbacks: Callbacks, *, context: int, chunk: int, sequences: int,
        threads: int, keys: int, flash: bool = False, porters: int = 0,
        before_pass: Callable[[Sequence[int]], None] = lambda tokens: None,
    ) -> None:  # fmt: skip
        self._callbacks, self._before_pass, self._vocabulary = callbacks, before_pass, vocabulary
        params = context_params(
            context=context, chunk=chunk, lanes=sequences, outputs=sequences, threads=threads, keys=keys, flash=flash
        )  # the engine wants room for an output of each sequence
        callbacks.install(params)
        self._context = llama().llama_init_from_model(model, params)
        if not self._context:
            raise EngineError("the engine refuses this context: choose a smaller --context")
        self._memory = llama().llama_get_memory(self._context)
        self._sequences, self._porters = sequences, porters  # the last ones share nothing
        self._busy = threading.RLock()  # `close` may come from another thread, at exit
        self.batch = Batch(chunk, sequences)
        self.capacity = int(llama().llama_n_ctx(self._context))
        self.trees: list[Lanes] = []  # of every timeline in here
        self.evaluated = self.passes = 0

    @contextmanager
    def open(self) -> Iterator[None]:
        """The context, alive while the block runs."""
        with self._busy:
            if not self._context:
                raise RuntimeFault("this session is closed: load the model again")
            yield

    def run(self, idle: Idle | None) -> None:
        """Evaluate the batch, or leave the committed tokens as they were, drop every tree and raise."""
        try:
            self._before_pass(self.batch.tokens)
            with self._callbacks.running(idle):
                code = llama().llama_decode(self._context, self.batch.raw)
        except BaseException:
            self._drop_trees()
            raise
        error = self._callbacks.take_error()
        if error is None and code == 0:
            self.passes += 1
            return
        self._drop_trees()
        if error is not None:
            raise error
        if code == 2:
            raise Cancelled("stopped while computing")
        raise EngineError(f"the engine failed in the middle of a pass (code {code}): lower --context, or see EDGESPEC_LOG=debug")

    def rows(self, count: int) -> Floats:
        """Logits of the last pass, valid until the next."""
        pointer = llama().llama_get_logits(self._context)
        return np.ctypeslib.as_array(pointer, shape=(count, self._vocabulary))

    def remove(self, sequence: int, start: int, end: int = -1) -> bool:
        return bool(llama().llama_memory_seq_rm(self._memory, sequence, start, end))

    def copy(self, source: int, sequence: int, start: int, end: int) -> None:
        """Let `sequence` see what `source` sees of these positions; only tags change."""
        llama().llama_memory_seq_cp(self._memory, source, sequence, start, end)

    def share(self, source: int, start: int, end: int, but: Collection[int] = ()) -> None:
        """Tag the cells that `source` has from `start` to `end` with every sequence, those in `but` and porters left out."""
        for sequence in range(self._sequences - self._porters):
            if sequence != source and sequence not in but:
                self.copy(source, sequence, start, end)

    def remove_everywhere(self, start: int, end: int = -1) -> bool:
        """Free the cells of these positions; whether the engine could."""
        return all([self.remove(sequence, start, end) for sequence in range(self._sequences)])

    def state(self, sequence: int) -> bytes:
        """Keys and values of all that `sequence` sees."""
        size = llama().llama_state_seq_get_size(self._context, sequence)
        data = (ctypes.c_uint8 * size)()
        if llama().llama_state_seq_get_data(self._context, data, size, sequence) != size:
            raise EngineError("the engine does not hand out its keys and values: use --draft-view full")
        return bytes(data)

    def set_state(self, sequence: int, data: bytes) -> None:
        """Have in `sequence` what `state` gave, in free cells, at the positions it had."""
        buffer = (ctypes.c_uint8 * len(data)).from_buffer_copy(data)
        if llama().llama_state_seq_set_data(self._context, buffer, len(data), sequence) == 0:
            raise EngineError("the engine has no room for keys and values that come back: raise --draft-cells")

    def save(self, path: str, tokens: Sequence[int]) -> None:
        """Write what is committed, and that it is `tokens`, to a file, without a copy in memory."""
        said = (ctypes.c_int32 * len(tokens))(*tokens)
        if not llama().llama_state_seq_save_file(self._context, path.encode(), 0, said, len(tokens)):
            raise EngineError(f"the engine cannot write {path}: free some disk space")

    def load(self, path: str) -> list[int] | None:
        """Have what `save` wrote committed instead of what is; the tokens, None where the engine refuses the file."""
        self.truncate(0)
        said, count = (ctypes.c_int32 * self.capacity)(), ctypes.c_size_t(0)
        if not llama().llama_state_seq_load_file(self._context, path.encode(), 0, said, len(said), ctypes.byref(count)):
            self.truncate(0)
            return None
        self.share(0, 0, count.value)
        self.evaluated = count.value
        return list(said[: count.value])

    def truncate(self, length: int) -> int:
        """Keep the first `length` tokens in every sequence; 0, everything dropped, where the engine cannot."""
        if not self.remove_everywhere(length) or llama().llama_memory_seq_pos_max(self._memory, 0) != length - 1:
            length = 0
        if length == 0:
            llama().llama_memory_clear(self._memory, True)
        self.evaluated = length
        return length

    def _drop_trees(self) -> None:
        self.remove_everywhere(self.evaluated)  # an aborted pass frees only each token's first sequence
        for tree in self.trees:
            tree.reset()

    def close(self) -> None:
        with self._busy:  # another thread's pass must have ended; it was interrupted
            if self._context:
                self.batch.close()
                llama().llama_free(self._context)
                self._context = None
