"""Stock llama-cpp-python on mmap without repacking, its best configuration under a cap: one prompt, greedy, JSON out.

Only the low-level bindings are used: plain load, plain context, one token per pass.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import time
from typing import Any

from llama_cpp import llama_cpp as lib

QUIET = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda level, text, user: None)


def load(path: str, context: int, threads: int) -> tuple[Any, Any]:
    lib.llama_log_set(QUIET, ctypes.c_void_p())
    lib.llama_backend_init()
    params = lib.llama_model_default_params()
    params.n_gpu_layers, params.use_extra_bufts = 0, False
    model = lib.llama_model_load_from_file(path.encode(), params)
    options = lib.llama_context_default_params()
    options.n_ctx, options.n_threads, options.n_threads_batch = context, threads, threads
    return model, lib.llama_init_from_model(model, options)


def tokenize(vocab: Any, text: str) -> list[int]:
    data = text.encode()
    buffer = (ctypes.c_int32 * (len(data) + 8))()
    return list(buffer[: lib.llama_tokenize(vocab, data, len(data), buffer, len(buffer), True, True)])


def generate(model: Any, context: Any, prompt: str, most: int) -> tuple[list[int], float]:
    """Tokens, and seconds spent on all but the first."""
    vocab = lib.llama_model_get_vocab(model)
    sampler = lib.llama_sampler_init_greedy()
    pending, tokens, started = tokenize(vocab, prompt), [], 0.0
    while len(tokens) < most:
        batch = (ctypes.c_int32 * len(pending))(*pending)
        if lib.llama_decode(context, lib.llama_batch_get_one(batch, len(pending))):
            raise SystemExit("llama_decode failed")
        pending = [lib.llama_sampler_sample(sampler, context, -1)]
        tokens += pending
        started = started or time.perf_counter()
        if lib.llama_vocab_is_eog(vocab, pending[0]):
            break
    return tokens, time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target")
    parser.add_argument("prompt")
    parser.add_argument("--max-tokens", type=int, default=16)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    started = time.perf_counter()
    model, context = load(args.target, args.context, args.threads)
    loaded = time.perf_counter() - started
    tokens, seconds = generate(model, context, args.prompt, args.max_tokens)
    print(
        json.dumps(
            {"tokens": tokens, "tokens_per_second": (len(tokens) - 1) / seconds, "seconds": {"load": loaded, "decode": seconds}}
        )
    )


if __name__ == "__main__":
    main()
