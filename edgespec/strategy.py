"""What guesses, and how guesses are judged: from what a user asks for to policy, drafter and verifier."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from edgespec.engines.base import Session
from edgespec.engines.llamacpp.session import LlamaSession
from edgespec.errors import UsageError
from edgespec.loading import Loaded, auto_policy, expected, keep_policy
from edgespec.memory.plan import DRAFT_CHUNK, MOST_NODES, SPOKEN_CONTEXTS, voting_layers
from edgespec.speculation.decoder import Policy
from edgespec.speculation.drafting.base import Drafter, NoDrafter
from edgespec.speculation.drafting.datastore import Datastore
from edgespec.speculation.drafting.guessers import Guessers, Proposal
from edgespec.speculation.drafting.lookup import Source, SpokenText
from edgespec.speculation.drafting.staged import Trust
from edgespec.speculation.drafting.view import ViewedSession
from edgespec.speculation.policy import AlphaPolicy, AutoPolicy, FixedPolicy
from edgespec.speculation.retrieval import Shape, View
from edgespec.speculation.verify import LOSSY, METHODS, Method, Verifier
from edgespec.speculation.verify.match import match_target
from edgespec.types import Expected, SamplingParams, Speculation, Stage, Vocabulary

__all__ = ["DRAFT_CELLS", "VERIFIERS", "Generation", "SpeculationOptions", "Strategy"]

VERIFIERS = ("auto", *METHODS)
DRAFT_CELLS = 1024  # tokens that a view has unless told otherwise
_UNBIASED: Any = {"repeat_penalty": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0, "grammar": ""}
_MEASURED = ("match", "tree")  # what "auto" chooses between: chosen guesses, and drawn ones


@dataclass(frozen=True)
class SpeculationOptions:
    """What a user asks for. `stages=None`: n-grams, the drafter if there is one, the datastore if one is named.

    `verify="auto"` measures how fast chosen and drawn guesses are, and uses what is faster; a seed then does not name a text.
    Without `branching` the drafter grows chains in every mode, without `draft_ahead` nothing while the target waits.
    """

    mode: Speculation = "auto"
    nodes: int = 15
    stages: tuple[Stage, ...] | None = None
    datastore: str | os.PathLike[str] | None = None
    verify: str = "match"
    lossy: str | None = None
    draft_view: View = "full"
    draft_cells: int = DRAFT_CELLS
    branching: bool = True
    draft_ahead: bool = True

    def __post_init__(self) -> None:
        checks = {
            f"speculation={self.mode!r}": (self.mode in get_args(Speculation), get_args(Speculation)),
            f"verify={self.verify!r}": (self.verify in VERIFIERS, VERIFIERS),
            f"lossy={self.lossy!r}": (self.lossy is None or self.lossy in LOSSY, LOSSY),
            f"draft_view={self.draft_view!r}": (self.draft_view in get_args(View), get_args(View)),
            f"stages={self.stages!r}": (set(self.stages or ()) <= set(get_args(Stage)), get_args(Stage)),
        }
        for what, (good, known) in checks.items():
            if not good:
                raise UsageError(f"{what}: choose from {', '.join(known)}")
        if self.mode == "tree" and not self.branching:
            raise UsageError("a tree without branching is a chain: use --speculation chain")
        if not 1 <= self.nodes <= MOST_NODES:
            raise UsageError(f"draft_nodes={self.nodes} is out of range: 1 to {MOST_NODES}")
        if self.shape.view == "full" and "self" in (self.stages or ()):
            raise UsageError("a target that drafts by itself needs a part to look at: add --draft-view retrieval or window")
        if self.lossy and self.verify != "match":
            raise UsageError(f"lossy={self.lossy!r} with verify={self.verify!r}: choose one of them")
        if self.stages and "datastore" in self.stages and not self.datastore:
            raise UsageError("the stage datastore needs a store: name one with --datastore")
        if "layers" in (self.stages or ()) and (other := {"self", "drafter"} & set(self.stages or ())):
            raise UsageError(f"the stages layers and {min(other)} both draft: choose one of them")

    @property
    def wanted(self) -> tuple[Stage, ...]:
        """The stages to use as far as they can be."""
        if self.mode == "off":
            return ()
        found: tuple[Stage, ...] = ("ngram", "datastore", "drafter") if self.datastore else ("ngram", "drafter")
        return found if self.stages is None else self.stages

    @property
    def trees(self) -> bool:
        """Whether drafts may branch."""
        return self.branching and self.mode != "chain"

    @property
    def shape(self) -> Shape:
        return Shape(self.draft_view, self.draft_cells)

    @property
    def cells(self) -> int:
        """Tokens of its context that the drafter looks at; 0: all."""
        return 0 if self.draft_view == "full" else self.draft_cells

    def open_datastore(self, vocabulary: Vocabulary) -> Datastore | None:
        """Raises UsageError for a folder that is none, or is another vocabulary's."""
        return Datastore(Path(self.datastore), vocabulary) if self.datastore and "datastore" in self.wanted else None


