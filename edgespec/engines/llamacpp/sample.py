"""Some layers of a model without its weights, to time passes with before anything is loaded.

Matrices are not all that a pass computes: attention, norms and what each graph node costs depend on the model's shapes. So
the engine is given the header with a few layers left in it, their weights are zeros in an arena as a paged model has one, and
what it computes then is timed: zeros take as long as other numbers. The layers together are larger than a CPU's cache, as the
whole model is.
"""

from __future__ import annotations

import ctypes
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from edgespec.cache import cache_folder
from edgespec.engines.lanes import Lanes
from edgespec.engines.llamacpp.callbacks import Callbacks
from edgespec.engines.llamacpp.cells import Cells
from edgespec.engines.llamacpp.library import llama
from edgespec.engines.llamacpp.native import native_library
from edgespec.engines.llamacpp.paging import learn
from edgespec.engines.llamacpp.params import load_file
from edgespec.engines.llamacpp.pointers import Refusal, adopt, point
from edgespec.engines.llamacpp.repack import Repacker
from edgespec.engines.llamacpp.session import LlamaSession
from edgespec.engines.llamacpp.standin import unpopulated
from edgespec.errors import EngineError
from edgespec.memory.arena import Arena
from edgespec.memory.layout import PAGE, PARTS, key_of
from edgespec.memory.resident import embedding_by_rows
from edgespec.modelfile.header import read_model
from edgespec.modelfile.layers import write_some_layers
from edgespec.speculation.tree import DraftTree
from edgespec.types import ModelHeader, TensorExtent

__all__ = ["Sample", "Timed"]

_ROWS = 32  # of the widest pass
_CHUNK, _SHORT = 64, 128  # tokens evaluated at a time, and of the short context: with a tree less than the engine's step of 256
_CROWD = 8  # copies of the short context that make a longer one
_BRANCH = 3  # children of a node
_HALF = 1  # the number of half precision, in which keys are cached


@dataclass(frozen=True)
class Timed:
    """Seconds of one pass: of a layer on average, and of what belongs to no layer."""

    layer: float
    core: float


class Sample:
    """The layers `kept` of a model, ready to compute; `repacked` in the engine's layout for its matrix kernels.

    Raises EngineError where the engine refuses it. `close` gives everything back.
    """

    cells = _CROWD * _SHORT  # of context that `crowd` adds
    context = _SHORT * (_CROWD + 2)

    def __init__(self, header: ModelHeader, kept: Sequence[int], *, threads: int, repacked: bool) -> None:
        self._undo, self._ends, self._layers = ExitStack(), list[float](), len(kept)
        try:
            self._load(header, kept, repacked)
            self._open(header, threads)
        except Refusal as refusal:
            self.close()
            raise EngineError(f"no sample of {header.name} can be computed: {refusal}") from refusal
        except BaseException:
            self.close()
            raise

    def _load(self, header: ModelHeader, kept: Sequence[int], repacked: bool) -> None:
        if native_library() is None:
            raise Refusal("the C callbacks were not built")
        with tempfile.TemporaryDirectory(prefix="edgespec-sample-", dir=cache_folder()) as folder:
            path = Path(folder) / "sample.gguf"
            write_some_layers(header, kept, path)
            small = read_model(path)
            with unpopulated([str(path)], small):
                self._model = load_file(str(path), mapped=True, repack=False)
            self._undo.callback(llama().llama_model_free, self._model)
            weights = learn(small, self._model, [str(path)]).weights
        looked_up = embedding_by_rows(small)
        used = [tensor for tensor in small.tensors if tensor.name in weights and tensor != looked_up]
        self._place(used, weights, Repacker() if repacked else None)

    def _place(self, tensors: Sequence[TensorExtent], weights: dict[str, tuple[int, ...]], repacker: Repacker | None) -> None:
        """Give every weight memory of its own, written to: what never was is one page of zeros for all."""
        if repacker:
            self._undo.callback(repacker.close)
        sizes = [tensor.size * 9 // 8 if repacker else tensor.size for tensor in tensors]  # some layouts take more than the file
        arena = Arena(sum(-(-size // PAGE) * PAGE for size in sizes))
        self._undo.callback(arena.close)
        for tensor, size in zip(tensors, sizes, strict=True):
            piece = arena.take(size)
            ctypes.memset(piece.address, 0, piece.size)
            point(weights[tensor.name], piece.address)
            if repacker and tensor.name.startswith("blk.") and repacker.supports(tensor):
                adopt(weights[tensor.name], repacker.mark(tensor))

    def _open(self, header: ModelHeader, threads: int) -> None:
        last = {key_of(layer, len(PARTS) - 1) for layer in range(self._layers)}
        callbacks, lanes = Callbacks(self._layers, last, self._layer_ended), Lanes(_ROWS)
        self._cells = Cells(
            self._model, len(header.vocabulary.tokens), callbacks, context=self.context, chunk=_CHUNK,
            sequences=_ROWS + _CROWD, threads=threads, keys=_HALF,
        )  # fmt: skip
        self._session = LlamaSession(self._cells, lanes, _CHUNK, self._cells.capacity)
        self._undo.callback(self._session.close)
        self._session.extend([0] * _SHORT)

    def _layer_ended(self, _key: int, before: bool, _tensor: int) -> None:
        if not before:
            self._ends.append(time.perf_counter())

    def run(self, rows: int) -> Timed:
        """One pass over a tree of `rows`, after a short context, and what keeping its root takes."""
        tree = DraftTree(0)
        for node in range(1, rows):
            tree.add((node - 1) // _BRANCH, node, 0.0)
        self._session.rewind(_SHORT)
        self._ends.clear()
        began = time.perf_counter()
        self._session.score(tree).sum()
        self._session.commit([0], [0])
        whole = time.perf_counter() - began
        first, last = (began, self._ends[0]) if self._layers == 1 else (self._ends[0], self._ends[-1])
        layer = (last - first) / max(1, self._layers - 1)
        return Timed(layer, max(0.0, whole - self._layers * layer))

    def crowd(self) -> None:
        """Fill `cells` of the context, which passes then go over, without computing them all."""
        self._session.rewind(_SHORT)
        self._session.flush()
        said = self._cells.state(0)
        for sequence in range(_ROWS, _ROWS + _CROWD):
            self._cells.set_state(sequence, said)

    def close(self) -> None:
        self._undo.close()
