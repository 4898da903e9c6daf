"""The engine's own repacking of weights for its matrix kernels, one tensor at a time, without a model.

The CPU backend keeps such weights in a buffer type of its own; a tensor that lives there computes with other kernels. So
a weight is repacked by putting a tensor of its shape there, and a model's tensor becomes a repacked one by carrying the
buffer and the traits of such a tensor, with its data pointing at repacked bytes (`pointers.adopt`).
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from edgespec.engines.llamacpp.library import InitParams, ggml
from edgespec.engines.llamacpp.pointers import Mark, mark_of
from edgespec.modelfile.quants import number_of
from edgespec.types import TensorExtent

__all__ = ["Repacker"]

_P = ctypes.c_void_p


@dataclass(frozen=True)
class _Home:
    """A tensor of some type and shape in the repacking buffer; its memory is not touched until it is written to."""

    context: int
    buffer: int
    tensor: int


class Repacker:
    """`supports` tells which weights have fast kernels here. Marks stay valid until `close`."""

    def __init__(self) -> None:
        self._base = ggml().base
        self._buffer_type = _repacking_buffer_type(self._base)
        self._homes: dict[tuple[str, tuple[int, ...]], _Home | None] = {}

    def supports(self, weight: TensorExtent) -> bool:
        """Whether the engine repacks matrices of this type and shape on this CPU."""
        return self._home(weight) is not None

    def mark(self, weight: TensorExtent) -> Mark:
        """What a tensor of this type and shape must carry to be computed as repacked. Only for supported weights."""
        home = self._home(weight)
        assert home is not None
        return mark_of(home.tensor)

    def repack(self, weight: TensorExtent, data: memoryview) -> memoryview:
        """The repacked bytes of `data`, valid until the next call for the same type and shape."""
        home = self._home(weight)
        assert home is not None
        source = (ctypes.c_char * weight.size).from_buffer(data)
        self._base.ggml_backend_tensor_set(home.tensor, ctypes.addressof(source), 0, weight.size)
        size = self._base.ggml_backend_buft_get_alloc_size(self._buffer_type, home.tensor)
        return memoryview((ctypes.c_char * size).from_address(ggml().get_data(home.tensor))).cast("B")

    def close(self) -> None:
        for home in self._homes.values():
            if home:
                self._base.ggml_backend_buffer_free(home.buffer)
                self._base.ggml_free(home.context)
        self._homes.clear()

    def _home(self, weight: TensorExtent) -> _Home | None:
        key = weight.kind, weight.shape
        if key not in self._homes:
            self._homes[key] = self._make(*key) if self._buffer_type and len(weight.shape) == 2 else None
        return self._homes[key]

    def _make(self, kind: str, shape: tuple[int, ...]) -> _Home | None:
        context = self._base.ggml_init(InitParams(1 << 20, None, True))
        tensor = self._base.ggml_new_tensor_2d(context, number_of(kind), *shape)
        buffer = self._base.ggml_backend_alloc_ctx_tensors_from_buft(context, self._buffer_type)
        if buffer and mark_of(tensor).traits:
            return _Home(context, buffer, tensor)
        if buffer:
            self._base.ggml_backend_buffer_free(buffer)
        self._base.ggml_free(context)
        return None


def _repacking_buffer_type(base: Any) -> int | None:
    """The CPU backend's buffer type that repacks, or None in builds without it."""
    backend = ggml().cpu.ggml_backend_cpu_reg()
    address = base.ggml_backend_reg_get_proc_address(backend, b"ggml_backend_dev_get_extra_bufts")
    if not address:
        return None
    types = ctypes.CFUNCTYPE(ctypes.POINTER(_P), _P)(address)(base.ggml_backend_reg_dev_get(backend, 0))
    index = 0
    while types and types[index]:
        if b"REPACK" in base.ggml_backend_buft_name(types[index]):
            return int(types[index])
        index += 1
    return None
