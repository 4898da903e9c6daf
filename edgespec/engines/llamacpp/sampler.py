"""llama.cpp's own sampler chain, in llama-cpp-python's order: penalties, top-k, top-p, min-p, temperature, draw."""

from __future__ import annotations

import ctypes

import numpy as np

from edgespec.engines.llamacpp.library import llama
from edgespec.engines.near_ties import DRAW_MARGIN, greedy_near_tie, mirrored_uniforms
from edgespec.types import Floats, SamplingParams

__all__ = ["LlamaSampler"]

_PENALTY_WINDOW = 64  # tokens looked back on, llama-cpp-python's `last_n_tokens_size`
_ENTRY = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class LlamaSampler:
    def __init__(self, params: SamplingParams, vocabulary: int) -> None:
        lib = llama()
        self._chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        self._entries = np.empty(vocabulary, _ENTRY)
        self._ids = np.arange(vocabulary, dtype=np.int32)
        self._array = lib.llama_token_data_array()
        self._greedy = params.temperature == 0
        self._uniforms = mirrored_uniforms(params.seed)
        self.near_ties = 0
        stages = [lib.llama_sampler_init_penalties(vocabulary, _PENALTY_WINDOW, params.repeat_penalty, 0.0, 0.0)]
        if self._greedy:
            stages.append(lib.llama_sampler_init_greedy())
        else:
            stages += [
                lib.llama_sampler_init_top_k(params.top_k),
                lib.llama_sampler_init_typical(1.0, 1),
                lib.llama_sampler_init_top_p(params.top_p, 1),
                lib.llama_sampler_init_min_p(params.min_p, 1),
                lib.llama_sampler_init_temp(params.temperature),
                lib.llama_sampler_init_dist(params.seed),
            ]
        for stage in stages:
            lib.llama_sampler_chain_add(self._chain, stage)

    def draw(self, row: Floats) -> int:
        lib = llama()
        entries = self._entries
        entries["id"], entries["logit"], entries["p"] = self._ids, row, 0.0
        self._array.data = ctypes.cast(entries.ctypes.data, type(self._array.data))
        self._array.size, self._array.selected, self._array.sorted = len(entries), -1, False
        lib.llama_sampler_apply(self._chain, ctypes.byref(self._array))
        left = np.ctypeslib.as_array(
            ctypes.cast(self._array.data, ctypes.POINTER(ctypes.c_byte)), shape=(self._array.size * _ENTRY.itemsize,)
        ).view(_ENTRY)
        self.near_ties += self._is_near_tie(left)
        return int(left["id"][self._array.selected])

    def _is_near_tie(self, left: np.ndarray) -> bool:
        if self._greedy:
            return greedy_near_tie(left["logit"])
        drawn = next(self._uniforms)
        edges = np.cumsum(left["p"], dtype=np.float64)[:-1]  # the ends of the interval [0, 1] are no choice
        return bool(edges.size and np.abs(edges - drawn).min() < DRAW_MARGIN)

    def accept(self, token: int) -> None:
        llama().llama_sampler_accept(self._chain, token)

    def close(self) -> None:
        if self._chain:
            llama().llama_sampler_free(self._chain)
            self._chain = None
