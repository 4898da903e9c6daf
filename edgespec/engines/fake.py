"""A deterministic engine of a few lines, for logic: the next token's distribution is a table over the last tokens.

Shipped so that users can test code built on edgespec without a model. Nothing about speed or memory follows from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgespec.engines.base import Idle
from edgespec.engines.near_ties import DRAW_MARGIN, greedy_near_tie
from edgespec.errors import ContextFull
from edgespec.speculation.tree import DraftTree
from edgespec.types import Floats, SamplingParams

__all__ = ["FakeModel", "FakeSampler", "FakeSession", "FakeTokenizer"]


class FakeModel:
    """Logits are a fixed random function of the last `order` tokens; `agreement` mixes in another model's logits."""

    def __init__(self, vocabulary: int = 32, *, seed: int = 0, order: int = 2, sharpness: float = 2.0,
                 teacher: FakeModel | None = None, agreement: float = 0.0) -> None:  # fmt: skip
        self.vocabulary, self.order, self.sharpness = vocabulary, order, sharpness
        self._seed, self._teacher, self._agreement = seed, teacher, agreement

    def logits(self, history: Sequence[int]) -> Floats:
        """(vocabulary,) after `history`."""
        key = [self._seed, *(token + 1 for token in history[-self.order :])]
        row = np.random.default_rng(key).normal(0.0, self.sharpness, self.vocabulary).astype(np.float32)
        if self._teacher is None:
            return row
        mixed: Floats = (1 - self._agreement) * row + self._agreement * self._teacher.logits(history)
        return mixed

    def session(self, capacity: int = 4096, before_pass: Callable[[], None] = lambda: None) -> FakeSession:
        return FakeSession(self, capacity, before_pass)


class FakeSession:
    """Implements `engines.base.Session`; `before_pass` may raise to play a failing engine; every pass waits a while."""

    def __init__(self, model: FakeModel, capacity: int, before_pass: Callable[[], None]) -> None:
        self._model, self.capacity, self._before_pass = model, capacity, before_pass
        self.tokens: list[int] = []
        self._scored = 0
        self._idle: Idle | None = None
        self.passes = 0

    @property
    def length(self) -> int:
        return len(self.tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        if self.length + len(tokens) > self.capacity:
            raise ContextFull(f"{self.length + len(tokens)} tokens do not fit {self.capacity}: raise --context")
        self.tokens += tokens
        self._scored = 0

    def score(self, tree: DraftTree, start: int = 0) -> Floats:
        if self.length + len(tree) > self.capacity:
            raise ContextFull(f"the context of {self.capacity} tokens is full: raise --context")
        if start > self._scored:
            raise ValueError(f"nodes must be scored in order: {self._scored} were, {start} was asked for")
        self._before_pass()
        while self._idle and self._idle(1.0):
            pass
        self.passes += 1
        self._scored = len(tree)
        histories = [self.tokens + [tree.tokens[n] for n in tree.path(node)] for node in range(start, len(tree))]
        return np.stack([self._model.logits(history) for history in histories])

    def commit(self, path: Sequence[int], tokens: Sequence[int], keep: Sequence[int] = ()) -> None:
        scored = sum(1 for node in keep if node < self._scored)
        self.extend(tokens)
        self._scored = scored

    def offer(self, idle: Idle | None) -> None:
        self._idle = idle

    def rewind(self, length: int) -> int:
        del self.tokens[length:]
        self._scored = 0
        return self.length

    def close(self) -> None:
        self.tokens = []


class FakeSampler:
    """Implements `engines.base.Sampler` in numpy: penalties, top-k, top-p, min-p, temperature, draw."""

    def __init__(self, params: SamplingParams) -> None:
        self._params, self._rng = params, np.random.default_rng(params.seed)
        self._recent: list[int] = []
        self.near_ties = 0

    def probs(self, row: Floats) -> np.ndarray:
        """(vocabulary,) float64, the distribution `draw` draws from; one-hot when greedy."""
        logits = self._penalised(row.astype(np.float64))
        if self._params.temperature == 0:
            one_hot: np.ndarray = np.eye(len(row))[int(np.argmax(logits))]
            return one_hot
        order = np.argsort(-logits, kind="stable")
        kept = order[: self._params.top_k or len(order)]
        weights = np.exp(logits[kept] - logits[kept[0]])
        weights /= weights.sum()
        count = int(np.searchsorted(np.cumsum(weights), self._params.top_p)) + 1
        keep = weights[:count] >= self._params.min_p * weights[0]
        kept = kept[:count][keep]
        final = np.exp((logits[kept] - logits[kept[0]]) / self._params.temperature)
        out = np.zeros(len(row))
        out[kept] = final / final.sum()
        return out

    def draw(self, row: Floats) -> int:
        probs = self.probs(row)
        if self._params.temperature == 0:
            self.near_ties += greedy_near_tie(row)
            return int(np.argmax(probs))
        edges, drawn = np.cumsum(probs), self._rng.random()
        self.near_ties += bool(np.abs(edges[(edges > 0) & (edges < 1)] - drawn).min(initial=1.0) < DRAW_MARGIN)
        return int(min(np.searchsorted(edges, drawn, side="right"), np.flatnonzero(probs)[-1]))

    def accept(self, token: int) -> None:
        self._recent = [*self._recent[-63:], token]

    def close(self) -> None:
        self._recent = []

    def _penalised(self, logits: np.ndarray) -> np.ndarray:
        seen = np.array(sorted(set(self._recent)), dtype=int)
        penalty = self._params.repeat_penalty
        logits[seen] = np.where(logits[seen] > 0, logits[seen] / penalty, logits[seen] * penalty)
        return logits


class FakeTokenizer:
    """One token per byte; token `end` (0 unless said otherwise) ends a generation."""

    adds_bos = False

    def __init__(self, end: int = 0) -> None:
        self._end = end

    def encode(self, text: str, *, special: bool = False, bos: bool = False) -> list[int]:
        return list(text.encode())

    def piece(self, token: int) -> bytes:
        return b"" if token == self._end else bytes([token % 256])

    def ends(self, token: int) -> bool:
        return token == self._end
