"""The engine's own matrix kernel on a synthetic weight, for calibration: what does a pass of n tokens cost per byte?"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

from edgespec.engines.llamacpp.library import InitParams, ggml
from edgespec.engines.llamacpp.pointers import adopt
from edgespec.engines.llamacpp.repack import Repacker
from edgespec.errors import EngineError
from edgespec.modelfile.quants import number_of
from edgespec.types import TensorExtent

__all__ = ["NotRepacked", "matrix_kernel"]

_COLUMNS, _ROWS = 4096, 8192
_F32 = 0


class NotRepacked(EngineError):
    """This engine has no kernels for repacked weights of the asked type on this CPU."""


def matrix_kernel(kind: str, threads: int, *, repacked: bool = False) -> Callable[[int], float]:
    """A function of the number of tokens: seconds per weight byte of one product with a matrix of GGUF type `kind`.

    `repacked` takes the engine's kernels for repacked weights. Raises EngineError where it has none for this type (NotRepacked).
    """
    lib = ggml()
    base, compute = lib.base, lib.cpu.ggml_graph_compute_with_ctx
    repacker = Repacker() if repacked else None
    sample = TensorExtent("sample", (_COLUMNS, _ROWS), kind, 0, 0, 0)
    if repacker and not repacker.supports(sample):
        repacker.close()
        raise NotRepacked(f"the engine does not repack {kind} on this CPU: use --pages off")

    def seconds_per_byte(tokens: int) -> float:
        context = base.ggml_init(InitParams(_COLUMNS * _ROWS * 4 + (64 << 20), None, False))
        if not context:
            raise EngineError("no memory to calibrate with: close other programs")
        try:
            weight = base.ggml_new_tensor_2d(context, number_of(kind), _COLUMNS, _ROWS)
            inputs = base.ggml_new_tensor_2d(context, _F32, _COLUMNS, tokens)
            size = lib.nbytes(weight)
            ctypes.memset(lib.get_data(weight), 1, size)
            ctypes.memset(lib.get_data(inputs), 0, lib.nbytes(inputs))
            if repacker:
                adopt([weight], repacker.mark(sample))
            graph = base.ggml_new_graph(context)
            base.ggml_build_forward_expand(graph, base.ggml_mul_mat(context, weight, inputs))
            started = time.perf_counter()
            if compute(context, graph, threads):
                raise EngineError("the engine's matrix kernel failed: run `edgespec doctor`")
            return (time.perf_counter() - started) / float(size)
        finally:
            base.ggml_free(context)

    return seconds_per_byte
