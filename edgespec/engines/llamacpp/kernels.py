"""Which matrix kernels of this build give a row of a wide pass what they give it alone, to the last bit.

Where they do, trees compute what plain decoding does. Some builds have other kernels for many rows than for one, which sum in
another order; they are found by multiplying a random matrix of every type with one row and with many.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Iterator
from contextlib import closing

import numpy as np

from edgespec.engines.llamacpp.library import InitParams, ggml
from edgespec.engines.llamacpp.pointers import adopt, point
from edgespec.engines.llamacpp.proof import proven
from edgespec.engines.llamacpp.repack import Repacker, multiplied
from edgespec.modelfile.quants import TYPES, number_of
from edgespec.types import Floats, ModelHeader, TensorExtent

__all__ = ["UNSTEADY", "layout_of", "rounding_of", "steady_layouts"]

UNSTEADY = 0.8  # logits, of other layouts: of Gemma 3 270M in Q4_K_M the best two moved by up to 1.5 against each other
_COLUMNS, _ROWS, _THREADS = 512, 64, 2
_WIDTHS = (2, 3, 4, 5, 7, 8, 15, 16, 17, 33)
_SLOW = ("IQ1", "IQ2", "IQ3")  # to quantize to, by seconds
_WEIGHTS = [name for name, block, _ in TYPES.values() if (block > 1 or name in ("F32", "F16", "BF16")) and name[:3] not in _SLOW]
_F32 = number_of("F32")


def rounding_of(header: ModelHeader, repacked: Collection[str]) -> float:
    """Logits by which passes of different widths may differ over this model, of whose weights those named are `repacked`."""
    proof = proven()
    layouts = {layout_of(weight.kind, repacked=weight.name in repacked) for weight in multiplied(header)}
    return proof.rounding if layouts <= set(proof.steady) else max(proof.rounding, UNSTEADY)


def layout_of(kind: str, *, repacked: bool) -> str:
    """What decides which kernels compute with a weight: its GGUF type, and whether it is repacked."""
    return f"{kind} repacked" if repacked else kind


def steady_layouts() -> list[str]:
    """Layouts whose products do not depend on the number of rows; types that are not quantized to soon are left out."""
    with closing(Repacker()) as repacker:
        return [layout for layout, weight, source in _layouts(repacker) if _steady(weight, source, repacker, layout)]


def _layouts(repacker: Repacker) -> Iterator[tuple[str, TensorExtent, bytes]]:
    """Every layout with a weight in it, and the weight's bytes as a file has them."""
    for kind in _WEIGHTS:
        if source := _quantized(kind):
            weight = TensorExtent("sample", (_COLUMNS, _ROWS), kind, 0, 0, len(source))
            yield layout_of(kind, repacked=False), weight, source
            if repacker.supports(weight):
                yield layout_of(kind, repacked=True), weight, source


def _quantized(kind: str) -> bytes:
    """A random matrix; nothing of types for activations."""
    weights, number = _random(_ROWS), number_of(kind)
    if kind in ("Q8_1", "Q8_K"):
        return b""
    if kind == "F32":
        return weights.tobytes()
    _, block, size = TYPES[number]
    made = ctypes.create_string_buffer(_ROWS * _COLUMNS // block * size)
    ggml().base.ggml_quantize_chunk(number, weights.ctypes.data, made, 0, _ROWS, _COLUMNS, None)
    return made.raw


def _random(rows: int) -> Floats:
    return np.random.default_rng(rows).normal(size=(rows, _COLUMNS)).astype(np.float32)


def _steady(weight: TensorExtent, source: bytes, repacker: Repacker, layout: str) -> bool:
    inputs = _random(max(_WIDTHS))
    own = repacker if layout != weight.kind else None
    alone = np.concatenate([_product(weight, source, inputs[row : row + 1], own) for row in range(len(inputs))])
    return all(np.array_equal(_product(weight, source, inputs[:width], own), alone[:width]) for width in _WIDTHS)


def _product(weight: TensorExtent, source: bytes, inputs: Floats, repacker: Repacker | None) -> Floats:
    """(rows, outputs), by the engine's kernels for this weight, repacked with a `repacker`."""
    base, compute = ggml().base, ggml().cpu.ggml_graph_compute_with_ctx
    context = base.ggml_init(InitParams(8 << 20, None, False))
    try:
        matrix = base.ggml_new_tensor_2d(context, number_of(weight.kind), *weight.shape)
        data = ctypes.create_string_buffer(source, len(source))
        ctypes.memmove(ggml().get_data(matrix), data, len(source))
        if repacker:
            repacked = repacker.repack(weight, memoryview(data).cast("B"))
            adopt([matrix], repacker.mark(weight))
            point([matrix], ctypes.addressof(ctypes.c_char.from_buffer(repacked)))
        rows = base.ggml_new_tensor_2d(context, _F32, *reversed(inputs.shape))
        ctypes.memmove(ggml().get_data(rows), inputs.ctypes.data, inputs.nbytes)
        product = base.ggml_mul_mat(context, matrix, rows)
        graph = base.ggml_new_graph(context)
        base.ggml_build_forward_expand(graph, product)
        compute(context, graph, _THREADS)
        address = ctypes.cast(ggml().get_data(product), ctypes.POINTER(ctypes.c_float))
        return np.array(np.ctypeslib.as_array(address, shape=(len(inputs), weight.shape[1])))
    finally:
        base.ggml_free(context)
