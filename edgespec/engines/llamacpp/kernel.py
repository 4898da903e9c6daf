"""The engine's own matrix kernel on a synthetic weight, for calibration: what does a pass of n tokens cost per byte?"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

from edgespec.engines.llamacpp.library import ggml
from edgespec.errors import EngineError

__all__ = ["matrix_kernel"]

_COLUMNS, _ROWS = 4096, 8192
_F32 = 0


class _InitParams(ctypes.Structure):
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


def _functions() -> Any:
    lib, pointer, wide = ggml(), ctypes.c_void_p, ctypes.c_int64
    for name, result, arguments in (
        ("ggml_init", pointer, [_InitParams]),
        ("ggml_new_tensor_2d", pointer, [pointer, ctypes.c_int, wide, wide]),
        ("ggml_mul_mat", pointer, [pointer, pointer, pointer]),
        ("ggml_new_graph", pointer, [pointer]),
        ("ggml_build_forward_expand", None, [pointer, pointer]),
        ("ggml_free", None, [pointer]),
    ):
        function = getattr(lib.base, name)
        function.restype, function.argtypes = result, arguments
    compute = lib.cpu.ggml_graph_compute_with_ctx
    compute.restype, compute.argtypes = ctypes.c_int, [pointer, pointer, ctypes.c_int]
    return lib.base, compute


def matrix_kernel(kind: int, threads: int) -> Callable[[int], float]:
    """A function of the number of tokens: seconds per weight byte of one product with a matrix of GGUF type `kind`."""
    base, compute = _functions()
    lib = ggml()

    def seconds_per_byte(tokens: int) -> float:
        context = base.ggml_init(_InitParams(_COLUMNS * _ROWS * 4 + (64 << 20), None, False))
        if not context:
            raise EngineError("no memory to calibrate with: close other programs")
        try:
            weight = base.ggml_new_tensor_2d(context, kind, _COLUMNS, _ROWS)
            inputs = base.ggml_new_tensor_2d(context, _F32, _COLUMNS, tokens)
            size = lib.nbytes(weight)
            ctypes.memset(lib.get_data(weight), 1, size)
            ctypes.memset(lib.get_data(inputs), 0, lib.nbytes(inputs))
            graph = base.ggml_new_graph(context)
            base.ggml_build_forward_expand(graph, base.ggml_mul_mat(context, weight, inputs))
            started = time.perf_counter()
            if compute(context, graph, threads):
                raise EngineError("the engine's matrix kernel failed: run `edgespec doctor`")
            return (time.perf_counter() - started) / float(size)
        finally:
            base.ggml_free(context)

    return seconds_per_byte
