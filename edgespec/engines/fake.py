"""A deterministic engine of a few lines, for logic: the next token's distribution is a table over the last tokens.

Shipped so that users can test code built on edgespec without a model. Nothing about speed or memory follows from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from edgespec.engines.base import Idle
from edgespec.engines.draws import place_of
from edgespec.engines.near_ties import draw_near_tie, greedy_near_tie
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
        self._known: dict[tuple[int, ...], Floats] = {}

    def logits(self, history: Sequence[int]) -> Floats:
        """(vocabulary,) after `history`; not to be changed."""
        recent = tuple(history[-self.order :])
        if recent not in self._known:
            self._known[recent] = self._logits(recent)
        return self._known[recent]

    def _logits(self, history: tuple[int, ...]) -> Floats:
        key = [self._seed, *(token + 1 for token in history)]
        row = np.random.default_rng(key).normal(0.0, self.sharpness, self.vocabulary).astype(np.float32)
        if self._teacher is None:
            return row
        mixed: Floats = (1 - self._agreement) * row + self._agreement * self._teacher.logits(history)
        return mixed

    def session(
        self, capacity: int = 4096, before_pass: Callable[[], None] = lambda: None, stalls: int = 64, rows: int = 64
    ) -> FakeSession:  # fmt: skip
        return FakeSession(self, capacity, before_pass, stalls, rows)


class FakeSession:
    """Implements `engines.base.ViewableSession`; `before_pass` may raise to play a failing engine.

    Every pass offers its waiting time, `stalls` times at most. It scores `rows` nodes at most.
    A token's key and query are the same random vector, so that queries look for tokens like themselves.
    """

    def __init__(
        self, model: FakeModel, capacity: int, before_pass: Callable[[], None], stalls: int = 64, rows: int = 64
    ) -> None:  # fmt: skip
        self.rows = rows
        self._model, self.capacity, self._before_pass, self._stalls = model, capacity, before_pass, stalls
        self.tokens: list[int] = []
        self._scored = 0
        self._idle: Idle | None = None
        self._hidden: set[int] = set()  # positions out of view
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
        if max(len(tree) - start, tree.leaves) > self.rows:
            raise ValueError(f"{len(tree) - start} nodes with {tree.leaves} leaves are too many for a pass of {self.rows}")
        self._before_pass()
        stalls = self._stalls
        while stalls and self._idle and self._idle(1.0):
            stalls -= 1
        self.passes += 1
        self._scored = len(tree)
        seen = [token for place, token in enumerate(self.tokens) if place not in self._hidden]
        histories = [seen + [tree.tokens[n] for n in tree.path(node)] for node in range(start, len(tree))]
        return np.stack([self._model.logits(history) for history in histories])

    def trim(self, nodes: int) -> None:
        self._scored = min(self._scored, nodes)

    def commit(self, path: Sequence[int], tokens: Sequence[int], keep: Sequence[int] = ()) -> None:
        scored = sum(1 for node in keep if node < self._scored)
        self.extend(tokens)
        self._scored = scored

    @property
    def evaluated(self) -> int:
        return self.length

    def attend(self, ranges: Sequence[tuple[int, int]] | None) -> None:
        seen = {place for start, stop in ranges or [(0, self.length)] for place in range(start, stop)}
        self._hidden = set(range(self.length)) - seen

    def attention(self, chunk: int) -> tuple[Floats, Floats]:
        table = np.random.default_rng(0).normal(size=(self._model.vocabulary, 8)).astype(np.float32)
        vectors = table[self.tokens].reshape(-1, 1, 1, 8)
        whole = len(vectors) // chunk
        means: Floats = vectors[: whole * chunk].reshape(whole, chunk, 1, 1, 8).mean(axis=1)
        return vectors[-4:], means

    def offer(self, idle: Idle | None) -> None:
        self._idle = idle

    def rewind(self, length: int) -> int:
        self._hidden = set()
        del self.tokens[length:]
        self._scored = 0
        return self.length

    def close(self) -> None:
        self.tokens = []


class FakeSampler:
    """Implements `engines.base.Sampler` in numpy: penalties, top-k, top-p, min-p, temperature, draw.

    A `FakeModel` never rounds otherwise; `rounding` plays an engine that does.
    """

    def __init__(self, params: SamplingParams, rounding: float = 0.0) -> None:
        self._params, self._rounding, self._rng = params, rounding, np.random.default_rng(params.seed)
        self._recent: list[int] = []
        self.near_ties = 0

    def probs(self, row: Floats) -> NDArray[np.float64]:
        return self._distribution(self._penalised(row.astype(np.float64)))

    def draw(self, row: Floats) -> int:
        logits = self._penalised(row.astype(np.float64))
        probs = self._distribution(logits)
        if self._params.temperature == 0:
            self.near_ties += greedy_near_tie(logits, self._rounding)
            return int(np.argmax(probs))
        drawn = self._rng.random()
        token = place_of(probs, drawn)
        self.near_ties += draw_near_tie(logits, self._params, token, drawn, self._rounding)
        return token

    def _distribution(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        if self._params.temperature == 0:
            one_hot: NDArray[np.float64] = np.eye(len(logits))[int(np.argmax(logits))]
            return one_hot
        order = np.argsort(-logits, kind="stable")
        kept = order[: self._params.top_k or len(order)]
        weights = np.exp(logits[kept] - logits[kept[0]])
        weights /= weights.sum()
        count = int(np.searchsorted(np.cumsum(weights), self._params.top_p)) + 1
        keep = weights[:count] >= self._params.min_p * weights[0]
        kept = kept[:count][keep]
        final = np.exp((logits[kept] - logits[kept[0]]) / self._params.temperature)
        out = np.zeros(len(logits))
        out[kept] = final / final.sum()
        return out

    def accept(self, token: int) -> None:
        self._recent = [*self._recent[-63:], token]

    def clone(self) -> FakeSampler:
        twin = FakeSampler(self._params, self._rounding)
        twin._recent = list(self._recent)
        return twin

    def close(self) -> None:
        self._recent = []

    def _penalised(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        seen, times = np.unique(np.array(self._recent, dtype=int), return_counts=True)
        penalty = self._params.repeat_penalty
        logits[seen] = np.where(logits[seen] > 0, logits[seen] / penalty, logits[seen] * penalty)
        logits[seen] -= times * self._params.frequency_penalty + self._params.presence_penalty
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
