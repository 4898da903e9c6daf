"""Best-first trees from a small model (the greedy case of Sequoia and SpecExec, grown in batches).

The candidate with the highest cumulative probability is added next. A step adds every candidate nearly as good as the
best, at most a batch of them, and scores them in one pass, because a pass of four nodes costs little more than one.

While the target verifies the tree's head, the same growth goes on in the target's stalls: the likeliest candidates are by
the same measure the likeliest places for the target to leave the head at. What was grown below the token it really went
on with stays, drafted and scored, as the beginning of the next tree (LLMCad's generation pipeline, without its second
compute thread).
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Sequence

import numpy as np

from edgespec.engines.base import Session
from edgespec.errors import ContextFull
from edgespec.speculation.drafting.base import Worth
from edgespec.speculation.drafting.draw import Drawer
from edgespec.speculation.tree import DraftTree
from edgespec.types import Floats

__all__ = ["ModelDrafter", "likeliest"]

_NEARLY = float(np.log(0.15))  # a candidate this close to the best joins its step
_BATCH = 12  # nodes added per step: wider steps cost little more, and fewer of them are needed
_BRANCH = 6  # candidates taken from one row
_CHECK_FLOOR = float(np.log(0.1))  # a path of somebody else's guess less likely than this is not worth a node
_AHEAD_FLOOR = float(np.log(0.02))  # nor, while it is unknown where the target goes, any less likely than this
_LARGEST = 60  # nodes of a tree, those drafted ahead included
_PIECE = 64  # tokens of a prompt evaluated in one stall
_NEWEST = 0.3  # weight of the newest measurement


class ModelDrafter:
    """`branch=1` grows chains; `leaves` bounds the tree, what is drafted ahead included. With `batch=1` growth is best-first
    to the letter: the likeliest tree there is by this drafter's probabilities, at the price of a pass for every node.
    Without `draft_ahead` stalls are used to read prompts, and nothing is drafted in them.

    `temperature` is the target's: at 0 the drafter's own distribution ranks candidates. With a `drawer` the candidates of
    a row are drawn instead, for verifiers that need to know what from.
    """

    def __init__(
        self, session: Session, *, vocabulary: int, leaves: int = 32, branch: int = _BRANCH, batch: int = _BATCH,
        temperature: float = 0.0, drawer: Drawer | None = None, draft_ahead: bool = True,
    ) -> None:  # fmt: skip
        self._session, self._vocabulary, self._branch, self._leaves = session, vocabulary, branch, leaves
        self._batch = 1 if branch == 1 else batch
        self._sharpness = 1.0 / temperature if temperature > 0 else 1.0
        self._drawer, self._draft_ahead = drawer, draft_ahead
        self._tree = DraftTree(0)
        self._heap: list[tuple[float, int, int]] = []  # (-cumulative logprob, parent, token)
        self._scored = 0
        self._lost = False
        self._lag: list[int] = []  # tokens not handed to the session yet: none are, as long as nothing is drafted
        self._cold = False  # whether the next pass has tokens of the prompt in it
        self._seconds = 0.0  # that a step takes
        self._token_seconds = 0.0  # that a token of a prompt takes
        self._planned: int | None = None  # nodes that were there when the stalls of this round began
        self.ahead = self.kept = 0

    def extend(self, tokens: Sequence[int]) -> None:
        self._lag += tokens

    def begin(self, pending: int) -> DraftTree:
        return self._plant(DraftTree(pending))

    @property
    def promise(self) -> float:
        unknown = [self._tree.rest(node) for node in range(self._scored, len(self._tree))]
        return max([*unknown, -self._heap[0][0]] if self._heap else unknown, default=-math.inf)

    def catch_up(self) -> None:
        if self._lag:
            self._read_lag()
            self._score()

    @property
    def tip(self) -> int | None:
        """The likeliest of the nodes whose successors are not known yet."""
        unknown = range(self._scored, len(self._tree))
        return None if self._lost else max(unknown, key=lambda node: self._tree.logprobs[node], default=None)

    def check(self, guess: Sequence[int], at: int = 0) -> None:
        """In one pass with whatever waits to be scored. Not done once the successors of `at` are known."""
        tree, start = self._tree, self._scored
        if at < start or self._lost or tree.child(at, guess[0]) is not None or tree.leaves >= self._session.rows:
            return
        self._read_lag()
        first, parent = len(tree), at
        for token in guess[: self._session.rows - (first - start)]:
            parent = tree.add(parent, token, tree.logprobs[parent])
        rows = self._rows(len(tree)) if len(tree) > first else None
        if rows is None:
            tree.cut(first)
            return
        kept, parent = first, at
        while kept < len(tree) and self._weigh(parent, kept, rows[parent - start]) >= tree.logprobs[at] + _CHECK_FLOOR:
            kept, parent = kept + 1, kept
        tree.cut(kept)
        self._session.trim(kept)
        self._scored = kept
        self._collect(start, rows[: kept - start])

    def step(self, worth: Worth) -> bool:
        if not worth(self._drafted, self.promise):
            return False
        self.catch_up()
        self._score()
        return self._add(worth)

    def idle(self, seconds: float) -> bool:
        if self._lag:
            return self._read_on(seconds)
        if not self._draft_ahead or self._seconds > seconds or self._drafted >= _LARGEST:
            return False
        before = len(self._tree)
        if self._planned is None:
            self._planned = before
        self._score()
        self._add(lambda nodes, logprob: logprob >= _AHEAD_FLOOR)
        self.ahead += len(self._tree) - before
        return len(self._tree) > before

    def commit(self, path: Sequence[int], pending: int) -> DraftTree:
        tree, tokens = self._tree, [self._tree.tokens[node] for node in path]
        if self._lag or not self._scored:  # nothing was drafted
            self._lag += tokens
            return self.begin(pending)
        root = tree.child(path[-1], pending)
        if root is None:
            self._session.commit(path, tokens)
            return self.begin(pending)
        below, nodes = tree.below(root)
        self._session.commit(path, tokens, nodes)
        self.kept += sum(1 for node in nodes if self._planned is not None and node >= self._planned)
        return self._replant(below, nodes)

    def rewind(self, length: int) -> int:
        del self._lag[max(0, length - self._session.length) :]
        self._forget()
        return self._session.rewind(length) + len(self._lag)

    @property
    def _drafted(self) -> int:
        return len(self._tree) - 1

    def _plant(self, tree: DraftTree) -> DraftTree:
        self._tree, self._planned, self._lost = tree, None, False
        self._forget()
        return tree

    def _forget(self) -> None:
        self._heap, self._scored = [], 0

    def _replant(self, below: DraftTree, nodes: list[int]) -> DraftTree:
        """The subtree `below`, which our `nodes` became, with its scores and its candidates."""
        place = {node: index for index, node in enumerate(nodes)}
        shift = self._tree.logprobs[nodes[0]]
        self._heap = [(cost + shift, place[parent], token) for cost, parent, token in self._heap if parent in place]
        heapq.heapify(self._heap)
        self._scored = sum(1 for node in nodes if node < self._scored)
        self._tree, self._planned = below, None
        return below

    def _read_on(self, seconds: float) -> bool:
        """A piece of the prompt. The session may defer what is less than a pass, so pieces are whole ones."""
        piece = min(_PIECE, len(self._lag))
        if piece * self._token_seconds > seconds:
            return False
        started = time.perf_counter()
        self._session.extend(self._lag[:piece])
        del self._lag[:piece]
        self._cold = True
        self._token_seconds = _blend(self._token_seconds, (time.perf_counter() - started) / piece)
        return True

    def _read_lag(self) -> None:
        if self._lag:
            self._cold = True
            self._session.extend(self._lag)
            self._lag = []

    def _weigh(self, parent: int, node: int, row: Floats) -> float:
        """Give a checked node the probability that `row`, its parent's, gives it."""
        tree = self._tree
        step = float(_logprobs(row[: self._vocabulary] * self._sharpness)[tree.tokens[node]])
        tree.logprobs[node] = tree.logprobs[parent] + step
        return tree.logprobs[node]

    def _score(self) -> None:
        """A pass over the nodes that were not scored yet, or more where they are many; their likeliest successors become
        candidates."""
        while self._scored < len(self._tree) and not self._lost:
            started, cold = time.perf_counter(), self._cold
            start, end = self._scored, min(len(self._tree), self._scored + self._session.rows)
            rows = self._rows(end)
            if rows is None:
                return
            self._scored = end
            self._collect(start, rows)
            if not cold:
                self._seconds = _blend(self._seconds, time.perf_counter() - started)

    def _rows(self, end: int) -> Floats | None:
        """Of the nodes before `end` that were not scored yet; None where the context has no room for them."""
        self._cold = False
        try:
            return self._session.score(self._tree.head(end) if end < len(self._tree) else self._tree, self._scored)
        except ContextFull:
            return None
        except BaseException:
            self._forget()
            self._lost = True  # the session dropped the tree: no more of it until the next
            raise

    def _collect(self, start: int, rows: Floats) -> None:
        for node, row in enumerate(rows, start):
            for token, logprob in self._candidates(node, row[: self._vocabulary]):
                heapq.heappush(self._heap, (-(self._tree.logprobs[node] + logprob), node, token))

    def _add(self, worth: Worth) -> bool:
        """The best candidate, and those nearly as good, as far as they are worth it."""
        tree, added = self._tree, 0
        best = -self._heap[0][0] if self._heap else 0.0
        while self._heap and added < self._batch and tree.leaves < self._leaves:
            cost, parent, token = self._heap[0]
            if -cost < best + _NEARLY or not worth(self._drafted, -cost):
                break
            heapq.heappop(self._heap)
            if tree.child(parent, token) is None:  # nobody guessed it before
                tree.add(parent, token, -cost)
                added += 1
        return added > 0

    def _candidates(self, node: int, row: Floats) -> list[tuple[int, float]]:
        """Guesses at the successor of `node` and their log-probabilities: the likeliest, or drawn ones."""
        if not np.isfinite(row).all():
            return []
        if self._drawer:
            drawn = self._tree.draws[node] = self._drawer(row, [self._tree.tokens[child] for child in self._tree.children(node)])
            return [(token, math.log(drawn.probs[drawn.ids == token][0])) for token in dict.fromkeys(drawn.tokens)]
        count = min(self._branch, len(row))
        best = np.argpartition(row, -count)[-count:]
        logprobs = _logprobs(row * self._sharpness)
        return [(int(token), float(logprobs[token])) for token in best]


def likeliest(row: Floats) -> tuple[int, float]:
    """The token a model would say, and its log-probability."""
    token = int(np.argmax(row))
    return token, float(_logprobs(row)[token])


def _logprobs(row: Floats) -> Floats:
    top = row.max()
    normalised: Floats = row - (top + np.log(np.exp(row - top).sum()))
    return normalised


def _blend(average: float, newest: float) -> float:
    return newest if average == 0.0 else (1 - _NEWEST) * average + _NEWEST * newest
