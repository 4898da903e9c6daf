"""Is this text the target's own? Equal up to the first near-tie that flipped; a flip anywhere else is a failure."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from llama_cpp import Llama, llama_cpp

import edgespec
from edgespec.engines.llamacpp.model import LlamaModel
from edgespec.modelfile.header import read_model
from edgespec.speculation.tree import DraftTree, shared_prefix
from edgespec.types import Floats, SamplingParams


class Stock:
    """Plain llama-cpp-python on a model, as anybody would use it."""

    def __init__(self, path: Path, context: int = 512) -> None:
        self._llama = Llama(str(path), n_ctx=context, n_threads=2, verbose=False)

    def continue_(self, prompt: Sequence[int], params: SamplingParams) -> list[int]:
        """Tokens after `prompt`, up to the end token."""
        self._llama.set_seed(params.seed)
        tokens: list[int] = []
        for token in self._llama.generate(list(prompt), reset=True, **_options(params)):
            if token == self._llama.token_eos() or len(tokens) == params.max_tokens:
                return tokens
            tokens.append(token)
        return tokens

    def probs(self, row: Floats, said: Sequence[int], params: SamplingParams) -> np.ndarray:
        """What its own chain leaves of `row` after the tokens `said`, as probabilities by id."""
        chain = self._llama._init_sampler(**_options(params))
        for token in said:
            llama_cpp.llama_sampler_accept(chain.sampler, token)
        data = (llama_cpp.llama_token_data * len(row))(*((id_, logit, 0.0) for id_, logit in enumerate(row.tolist())))
        array = llama_cpp.llama_token_data_array(data, len(row), -1, False)
        llama_cpp.llama_sampler_apply(chain.sampler, ctypes.byref(array))
        out = np.zeros(len(row))
        for entry in array.data[: array.size]:
            out[entry.id] = entry.p
        return out

    def close(self) -> None:
        self._llama.close()


def _options(params: SamplingParams) -> dict[str, Any]:
    return {
        "temp": params.temperature, "top_k": params.top_k, "top_p": params.top_p, "min_p": params.min_p,
        "repeat_penalty": params.repeat_penalty, "frequency_penalty": params.frequency_penalty,
        "presence_penalty": params.presence_penalty,
    }  # fmt: skip


def plain_tokens(stock: Stock, runtime: edgespec.Runtime, messages: list[dict[str, str]], params: SamplingParams) -> list[int]:
    """What an answer must be: stock's where nothing is drawn, else our own without drafting. Without the end token."""
    if params.temperature == 0:
        return stock.continue_(runtime.prompt_tokens(messages), params)
    return list(runtime.chat(messages, speculate=False, **vars(params)).tokens)


class Judge:
    """Replays a text on the plain engine to tell what its rounding can turn from errors."""

    def __init__(self, path: Path, context: int = 512) -> None:
        self.model = LlamaModel(read_model(path), None, threads=2)
        self._session = self.model.session(context=context, chunk=128, max_nodes=0)

    def is_near_tie(self, prompt: Sequence[int], tokens: Sequence[int], params: SamplingParams) -> bool:
        """Whether the draw that follows `tokens` is counted as one."""
        sampler = self.model.sampler(params)
        self._session.rewind(0)
        self._session.extend(prompt[:-1])
        pending = prompt[-1]
        for token in tokens:
            sampler.draw(self._session.score(DraftTree(pending))[0])
            sampler.accept(token)
            self._session.commit([0], [pending])
            pending = token
        before = sampler.near_ties
        sampler.draw(self._session.score(DraftTree(pending))[0])
        flipped = sampler.near_ties > before
        sampler.close()
        return flipped

    def flip(self, prompt: Sequence[int], wanted: Sequence[int], have: Sequence[int], params: SamplingParams) -> int | None:
        """None for equal texts, the place of a near-tie flip otherwise; AssertionError for any other difference.

        Both are without the end token, so where one text goes on and the other does not that was drawn.
        """
        place = shared_prefix(wanted, have)
        if place == len(wanted) == len(have):
            return None
        assert self.is_near_tie(prompt, wanted[:place], params), (
            f"texts differ at {place}: {wanted[place:][:1]} and {have[place:][:1]}"
        )
        return place

    def close(self) -> None:
        self.model.close()
