"""One timeline of tokens and what continues it: prompts that share a beginning with what was said pay for the rest only."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

from edgespec.engines.llamacpp.session import LlamaSession
from edgespec.errors import Cancelled
from edgespec.loading import Loaded, corrections, keep_corrections
from edgespec.meter import Meter
from edgespec.parked import Parking
from edgespec.speculation.decoder import Decoder
from edgespec.speculation.drafting.base import Drafter
from edgespec.speculation.tree import shared_prefix
from edgespec.strategy import Strategy
from edgespec.text.assemble import TextAssembler
from edgespec.timeline import Timeline
from edgespec.types import Chunk, FinishReason, SamplingParams, Statistics

__all__ = ["Generator"]


class Generator:
    """`history` is what the sessions hold, in order, and the pending token. `cancelled` may be set from any thread."""

    def __init__(
        self, loaded: Loaded, target: LlamaSession, strategy: Strategy, parking: Parking, load_seconds: float,
        timeline: Timeline,
    ) -> None:  # fmt: skip
        self._loaded, self._target, self._strategy, self._parking = loaded, target, strategy, parking
        self._load_seconds, self._timeline = load_seconds, timeline
        self._corrections = corrections(loaded.prepared)
        self.history: list[int] = []
        self.cancelled = threading.Event()

    def chunks(self, prompt: list[int], params: SamplingParams, speculate: bool) -> Iterator[Chunk]:
        """What follows `prompt`, piece by piece. Raises as `Runtime.stream`; `settle` must follow, however it ends."""
        text = TextAssembler(params.stop)
        most = min(params.max_tokens, self._target.capacity - len(prompt))
        reason: FinishReason = "length"
        with self._strategy.generation(params, speculate) as guess, closing(self._loaded.target.sampler(params)) as sampler:
            meter = Meter(self._loaded, guess.policy, self._begin(len(prompt), guess.verify), self._corrections)
            decoder = Decoder(
                self._target, guess.drafter, guess.policy, sampler, self._loaded.target.tokenizer.ends, verify=guess.verifier,
                top=params.top_logprobs if params.logprobs else None, timeline=self._timeline,
            )  # fmt: skip
            try:
                missing = self._reuse_prefix(prompt, guess.drafter)
                meter.cached(len(prompt) - len(missing))
                for chunk in self._rounds(decoder, missing, most, meter, text):
                    yield chunk
                    if self.cancelled.is_set():
                        raise Cancelled("cancelled")
                    if text.stopped or decoder.ends(self.history[-1]):
                        reason = "stop"
                        break
            except Cancelled:
                reason = "cancelled"
        rest = text.finish()
        ended: FinishReason = "stop" if text.stopped else reason
        yield Chunk(rest, (), (), meter.statistics(), finish_reason=ended, spans=((rest, False),) if rest else ())

    def _begin(self, prompt_tokens: int, verify: str) -> Statistics:
        return Statistics(
            prompt_tokens=prompt_tokens, load_seconds=self._load_seconds, speculation=self._strategy.mode,
            stages=self._strategy.stages, draft_view=self._strategy.draft_view, verify=verify,
        )  # fmt: skip

    def _rounds(self, decoder: Decoder, missing: list[int], most: int, meter: Meter, text: TextAssembler) -> Iterator[Chunk]:
        tokenizer = self._loaded.target.tokenizer
        for done in decoder.rounds(missing, most):
            self.history += done.tokens
            meter.add(done)
            kept = [i for i, token in enumerate(done.tokens) if not tokenizer.ends(token)]
            spans = tuple((text.feed(tokenizer.piece(done.tokens[i])), done.from_draft[i]) for i in kept)
            yield Chunk(
                text="".join(span for span, _ in spans),
                tokens=tuple(done.tokens[i] for i in kept),
                from_draft=tuple(done.from_draft[i] for i in kept),
                statistics=meter.statistics(),
                logprobs=tuple(done.logprobs[i] for i in kept if done.logprobs),
                spans=tuple(span for span in spans if span[0]),
            )

    def _reuse_prefix(self, prompt: list[int], drafter: Drafter) -> list[int]:
        """Keep the KV of the shared prefix; returns what is not there yet, at least the last token of the prompt."""
        self._parking.swap([self._target, *self._strategy.sessions], self.history, prompt[:-1])
        self.history = list(prompt)
        drafted = drafter.rewind(self._target.length)
        drafter.extend(prompt[drafted:-1])
        return prompt[self._target.length :]

    def settle(self) -> None:
        """After any end, an error in the middle of a round included: sessions and history agree again."""
        self._target.offer(None)
        length = self._target.rewind(min(self._target.length, max(0, len(self.history) - 1)))
        self._strategy.rewind(length)
        self.history = self.history[:length]

    def keep(self) -> None:
        """Remember for the next runtime what rounds took in this one."""
        keep_corrections(self._loaded.prepared, self._corrections)

    def save(self, path: str, drafter: str | None) -> tuple[int, int]:
        """Keys and values of the history, the target's and the drafter's; of how many tokens. Raises EngineError."""
        small = self._strategy.portable
        return self._target.save(path, self.history), small.save(drafter, self.history) if drafter and small else 0

    def load(self, path: str, drafter: str | None) -> int:
        """Go on from what `save` wrote; the target's tokens, 0 where the engine refuses it."""
        self.history = self._target.load(path) or []
        self._strategy.rewind(0)
        if drafter and (small := self._strategy.portable):
            has = small.load(drafter) or []
            small.rewind(shared_prefix(has, self.history))
        return len(self.history)
