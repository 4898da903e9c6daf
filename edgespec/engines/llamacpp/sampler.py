"""llama.cpp's own samplers in llama-cpp-python's order (penalties, grammar, top-k, top-p, min-p, temperature), and the draw."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgespec.engines.draws import place_of
from edgespec.engines.llamacpp.grammar import grammar_sampler
from edgespec.engines.llamacpp.library import llama
from edgespec.engines.llamacpp.tokenizer import LlamaTokenizer
from edgespec.engines.near_ties import draw_near_tie, greedy_near_tie
from edgespec.types import Floats, SamplingParams

__all__ = ["LlamaSampler"]

_PENALTY_WINDOW = 64  # tokens looked back on, llama-cpp-python's `last_n_tokens_size`
_ENTRY = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class LlamaSampler:
    """What may be drawn, and how likely, is llama.cpp's; the draw is ours, in the order of ids, as llama.cpp's goes by logits.

    `biases`, penalties and grammar, look back on what was accepted, `cuts` and temperature do not. Near-ties are counted for
    logits that differ by up to `rounding`.
    """

    def __init__(
        self, params: SamplingParams, tokenizer: LlamaTokenizer, vocabulary: int, rounding: float, biases: Any = None
    ) -> None:  # fmt: skip
        lib = llama()
        self._params, self._tokenizer, self._rounding = params, tokenizer, rounding
        self._entries = np.empty(vocabulary, _ENTRY)
        self._ids = np.arange(vocabulary, dtype=np.int32)
        self._array = lib.llama_token_data_array()
        self._greedy = params.temperature == 0
        self._random = np.random.RandomState(params.seed)  # numpy froze its numbers: a seed's text outlives versions
        self.near_ties = 0
        self._biases = biases or _biases(params, tokenizer, vocabulary)
        self._cuts = _cuts(params)

    def probs(self, row: Floats) -> NDArray[np.float64]:
        logits, out = self._biased(row), np.zeros(len(row))
        if self._greedy:
            out[int(np.argmax(logits))] = 1.0
            return out
        ids, shares = self._left()
        out[ids] = shares
        return out

    def draw(self, row: Floats) -> int:
        logits = self._biased(row)
        if self._greedy:
            self.near_ties += greedy_near_tie(logits, self._rounding)
            return int(np.argmax(logits))
        ids, shares = self._left()
        drawn = self._random.random_sample()
        token = int(ids[place_of(shares, drawn)])
        self.near_ties += draw_near_tie(logits, self._params, token, drawn, self._rounding)
        return token

    def _biased(self, row: Floats) -> Floats:
        """The logits after penalties and grammar; the array has them too, for `_left`."""
        entries = self._entries
        entries["id"], entries["logit"], entries["p"] = self._ids, row, 0.0
        self._array.data = ctypes.cast(entries.ctypes.data, type(self._array.data))
        self._array.size, self._array.selected, self._array.sorted = len(entries), -1, False
        llama().llama_sampler_apply(self._biases, ctypes.byref(self._array))
        logits: Floats = entries["logit"].copy()
        return logits

    def _left(self) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """The tokens that the cuts leave of the array, by rising ids, and their probabilities."""
        llama().llama_sampler_apply(self._cuts, ctypes.byref(self._array))
        address = ctypes.cast(self._array.data, ctypes.POINTER(ctypes.c_byte))
        left = np.ctypeslib.as_array(address, shape=(self._array.size * _ENTRY.itemsize,)).view(_ENTRY)
        left = left[np.argsort(left["id"], kind="stable")]
        weights = np.exp(left["logit"] - left["logit"].max(), dtype=np.float64)
        return left["id"], weights / weights.sum()

    def accept(self, token: int) -> None:
        llama().llama_sampler_accept(self._biases, token)

    def clone(self) -> LlamaSampler:
        biases = llama().llama_sampler_clone(self._biases)
        return LlamaSampler(self._params, self._tokenizer, len(self._ids), self._rounding, biases)

    def close(self) -> None:
        if self._biases:
            llama().llama_sampler_free(self._biases)
            llama().llama_sampler_free(self._cuts)
            self._biases = self._cuts = None


def _biases(params: SamplingParams, tokenizer: LlamaTokenizer, vocabulary: int) -> Any:
    """Raises UsageError for a grammar that is none."""
    penalties = params.repeat_penalty, params.frequency_penalty, params.presence_penalty
    grammar = [grammar_sampler(tokenizer, params.grammar)] if params.grammar else []
    return _chain(llama().llama_sampler_init_penalties(vocabulary, _PENALTY_WINDOW, *penalties), *grammar)


def _cuts(params: SamplingParams) -> Any:
    lib = llama()
    if params.temperature == 0:
        return _chain()
    return _chain(
        lib.llama_sampler_init_top_k(params.top_k),
        lib.llama_sampler_init_top_p(params.top_p, 1),
        lib.llama_sampler_init_min_p(params.min_p, 1),
        lib.llama_sampler_init_temp(params.temperature),
    )


def _chain(*stages: Any) -> Any:
    chain = llama().llama_sampler_chain_init(llama().llama_sampler_chain_default_params())
    for stage in stages:
        llama().llama_sampler_chain_add(chain, stage)
    return chain