@dataclass(frozen=True)
class Generation:
    """What one generation guesses with; `verify` is the name results are marked with."""

    drafter: Drafter
    verifier: Verifier
    policy: Policy
    verify: str


class Strategy:
    """Everything of a runtime that guesses. `stages` are those in use, in order; `mode` is "off" when there is none."""

    def __init__(
        self, options: SpeculationOptions, loaded: Loaded, target: LlamaSession, datastore: Datastore | None = None
    ) -> None:
        self._options, self._loaded = options, loaded
        self._guessers = self._open(target, datastore)
        self.stages = self._stages()
        self.mode: Speculation = options.mode if self.stages else "off"
        self._policies: dict[str, Policy] = {}  # by verifier
        self._last = self._choose(SamplingParams())

    def _open(self, target: LlamaSession, datastore: Datastore | None) -> Guessers:
        plan, options = self._loaded.prepared.plan, self._options
        spoken = SpokenText(SPOKEN_CONTEXTS * plan.context)
        sources: list[Source | None] = [spoken if "ngram" in options.wanted else None, datastore]
        return Guessers(
            vocabulary=len(self._loaded.prepared.target.vocabulary.tokens), nodes=plan.max_nodes, spoken=spoken, trust=Trust(),
            sources=[source for source in sources if source is not None and plan.max_nodes],
            middle=self._open_middle(target), small=self._open_small(), branching=options.trees, draft_ahead=options.draft_ahead,
        )  # fmt: skip

    def _open_middle(self, target: LlamaSession) -> ViewedSession | None:
        """The target looking at part of its context."""
        wanted = "self" in self._options.wanted and self._loaded.prepared.plan.max_nodes
        return ViewedSession(target.fork(), self._options.shape) if wanted else None

    def _open_small(self) -> Session | None:
        """The drafter, or the layers that draft."""
        plan, drafter, shape = self._loaded.prepared.plan, self._loaded.drafter, self._options.shape
        if not drafter:
            return None
        voting = voting_layers(drafter.header) if shape.view != "full" and shape.cells < plan.context else ()
        session = drafter.session(
            context=plan.context, chunk=DRAFT_CHUNK, max_nodes=plan.max_nodes, voting=voting, resident=plan.draft_cells
        )
        return ViewedSession(session, shape) if voting else session

    @property
    def sessions(self) -> list[Session]:
        """Of whoever drafts by computing."""
        return self._guessers.sessions

    @property
    def portable(self) -> LlamaSession | None:
        """The drafter's session, if a file has all of it."""
        small = self._guessers.small
        return small if isinstance(small, LlamaSession) and small.portable else None

    def _stages(self) -> tuple[Stage, ...]:
        used = {source.name for source in self._guessers.sources}
        if self._guessers.middle:
            used.add("self")
        if self._guessers.small:
            used.add("layers" if self._loaded.prepared.plan.kept else "drafter")
        return tuple(stage for stage in get_args(Stage) if stage in used)

    @contextmanager
    def generation(self, params: SamplingParams, speculate: bool = True) -> Iterator[Generation]:
        """For the time it takes. Raises UsageError for a grammar with a verifier that looks ahead of it."""
        if self.mode == "off" or not speculate:
            policy = self.policy if self.mode == "off" else FixedPolicy(0, "off: as asked")
            yield Generation(NoDrafter(), match_target, policy, "match")
            return
        name = self._last = self._choose(params)
        method = LOSSY[self._options.lossy] if self._options.lossy else METHODS[name]
        with self._proposal(params, method) as proposal:
            drafter = self._guessers.drafter(method, params, proposal)
            yield Generation(drafter, method.make(params.seed + 1), self.policy, self.verify)

    @property
    def verify(self) -> str:
        """How the last generation was judged."""
        return f"lossy {self._options.lossy}" if self._options.lossy else self._last

    def _choose(self, params: SamplingParams) -> str:
        """Greedy texts are the same for all verifiers, and chosen guesses are right most often."""
        if params.grammar and self._options.verify not in ("match", "auto"):
            raise UsageError(f"a grammar cannot be judged by {self._options.verify}: use --verify match")
        if self._options.verify != "auto":
            return self._options.verify
        if params.grammar or params.temperature == 0 or not self.sessions or self.mode != "auto":
            return "match"
        return max(_MEASURED, key=self._rate)

    def _rate(self, verify: str) -> float:
        """Tokens per second measured with this verifier; whoever was not measured yet comes first."""
        policy = self._policy(verify)
        rate = policy.measured_rate() if isinstance(policy, AutoPolicy) else None
        return math.inf if rate is None else rate

    @property
    def policy(self) -> Policy:
        """The last generation's."""
        return self._policy(self._last)

    def _policy(self, verify: str) -> Policy:
        if verify not in self._policies:
            self._policies[verify] = self._make_policy(verify)
        return self._policies[verify]

    def _make_policy(self, verify: str) -> Policy:
        prepared = self._loaded.prepared
        if self.mode == "off":
            return FixedPolicy(0, "off: as asked" if self._options.mode == "off" else "off: nothing guesses")
        if self.mode == "llmcad":
            return AlphaPolicy(prepared.plan.max_nodes)
        if self.mode == "auto":
            return auto_policy(prepared, self._manner(verify))
        return FixedPolicy(min(self._options.nodes, prepared.plan.max_nodes))

    def _manner(self, verify: str) -> str:
        """What else acceptance depends on than the pair; the usual manner has no name."""
        judged = f"lossy {self._options.lossy}" if self._options.lossy else verify
        seen = "" if self.draft_view == "full" else f" {self.draft_view} {self._options.draft_cells}"
        seen += "" if self._options.trees else " chains"
        usual = (self.stages, judged) == (("ngram", "drafter"), "match")
        return seen if usual else f" {'+'.join(self.stages)} {judged}{seen}"

    @contextmanager
    def _proposal(self, params: SamplingParams, method: Method) -> Iterator[Proposal | None]:
        """What the drafter would say itself under the same sampling, penalties aside; None where guesses are chosen."""
        drafter = self._loaded.target if self._guessers.middle else self._loaded.drafter
        if method.drawn == "no" or drafter is None:
            yield None
            return
        size = min(self._guessers.vocabulary, drafter.tokenizer.size)
        with closing(drafter.sampler(replace(params, **_UNBIASED), size)) as sampler:
            yield sampler.probs

    @property
    def draft_view(self) -> View:
        """How the drafter really sees its context."""
        return self._options.draft_view if any(isinstance(one, ViewedSession) for one in self.sessions) else "full"

    def rewind(self, length: int) -> None:
        for session in self.sessions:
            session.rewind(min(length, session.length))

    @property
    def expected_tokens_per_second(self) -> Expected:
        """By calibrated costs and what was learned so far; fixed trees are taken for those of the mode "auto"."""
        prepared = self._loaded.prepared
        if self.mode == "off" or not self.sessions:
            return Expected(prepared.costs.plain_rate)
        if isinstance(self.policy, AutoPolicy):
            return Expected(self.policy.plain_rate, *self.policy.expected_range())
        return expected(prepared)

    def keep(self) -> None:
        """Remember for the next runtime what this one learned."""
        for verify, policy in self._policies.items():
            if isinstance(policy, AutoPolicy):
                keep_policy(self._loaded.prepared, policy, self._manner(verify))

    @property
    def _when(self) -> str:
        return "also while the target waits for the disk" if self._options.draft_ahead else "never while the target waits"

    def explain(self) -> list[str]:
        """What guesses and how it is judged, and why, as lines for people."""
        stages = ", ".join(self.stages) or "none"
        lines = [
            f"stages: {stages}; drafter's view: {self.draft_view}; verified by {self.verify}",
            f"policy: {self.policy.reason}",
        ]
        if self.sessions:
            lines.append(f"drafts: {'trees' if self._options.trees else 'chains'}, {self._when}")
        if self._options.verify == "auto":
            known = {name: policy.measured_rate() for name, policy in self._policies.items() if isinstance(policy, AutoPolicy)}
            lines += [f"{name}: {rate:.2f} tokens/s measured" for name, rate in known.items() if rate]
        return lines + [
            f"guesses of {name}: {right:.0%} of {tried:.0f} right" for name, right, tried in self._guessers.trust.summary()
        ]
