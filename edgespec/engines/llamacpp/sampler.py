"""llama.cpp's own samplers in llama-cpp-python's order (penalties, grammar, top-k, top-p, min-p, temperature), and the draw."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgespec.engines.llamacpp.grammar import grammar_sampler
from edgespec.engines.llamacpp.library import llama
from edgespec.engines.llamacpp.tokenizer import LlamaTokenizer
from edgespec.engines.near_ties import DRAW_MARGIN, greedy_near_tie, mirrored_uniforms
from edgespec.types import Floats, SamplingParams

__all__ = ["LlamaSampler"]

_PENALTY_WINDOW = 64  # tokens looked back on, llama-cpp-python's `last_n_tokens_size`
_ENTRY = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class LlamaSampler:
    """`filters` decide what may be drawn and how likely; the draw is a sampler of its own: one can ask without drawing."""

    def __init__(self, params: SamplingParams, tokenizer: LlamaTokenizer, vocabulary: int, filters: Any = None) -> None:
        lib = llama()
        self._params, self._tokenizer = params, tokenizer
        self._entries = np.empty(vocabulary, _ENTRY)
        self._ids = np.arange(vocabulary, dtype=np.int32)
        self._array = lib.llama_token_data_array()
        self._greedy = params.temperature == 0
        self._uniforms = mirrored_uniforms(params.seed)
        self.near_ties = 0
        self._filters = filters or _filters(params, tokenizer, vocabulary)
        self._last = lib.llama_sampler_init_greedy() if self._greedy else lib.llama_sampler_init_dist(params.seed)

    def probs(self, row: Floats) -> NDArray[np.float64]:
        left = self._filtered(row)
        out = np.zeros(len(row))
        if self._greedy:
            out[left["id"][int(np.argmax(left["logit"]))]] = 1.0
            return out
        weights = np.exp(left["logit"] - left["logit"].max(), dtype=np.float64)
        out[left["id"]] = weights / weights.sum()
        return out

    def draw(self, row: Floats) -> int:
        left = self._filtered(row)
        llama().llama_sampler_apply(self._last, ctypes.byref(self._array))
        self.near_ties += self._is_near_tie(left)
        return int(left["id"][self._array.selected])

    def _filtered(self, row: Floats) -> np.ndarray:
        """What the filters left of `row`: a view, valid until the next call, which the last sampler sees too."""
        entries = self._entries
        entries["id"], entries["logit"], entries["p"] = self._ids, row, 0.0
        self._array.data = ctypes.cast(entries.ctypes.data, type(self._array.data))
        self._array.size, self._array.selected, self._array.sorted = len(entries), -1, False
        llama().llama_sampler_apply(self._filters, ctypes.byref(self._array))
        return np.ctypeslib.as_array(
            ctypes.cast(self._array.data, ctypes.POINTER(ctypes.c_byte)), shape=(self._array.size * _ENTRY.itemsize,)
        ).view(_ENTRY)

    def _is_near_tie(self, left: np.ndarray) -> bool:
        if self._greedy:
            return greedy_near_tie(left["logit"])
        drawn = next(self._uniforms)
        edges = np.cumsum(left["p"], dtype=np.float64)[:-1]  # the ends of the interval [0, 1] are no choice
        return bool(edges.size and np.abs(edges - drawn).min() < DRAW_MARGIN)

    def accept(self, token: int) -> None:
        llama().llama_sampler_accept(self._filters, token)

    def clone(self) -> LlamaSampler:
        return LlamaSampler(self._params, self._tokenizer, len(self._ids), llama().llama_sampler_clone(self._filters))

    def close(self) -> None:
        if self._filters:
            llama().llama_sampler_free(self._filters)
            llama().llama_sampler_free(self._last)
            self._filters = self._last = None


def _filters(params: SamplingParams, tokenizer: LlamaTokenizer, vocabulary: int) -> Any:
    """Raises UsageError for a grammar that is none."""
    lib = llama()
    grammar = [grammar_sampler(tokenizer, params.grammar)] if params.grammar else []
    penalties = params.repeat_penalty, params.frequency_penalty, params.presence_penalty
    stages = [lib.llama_sampler_init_penalties(vocabulary, _PENALTY_WINDOW, *penalties), *grammar]
    if params.temperature > 0:
        stages += [
            lib.llama_sampler_init_top_k(params.top_k),
            lib.llama_sampler_init_typical(1.0, 1),
            lib.llama_sampler_init_top_p(params.top_p, 1),
            lib.llama_sampler_init_min_p(params.min_p, 1),
            lib.llama_sampler_init_temp(params.temperature),
        ]
    chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
    for stage in stages:
        lib.llama_sampler_chain_add(chain, stage)
    return chain
