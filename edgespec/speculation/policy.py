"""Which nodes are worth verifying: the trees with the most expected tokens per second, from what was measured so far.

A drafter offers candidates by falling probability, so the optimal tree is found by stopping in time: a node is worth its
place as long as the tokens it adds outweigh the tokens that its time would bring at the present rate (the marginal rule
behind Sequoia's tree size and EAGLE-2's dynamic trees, with measured costs on both sides). Where the disk is the
bottleneck nodes cost nothing up to what computes while it reads; where arithmetic is, only confident ones pay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from edgespec.speculation.tree import DraftTree
from edgespec.types import ROW_BLOCK, Acceptance, Tables

__all__ = ["AlphaPolicy", "AutoPolicy", "FixedPolicy"]

_FLOOR = math.log(0.02)  # a node less likely than this is not worth one even for nothing
_FIXED_FLOOR = math.log(1e-3)  # nor a place in a tree of fixed size, which would rather stay smaller
_LEAST, _MOST = math.log(1e-6), math.log(0.9)  # bounds of LLMCad's alpha
_FILLED = 0.75  # of its first node's probability, what the nodes of a block have on average; until measured
_NEWEST = 0.15  # weight of the newest measurement of a cost
_TRUST = 10.0  # rounds of a size until its own cost counts as much as the prediction, corrected by all sizes
_NEWEST_ROUND = 0.06  # of what a round brought, which varies more
_BIN = 0.5  # width of a bin of confidence, in log-probability
_BINS = 12
_PRIOR = 4.0  # rounds' worth of trust in the drafter's own probabilities
_FADE = 0.98  # of older acceptance, per round
_TRIAL, _SHORT_TRIAL = 4, 2  # rounds before speculation is judged; the short one if not a single draft was right
_LOOKS = 8  # rounds at most in which a block is drafted whatever experience says, as long as that succeeds
# Plain rounds until it is tried again, so many times more each time it fails: a trial also costs the drafter the reading
# of everything that was said meanwhile.
_FIRST_PAUSE, _LONGER, _LONGEST_PAUSE = 32, 4, 512
_MARGIN = 1.02  # what speculation must promise to be switched on again
_PRIOR_TREE, _PRIOR_TOKENS = 16, (1.7, 5.3)  # rows, and tokens a round that the embedded pair makes of documentation and of
_PRIOR_ROUNDS = 20.0  # stories (docs/measurements.md, "Methods by task"); rounds until a pair's own count as much


@dataclass
class FixedPolicy:
    """Always `nodes` of them, as far as the drafter has any idea; 0 is plain decoding."""

    nodes: int
    reason: str = "as asked"

    def worth(self, nodes: int, logprob: float, *, drafted: bool = False, measured: bool = False) -> bool:
        """Whether one more node is wanted beyond `nodes`, given its cumulative log-probability.

        `drafted`: it is there already; `measured`: the probability is experience, not the drafter's word.
        """
        return nodes < self.nodes and logprob >= _FIXED_FLOOR

    def learn(self, tree: DraftTree, accepted: Acceptance, draft_seconds: float, sweep_seconds: float) -> None:
        """Nothing to learn."""


@dataclass
class AlphaPolicy:
    """LLMCad's fallback rule: verify when the best branch's cumulative confidence T_c has fallen below alpha.

    All drafts right: alpha *= 0.5; otherwise alpha /= T_c ** ((N_all - N_correct) / N_all), of the branch that the target
    took, as far as it was drafted; N_all is that branch's whole length down to its leaf, T_c the leaf's confidence
    (Xu et al., "LLMCad: Fast and Scalable On-device Large Language Model Inference", 2023).
    """

    largest: int
    alpha: float = 0.01

    @property
    def reason(self) -> str:
        return f"LLMCad's rule: drafts down to a confidence of {self.alpha:.2g}"

    def worth(self, nodes: int, logprob: float, *, drafted: bool = False, measured: bool = False) -> bool:
        """As `FixedPolicy.worth`. Nothing but alpha and the plan says how far drafts go."""
        return nodes < self.largest and logprob >= math.log(self.alpha)

    def learn(self, tree: DraftTree, accepted: Acceptance, draft_seconds: float, sweep_seconds: float) -> None:
        """A tree of nothing but its root was right as a whole: nothing was confident enough, so ask for less."""
        branch = _branch_taken(tree, accepted.path)
        wrong = len(set(branch) - set(accepted.path))
        step = -tree.logprobs[branch[-1]] * wrong / (len(branch) - 1) if wrong else math.log(0.5)
        self.alpha = math.exp(min(_MOST, max(_LEAST, math.log(self.alpha) + step)))


@dataclass
class AutoPolicy:
    """`sweep_cost(rows)` and `draft_cost` (a node) predict seconds until they have been measured."""

    sweep_cost: Callable[[int], float]
    draft_cost: float
    largest: int
    reason: str = "not measured yet"
    _sweep: dict[int, float] = field(default_factory=dict)  # rows, a block's last -> seconds
    _seen: dict[int, float] = field(default_factory=dict)  # rows, likewise -> rounds measured, faded
    _draft: dict[int, float] = field(default_factory=dict)  # of rounds' nodes x and drafting seconds y outside stalls:
    # 0 -> rounds, 1 -> sum of x, 2 -> of y, 3 -> of x * x, 4 -> of x * y, all faded
    _tries: dict[int, float] = field(default_factory=dict)  # bin of confidence -> nodes verified, faded
    _hits: dict[int, float] = field(default_factory=dict)  # of these accepted
    _rounds: dict[int, float] = field(default_factory=dict)  # rows, a block's last -> rounds verified so, faded
    _tokens: dict[int, float] = field(default_factory=dict)  # tokens of these rounds
    _round: dict[int, float] = field(default_factory=dict)  # 0 -> tokens, 1 -> seconds, of a round with drafts
    _filled: dict[int, float] = field(default_factory=dict)  # 0 -> see _FILLED
    _judged: int = 0  # rounds with drafts since speculation was last switched on
    _won: int = 0  # drafts that were right in these
    _looking: bool = True
    _pause: int = 0  # plain rounds left
    _next_pause: int = _FIRST_PAUSE

    @property
    def costs(self) -> Tables:
        """What this pair costs on this machine under this plan, for `begin_with` of a later policy."""
        return {"sweep": self._sweep, "seen": self._seen, "draft": self._draft, "round": self._round}

    @property
    def acceptance(self) -> Tables:
        """What the target makes of this drafter, whatever the plan."""
        return {"tries": self._tries, "hits": self._hits, "rounds": self._rounds, "tokens": self._tokens, "filled": self._filled}

    def begin_with(self, tables: Tables) -> None:
        """Start from measurements instead of predictions."""
        for name, own in (self.costs | self.acceptance).items():
            own.update(tables.get(name, {}))
        if set(self._draft) != set(range(5)) or set(self._round) != {0, 1}:  # of another version
            self._draft.clear()
            self._round.clear()

    def worth(self, nodes: int, logprob: float, *, drafted: bool = False, measured: bool = False) -> bool:
        """As `FixedPolicy.worth`. While speculation is off, guesses that cost no drafting can still be worth verifying."""
        if (self._pause and not drafted) or nodes >= self.largest or logprob < _FLOOR:
            return False
        rows = nodes + 1
        if not self._won and self._judged < _SHORT_TRIAL and rows >= ROW_BLOCK and not drafted:
            return False  # until one of its guesses was right, a drafter's word is not worth more than a block
        if (nodes and rows % ROW_BLOCK) or (self._looking and rows < ROW_BLOCK):
            return True  # the block it is in is paid for
        places = ROW_BLOCK - rows % ROW_BLOCK
        chance = math.exp(logprob) if measured else self.probability(logprob)
        tokens = chance * places * self._filled.get(0, _FILLED)
        seconds = self.sweep_seconds(rows + places) - self.sweep_seconds(rows)
        if not drafted:
            seconds += places * self._draft_line()[1]
        return tokens > self.rate * seconds

    def learn(self, tree: DraftTree, accepted: Acceptance, draft_seconds: float, sweep_seconds: float) -> None:
        """One round: what was verified, what of it was kept, and what it took."""
        block = _block(len(tree))
        nothing = len(tree) == 1 and not draft_seconds and self.worth(0, 0.0)  # nobody had a guess that was wanted
        _blend(self._sweep, block, sweep_seconds)
        _fade(self._seen)
        self._seen[block] = self._seen.get(block, 0.0) + 1
        if len(tree) > 1:
            self._observe(tree, accepted)
        if self._pause:
            self._pause -= 1
            self._resume_if_worse()
            return
        if nothing:
            return
        if draft_seconds and len(tree) > 1:
            self._time_drafts(len(tree) - 1, draft_seconds)
        self._judged += 1
        self._won += len(accepted.path) - 1
        self._looking = self._looking and len(accepted.path) > 1 and self._judged < _LOOKS
        weight = max(_NEWEST_ROUND, 1 / self._judged)
        _blend(self._round, 0, len(accepted.tokens), weight)
        _blend(self._round, 1, draft_seconds + sweep_seconds, weight)
        if self._judged >= (_TRIAL if self._won else _SHORT_TRIAL):
            self._judge()

    def expected_range(self) -> tuple[float, float]:
        """Tokens per second to expect where guesses are mostly wrong and where they are mostly right, at the costs of this plan.

        Trees are as they came out so far for this pair, and the range narrows with what they brought.
        """
        rounds, known = self._rounds or {_PRIOR_TREE: 1.0}, sum(self._rounds.values())
        first, each = self._draft_line()
        seconds = sum(n * (self.sweep_seconds(rows) + (rows > 1) * first + (rows - 1) * each) for rows, n in rounds.items())
        brought = sum(self._tokens.values())
        low, high = ((prior * _PRIOR_ROUNDS + brought) / (_PRIOR_ROUNDS + known) for prior in _PRIOR_TOKENS)
        rate = sum(rounds.values()) / seconds
        return max(self.plain_rate, low * rate), max(self.plain_rate, high * rate)

    def measured_rate(self) -> float | None:
        """Tokens per second of rounds with drafts so far; None before there were enough to judge by."""
        if sum(self._rounds.values()) < _TRIAL or not self._round:
            return None
        return self._drafting_rate

    @property
    def plain_rate(self) -> float:
        """Tokens per second without drafts."""
        return 1 / self.sweep_seconds(1)

    @property
    def rate(self) -> float:
        """Tokens per second: with drafts as far as they were measured, at least without."""
        if not self._round:
            return self.plain_rate
        return max(self.plain_rate, self._drafting_rate)

    @property
    def _drafting_rate(self) -> float:
        """Tokens per second of rounds with drafts, once there were any."""
        return self._round[0] / self._round[1]

    def probability(self, logprob: float) -> float:
        """That a node of this cumulative log-probability is accepted: the drafter's word, corrected by experience."""
        place, claimed = _bin(logprob), math.exp(logprob)
        return (self._hits.get(place, 0.0) + _PRIOR * claimed) / (self._tries.get(place, 0.0) + _PRIOR)

    def sweep_seconds(self, rows: int) -> float:
        """The prediction, corrected by what all sizes measured, and the more by this size's own the more often it was."""
        block, weights = _block(rows), {known: self._seen.get(known, 1.0) for known in self._sweep}
        if not weights:
            return self.sweep_cost(block)
        ratios = {known: self._sweep[known] / self.sweep_cost(known) for known in weights}
        common = sum(weights[known] * ratios[known] for known in weights) / sum(weights.values())
        trust = weights.get(block, 0.0) / (weights.get(block, 0.0) + _TRUST)
        return self.sweep_cost(block) * (common + trust * (ratios.get(block, common) - common))

    def _draft_line(self) -> tuple[float, float]:
        """Seconds that drafting takes: before the first node, and for each; the line through all rounds."""
        if not self._draft:
            return 0.0, self.draft_cost
        n, x, y, xx, xy = (self._draft[place] for place in range(5))
        average, spread = y / x, n * xx - x * x
        slope = min(average, max(average / 4, (n * xy - x * y) / spread)) if spread > 1e-6 * xx else average
        return (y - slope * x) / n, slope

    def _time_drafts(self, nodes: int, seconds: float) -> None:
        _fade(self._draft)
        for place, value in enumerate((1.0, nodes, seconds, nodes * nodes, nodes * seconds)):
            self._draft[place] = self._draft.get(place, 0.0) + value

    def _observe(self, tree: DraftTree, accepted: Acceptance) -> None:
        for table in (self._tries, self._hits, self._rounds, self._tokens):
            _fade(table)
        block = _block(len(tree))
        self._rounds[block] = self._rounds.get(block, 0.0) + 1
        self._tokens[block] = self._tokens.get(block, 0.0) + len(accepted.tokens)
        for node in set(range(1, len(tree))) - tree.measured:
            place = _bin(tree.logprobs[node])
            self._tries[place] = self._tries.get(place, 0.0) + 1
            self._hits[place] = self._hits.get(place, 0.0) + (node in accepted.path)
        for first in (1, *range(ROW_BLOCK, len(tree), ROW_BLOCK)):
            chances = [self.probability(logprob) for logprob in tree.logprobs[first : -(-(first + 1) // ROW_BLOCK) * ROW_BLOCK]]
            if len(chances) >= ROW_BLOCK - 1:
                _blend(self._filled, 0, sum(chances) / len(chances) / chances[0])

    def _judge(self) -> None:
        drafting = self._drafting_rate
        if drafting >= self.plain_rate:
            self.reason = f"on: {drafting:.2f} tokens/s with drafts, {self.plain_rate:.2f} without"
            self._next_pause = _FIRST_PAUSE
            return
        self.reason = f"off: {drafting:.2f} tokens/s with drafts, {self.plain_rate:.2f} without"
        self._pause, self._next_pause = self._next_pause, min(_LONGEST_PAUSE, _LONGER * self._next_pause)
        self._judged = self._won = 0

    def _resume_if_worse(self) -> None:
        """Plain decoding turned out slower than drafting was, or the pause is over: draft again."""
        if self._round and self._drafting_rate > _MARGIN * self.plain_rate:
            self._pause = 0
        if not self._pause:
            self._looking = True
            self.reason = "on: trying drafts again"


def _branch_taken(tree: DraftTree, path: Sequence[int]) -> list[int]:
    """Of the tree's branches, from the root down to a leaf, the one that goes along with `path` longest; the likelier of two."""
    leaves = set(range(len(tree))) - set(tree.parents)
    branches = {leaf: tree.path(leaf) for leaf in leaves}
    return branches[max(leaves, key=lambda leaf: (len(set(branches[leaf]) & set(path)), tree.logprobs[leaf]))]


def _block(rows: int) -> int:
    """The last row of the kernel's block that row number `rows` is in; a single row is a kernel of its own."""
    return 1 if rows == 1 else -(-rows // ROW_BLOCK) * ROW_BLOCK


def _bin(logprob: float) -> int:
    return min(_BINS - 1, int(-logprob / _BIN))


def _fade(table: dict[int, float]) -> None:
    for place in table:
        table[place] *= _FADE


def _blend(table: dict[int, float], key: int, value: float, weight: float = _NEWEST) -> None:
    table[key] = value if key not in table else (1 - weight) * table[key] + weight * value
