"""From sessions that compute and sources that look up to the one drafter that the decode loop drives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgespec.engines.base import Session
from edgespec.speculation.drafting.base import Drafter, NoDrafter
from edgespec.speculation.drafting.draw import Drawer
from edgespec.speculation.drafting.lookup import Source, SpokenText
from edgespec.speculation.drafting.middle import ChainGuesser, MiddleDrafter
from edgespec.speculation.drafting.model import ModelDrafter
from edgespec.speculation.drafting.staged import StagedDrafter, Trust
from edgespec.speculation.verify import Method
from edgespec.types import Floats, SamplingParams

__all__ = ["Guessers", "Proposal"]

Proposal = Callable[[Floats], NDArray[np.float64]]
"""The distribution over the vocabulary that guesses are drawn from, given a row of logits."""


@dataclass(frozen=True)
class Guessers:
    """All of a runtime that can guess; what `spoken` and `trust` learn lives as long.

    `small` is the drafter, or the layers that draft; `middle` the target looking at part of its context. Trees have `nodes`
    at most. Without `branching` who computes grows chains, without `draft_ahead` nothing while the target waits for the disk.
    """

    vocabulary: int
    nodes: int
    spoken: SpokenText
    trust: Trust
    sources: Sequence[Source] = ()
    small: Session | None = None
    middle: Session | None = None
    branching: bool = True
    draft_ahead: bool = True

    @property
    def sessions(self) -> list[Session]:
        """Of whoever drafts by computing; the first one has the last word."""
        return [session for session in (self.middle, self.small) if session]

    def drafter(self, method: Method, params: SamplingParams, proposal: Proposal | None = None) -> Drafter:
        """For one generation that `method` judges. Without a `proposal` guesses are chosen, not drawn."""
        inner = self._computing(method, params, proposal) if self.sessions else NoDrafter()
        if not (method.mixed and self.sources):
            return inner
        return StagedDrafter(inner, self.spoken, self.sources, self.trust, alone=not self.sessions, most=self.nodes)

    def _computing(self, method: Method, params: SamplingParams, proposal: Proposal | None) -> Drafter:
        branch = {} if self.branching else {"branch": 1}
        drafter = ModelDrafter(
            self.sessions[0], vocabulary=self.vocabulary, leaves=self.nodes, temperature=params.temperature,
            drawer=self._drawer(method, params.seed, proposal), draft_ahead=self.draft_ahead, **branch,
        )  # fmt: skip
        if self.middle and self.small and method.mixed:
            return MiddleDrafter(drafter, ChainGuesser(self.small, self.vocabulary))
        return drafter

    def _drawer(self, method: Method, seed: int, proposal: Proposal | None) -> Drawer | None:
        if method.drawn == "no" or proposal is None:
            return None
        return Drawer(proposal, method.guesses if self.branching else 1, seed, method.drawn)
