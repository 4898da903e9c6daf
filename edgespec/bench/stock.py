"""The peer: llama-cpp-python on mmap without repacking, its best configuration under a cap; greedy, one token per pass.

Runs as a process of its own: a `Setting.job` as JSON on stdin, a result as JSON on stdout. Only the low-level bindings are used.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from typing import Any

from llama_cpp import llama_cpp as lib

__all__ = ["main"]

_QUIET = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda level, text, user: None)


def main() -> None:
    job = json.load(sys.stdin)
    started = time.perf_counter()
    model, context = _load(job["target"], job["context"], job["threads"])
    loaded = time.perf_counter() - started
    tokens, decode, prefill = [], 0.0, []
    for prompt in job["tokens"]:
        lib.llama_memory_clear(lib.llama_get_memory(context), True)
        made, first, rest = _generate(model, context, prompt, job["max_tokens"], live=job.get("live", False))
        tokens.append(made)
        prefill.append(first)
        decode += rest
    result = {"tokens": tokens, "seconds": {"load": loaded, "prefill": prefill, "decode": decode}}
    sys.stdout.write(json.dumps(result) + "\n")


def _load(path: str, context: int, threads: int) -> tuple[Any, Any]:
    lib.llama_log_set(_QUIET, ctypes.c_void_p())
    lib.llama_backend_init()
    params = lib.llama_model_default_params()
    params.n_gpu_layers, params.use_extra_bufts = 0, False
    model = lib.llama_model_load_from_file(path.encode(), params)
    options = lib.llama_context_default_params()
    options.n_ctx, options.n_threads, options.n_threads_batch = context, threads, threads
    return model, lib.llama_init_from_model(model, options)


def _generate(model: Any, context: Any, prompt: list[int], most: int, *, live: bool) -> tuple[list[int], float, float]:
    """Tokens, seconds to the first, seconds for the others; `live` tells of every token as a line of JSON."""
    vocab = lib.llama_model_get_vocab(model)
    sampler = lib.llama_sampler_init_greedy()
    tokens: list[int] = []
    pending, began, first = prompt, time.perf_counter(), 0.0
    while len(tokens) < most:
        batch = (ctypes.c_int32 * len(pending))(*pending)
        if lib.llama_decode(context, lib.llama_batch_get_one(batch, len(pending))):
            raise SystemExit("llama_decode failed")
        pending = [lib.llama_sampler_sample(sampler, context, -1)]
        tokens += pending
        first = first or time.perf_counter() - began
        if live:
            sys.stdout.write(json.dumps({"made": pending}) + "\n")
            sys.stdout.flush()
        if lib.llama_vocab_is_eog(vocab, pending[0]):
            break
    return tokens, first, time.perf_counter() - began - first


if __name__ == "__main__":
    main()
