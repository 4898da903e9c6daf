"""The engine's own repacking of weights for its matrix kernels, one tensor at a time, without a model.

The CPU backend keeps such weights in a buffer type of its own; a tensor that lives there computes with other kernels. So
a weight is repacked by putting a tensor of its shape there, and a model's tensor becomes a repacked one by carrying the
buffer and the traits of such a tensor, with its data pointing at repacked bytes (`pointers.adopt`).
"""

from __future__ import annotations

import ctypes
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from edgespec.engines.llamacpp.library import InitParams, ggml
from edgespec.engines.llamacpp.pointers import Mark, Refusal, mark_of
from edgespec.modelfile.quants import number_of
from edgespec.types import ModelHeader, TensorExtent

__all__ = ["Repacker", "beside_the_file", "multiplied", "repacked_when_resident"]

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

    def size(self, weight: TensorExtent) -> int:
        """Bytes of a supported weight as it is laid out."""
        home = self._home(weight)
        assert home is not None
        return int(self._base.ggml_backend_buft_get_alloc_size(self._buffer_type, home.tensor))

    def repack(self, weight: TensorExtent, data: memoryview) -> memoryview:
        """The repacked bytes of `data`, valid until the next call for the same type and shape."""
        home = self._home(weight)
        assert home is not None
        source = (ctypes.c_char * weight.size).from_buffer(data)
        self._base.ggml_backend_tensor_set(home.tensor, ctypes.addressof(source), 0, weight.size)
        return memoryview((ctypes.c_char * self.size(weight)).from_address(ggml().get_data(home.tensor))).cast("B")

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


def beside_the_file(header: ModelHeader) -> int:
    """Bytes that a resident model holds at most beyond its weights in the file, as the engine lays them out on this CPU.

    Weights with fast kernels are laid out first, each from a copy, the largest first. A tied embedding that has them is there
    twice: to look rows up, and to multiply with.
    """
    repacker = Repacker()
    try:
        weights = sorted(multiplied(header), key=lambda weight: -weight.size)
        sizes = [(weight.size, repacker.size(weight)) for weight in weights if repacker.supports(weight)]
        twice = sum(embedding.size for embedding in _tied(header) if repacker.supports(embedding))
    except Refusal:  # whatever is held, it is not known here
        return 0
    finally:
        repacker.close()
    after = header.weight_bytes + sum(laid_out - size for size, laid_out in sizes) + twice
    loading = [sum(laid_out for _, laid_out in sizes[: count + 1]) + size for count, (size, _) in enumerate(sizes)]
    return max(after, *loading, 0) - header.weight_bytes


def repacked_when_resident(header: ModelHeader) -> set[str]:
    """Names of the weights that the engine lays out anew where all of a model is in memory."""
    with closing(Repacker()) as repacker:
        return {weight.name for weight in multiplied(header) if repacker.supports(weight)}


def multiplied(header: ModelHeader) -> list[TensorExtent]:
    """All weights but an embedding that is only looked up."""
    embedding = [weight for weight in header.core_tensors if weight.name == "token_embd.weight"]
    return [weight for weight in header.tensors if weight not in embedding] + _tied(header)


def _tied(header: ModelHeader) -> list[TensorExtent]:
    """The embedding, where it is the head, too."""
    core = {weight.name: weight for weight in header.core_tensors}
    return [core["token_embd.weight"]] if "token_embd.weight" in core and "output.weight" not in core else []


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
