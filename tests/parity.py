"""Is this text the stock engine's? Equal up to the first near-tie that flipped; a flip anywhere else is a failure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from llama_cpp import Llama

from edgespec.engines import near_ties
from edgespec.engines.llamacpp import sampler as llama_sampler
from edgespec.engines.llamacpp.model import LlamaModel
from edgespec.modelfile.header import read_model
from edgespec.speculation.tree import DraftTree
from edgespec.types import SamplingParams


class Stock:
    """Plain llama-cpp-python on a model, as anybody would use it."""

    def __init__(self, path: Path, context: int = 512) -> None:
        self._llama = Llama(str(path), n_ctx=context, n_threads=2, verbose=False)

    def continue_(self, prompt: Sequence[int], params: SamplingParams) -> list[int]:
        """Tokens after `prompt`, up to and with the end token."""
        self._llama.set_seed(params.seed)
        tokens = []
        options: dict[str, Any] = {
            "temp": params.temperature, "top_k": params.top_k, "top_p": params.top_p, "min_p": params.min_p,
            "repeat_penalty": params.repeat_penalty, "frequency_penalty": params.frequency_penalty,
            "presence_penalty": params.presence_penalty, "reset": True,
        }  # fmt: skip
        for token in self._llama.generate(list(prompt), **options):
            tokens.append(token)
            if token == self._llama.token_eos() or len(tokens) == params.max_tokens:
                return tokens
        return tokens

    def close(self) -> None:
        self._llama.close()


# A branch's cells lie elsewhere in the cache than plain decoding's, so attention sums in another order. That is the last bit
# of a float, but where it turns the rounding of a quantized activation it moved the embedded pair's logits by up to 0.13,
# in 3 of 464 rows compared. What a difference is forgiven for is that much, not the smaller margin that is reported.
NOISE_LOGITS, NOISE_PROBABILITY = 0.15, 0.03


class Judge:
    """Replays a text on the plain engine to tell what its numerics can turn from errors."""

    def __init__(self, path: Path, context: int = 512) -> None:
        self._model = LlamaModel(read_model(path), None, threads=2)
        self._session = self._model.session(context=context, chunk=128, max_nodes=0)

    def is_near_tie(self, prompt: Sequence[int], tokens: Sequence[int], place: int, params: SamplingParams) -> bool:
        sampler = self._model.sampler(params)
        self._session.rewind(0)
        self._session.extend(prompt[:-1])
        pending, before = prompt[-1], 0
        for token in tokens[: place + 1]:
            before = sampler.near_ties
            sampler.draw(self._session.score(DraftTree(pending))[0])
            sampler.accept(token)
            self._session.commit([0], [pending])
            pending = token
        flipped = sampler.near_ties > before
        sampler.close()
        return flipped

    @contextmanager
    def _wide_margins(self) -> Iterator[None]:
        before = near_ties.GREEDY_MARGIN, llama_sampler.DRAW_MARGIN
        near_ties.GREEDY_MARGIN, llama_sampler.DRAW_MARGIN = NOISE_LOGITS, NOISE_PROBABILITY
        try:
            yield
        finally:
            near_ties.GREEDY_MARGIN, llama_sampler.DRAW_MARGIN = before

    def flip(self, prompt: Sequence[int], wanted: Sequence[int], have: Sequence[int], params: SamplingParams) -> int | None:
        """None for equal texts, the place of a near-tie flip otherwise; AssertionError for any other difference."""
        place = next((i for i, (a, b) in enumerate(zip(wanted, have, strict=False)) if a != b), None)
        if place is None:
            assert len(wanted) == len(have)
            return None
        with self._wide_margins():
            tie = self.is_near_tie(prompt, wanted, place, params)
        assert tie, f"texts differ at {place}: {wanted[place]} and {have[place]}"
        return place

    def close(self) -> None:
        self._model.close()
