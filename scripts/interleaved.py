"""Two ways to decode on the same loaded models, in pairs whose order is swapped from one to the next."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from edgespec.engines.base import Session
from edgespec.loading import Options, load_models, prepare
from edgespec.memory.plan import DRAFT_CHUNK
from edgespec.speculation.decoder import Decoder, Policy
from edgespec.speculation.drafting.base import Drafter
from edgespec.types import SamplingParams

Side = Callable[[], tuple[Drafter, Policy]]


class Bench:
    """`tokens` a side, greedy; ends of text are ignored, so that every run makes as many."""

    def __init__(self, options: Options, tokens: int) -> None:
        self.prepared, self._tokens = prepare(options), tokens
        self.loaded = load_models(self.prepared)
        plan = self.prepared.plan
        self.main = self.loaded.target.session(context=plan.context, chunk=plan.chunk, max_nodes=plan.max_nodes)
        small = self.loaded.drafter
        self.small: Session | None = (
            small.session(context=plan.context, chunk=DRAFT_CHUNK, max_nodes=plan.max_nodes) if small else None
        )

    def encode(self, text: str) -> list[int]:
        return self.loaded.target.tokenizer.encode(text, special=True, bos=True)

    def rate(self, prompt: list[int], side: Side) -> tuple[float, float]:
        """Tokens per second after the first, and per pass."""
        self.main.rewind(0)
        if self.small:
            self.small.rewind(0)
        drafter, policy = side()
        drafter.extend(prompt[:-1])
        sampler = self.loaded.target.sampler(SamplingParams())
        rounds = Decoder(self.main, drafter, policy, sampler, lambda token: False).rounds(prompt, self._tokens)
        next(rounds)
        began, made, passes = time.perf_counter(), 0, 0
        for done in rounds:
            made, passes = made + len(done.tokens), passes + 1
        sampler.close()
        return made / (time.perf_counter() - began), made / passes

    def compare(self, prompt: list[int], one: Side, other: Side, pairs: int) -> str:
        """Cells of a table: median and range of one / other, pairs, tokens/s and tokens a pass of one."""
        ratios, rates = [], []
        for number in range(pairs):
            sides = {"one": one, "other": other}
            done = {name: self.rate(prompt, sides[name]) for name in sorted(sides, reverse=bool(number % 2))}
            ratios.append(done["one"][0] / done["other"][0])
            rates.append(done["one"])
        middle = statistics.median(ratios)
        rate, passed = (statistics.median(column) for column in zip(*rates, strict=True))
        return f"{middle:.2f} | {min(ratios):.2f}-{max(ratios):.2f} | {pairs} | {rate:.2f} | {passed:.2f}"
