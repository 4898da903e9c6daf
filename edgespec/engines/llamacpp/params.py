"""How contexts and models are asked for: what every session and every load has in common."""

from __future__ import annotations

import ctypes
from typing import Any

from edgespec.engines.llamacpp.library import llama
from edgespec.errors import EngineError

__all__ = ["KV_PADDING", "context_params", "load_file"]

KV_PADDING = 256  # the engine rounds contexts up to this
_LOAD_PLAIN, _LOAD_MAPPED = 0, 1
_NO_FLASH_ATTENTION, _FLASH_ATTENTION = 0, 1


def context_params(
    *, context: int, chunk: int, lanes: int, outputs: int, threads: int, keys: int = 1, flash: bool = False
) -> Any:
    """One unified KV stream shared by `lanes` sequences; output and compute buffers no larger than the tree needs.

    `keys` is the type of cached keys by GGUF's number; values stay in half precision, without flash attention they must.
    With `flash` cells that are not in view cost nothing, which drafting from a view is for.
    """
    params = llama().llama_context_default_params()
    params.n_ctx = context
    params.n_batch = params.n_ubatch = chunk
    params.n_seq_max = lanes
    params.n_outputs_max = params.n_outputs_max_per_seq = outputs
    params.n_threads = params.n_threads_batch = threads
    params.kv_unified = True
    params.type_k = keys
    # The engine's CPU flash attention sums values in half precision, in the order of the cells: a branch that lies
    # elsewhere in the cache moved logits by 0.2. Without it our build sums in any order alike (scripts/engine_sums.cpp).
    params.flash_attn_type = _FLASH_ATTENTION if flash else _NO_FLASH_ATTENTION
    params.swa_full = True  # a windowed cache would lose cells that a rewind needs
    params.offload_kqv = params.op_offload = False  # an offloaded split copies its weights before our callbacks run
    params.no_perf = True
    return params


def load_file(path: str, *, mapped: bool, repack: bool, vocabulary_only: bool = False) -> Any:
    """The engine's model on the CPU alone. Raises EngineError; the reason is in the log `edgespec.engine`."""
    lib = llama()
    params = lib.llama_model_default_params()
    params.n_gpu_layers = 0
    no_devices = (ctypes.c_void_p * 1)(None)  # an empty list: no GPU even where the build has one
    params.devices = ctypes.addressof(no_devices)
    params.load_mode = _LOAD_MAPPED if mapped else _LOAD_PLAIN
    params.use_extra_bufts = repack
    params.vocab_only = vocabulary_only
    model = lib.llama_model_load_from_file(path.encode(), params)
    if not model:
        raise EngineError(f"the engine cannot load {path}: run with EDGESPEC_LOG=debug to see why")
    return model
