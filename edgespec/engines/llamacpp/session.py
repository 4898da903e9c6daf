"""Timelines on a llama.cpp context: trees become sequence ids, passes become `llama_decode`."""

from __future__ import annotations

from collections.abc import Sequence

from edgespec.engines.base import Idle
from edgespec.engines.lanes import Lanes
from edgespec.engines.llamacpp.capture import Capture
from edgespec.engines.llamacpp.cells import Cells
from edgespec.engines.llamacpp.spill import Spill
from edgespec.errors import ContextFull, UsageError
from edgespec.speculation.tree import DraftTree
from edgespec.types import Floats

__all__ = ["ForkedSession", "LlamaSession"]


class _Timeline:
    """One tree on leased sequences of `cells`. Every lane is tagged with the committed prefix; see `engines.lanes`."""

    def __init__(self, cells: Cells, lanes: Lanes) -> None:
        self._cells, self._lanes = cells, lanes
        self._idle: Idle | None = None
        cells.trees.append(lanes)

    @property
    def passes(self) -> int:
        return self._cells.passes

    @property
    def evaluated(self) -> int:
        return self._cells.evaluated

    @property
    def rows(self) -> int:
        return self._lanes.count

    def offer(self, idle: Idle | None) -> None:
        self._idle = idle

    def trim(self, nodes: int) -> None:
        with self._cells.open():
            for lane, depth in self._lanes.trim(nodes):
                self._cells.remove(lane, self.evaluated + depth)

    def _fill(self, tree: DraftTree, start: int, before: Sequence[int]) -> tuple[int, ...]:
        """The batch for nodes `start`.. after the tokens `before`, which are not evaluated yet; the lanes it uses."""
        if len(tree) - start > self.rows:  # the engine would end the process
            raise UsageError(f"a pass over {len(tree) - start} nodes was asked for where {self.rows} fit: please report it")
        cells, assignment = self._cells, self._lanes.assign(tree.parents, tree.depths, start)
        base = cells.evaluated + len(before)
        for source, lane, depth in assignment.forks:
            cells.copy(source, lane, base, base + depth)
        used = tuple(sorted({lane for lanes in assignment.lanes for lane in lanes}))
        cells.batch.clear()
        for offset, token in enumerate(before):
            cells.batch.add(token, cells.evaluated + offset, used, output=False)
        for node, lanes in zip(range(start, len(tree)), assignment.lanes, strict=True):
            cells.batch.add(tree.tokens[node], base + tree.depths[node], lanes, output=True)
        return used

    def _drop_tree(self) -> None:
        if self._lanes.scored:
            for lane in self._lanes.ids:
                self._cells.remove(lane, self.evaluated)
            self._lanes.reset()

    def _look(self, keeper: int, ranges: Sequence[tuple[int, int]] | None) -> None:
        """One lane is put together from what `keeper` has, the others copy it."""
        end, (first, *others) = self.evaluated, self._lanes.ids
        for lane in self._lanes.ids:
            self._cells.remove(lane, 0, end)
        for start, stop in [(0, end)] if ranges is None else ranges:
            self._cells.copy(keeper, first, start, min(stop, end))
        for lane in others:
            self._cells.copy(first, lane, 0, end)


class LlamaSession(_Timeline):
    """Implements `engines.base.ViewableSession`, the views only with a `capture`; `keeper` then has every committed cell,
    or with a `spill` those that are in memory. `capacity` is in tokens, whether they are in memory or not.
    """

    def __init__(
        self, cells: Cells, lanes: Lanes, chunk: int, capacity: int, capture: Capture | None = None, keeper: int | None = None,
        reserved: Lanes | None = None, spill: Spill | None = None,
    ) -> None:  # fmt: skip
        super().__init__(cells, lanes)
        self.capacity, self.spill = capacity, spill
        self.capture, self._keeper, self._chunk, self._reserved = capture, keeper, chunk, reserved
        self._deferred: list[int] = []
        self._viewed = False

    @property
    def length(self) -> int:
        return self.evaluated + len(self._deferred)

    def extend(self, tokens: Sequence[int]) -> None:
        with self._cells.open():
            if self.length + len(tokens) > self.capacity:
                raise ContextFull(
                    f"{self.length + len(tokens)} tokens do not fit the context of {self.capacity}: raise --context"
                )
            if tokens:
                self._drop_tree()
            self._deferred += tokens
            while len(self._deferred) > self._chunk:
                self._evaluate_deferred(self._chunk)

    def score(self, tree: DraftTree, start: int = 0) -> Floats:
        with self._cells.open():
            if self.length + len(tree) > self.capacity:
                raise ContextFull(f"the context of {self.capacity} tokens is full: raise --context")
            if start == 0:
                self._drop_tree()
                while len(self._deferred) + len(tree) > self._chunk:
                    self._evaluate_deferred(min(len(self._deferred), self._chunk))
            if self.spill:
                self.spill.make_room(len(self._deferred) + len(tree))
            used = self._fill(tree, start, self._deferred)
            self._cells.run(self._idle)
            if self.capture:
                self.capture.commit_rows(len(self._deferred), self.evaluated)
                self.capture.hold_nodes(start, len(self._deferred), len(tree) - start)
            self._settle_deferred(used[0], len(self._deferred))
            return self._cells.rows(len(tree) - start)

    def commit(self, path: Sequence[int], tokens: Sequence[int], keep: Sequence[int] = ()) -> None:
        with self._cells.open():
            kept = [node for node in path if node < self._lanes.scored]
            if kept:
                self._commit_scored(kept, keep)
            else:
                self._drop_tree()
            self.extend(tokens[len(kept) :])

    def _commit_scored(self, path: Sequence[int], keep: Sequence[int]) -> None:
        cells, begin = self._cells, self.evaluated
        end, tip = begin + len(path), self._lanes.lane(path[-1])
        if self.capture:
            self.capture.commit_nodes(path, begin, keep)
        through = self._lanes.keep(keep)  # these run through the path already
        for lane in set(self._lanes.ids) - through:
            cells.remove(lane, end if lane == tip else begin)
        cells.share(tip, begin, end, but=through)
        cells.evaluated = end

    def rewind(self, length: int) -> int:
        with self._cells.open():
            self._drop_tree()
            if length >= self.evaluated:
                del self._deferred[max(0, length - self.evaluated) :]
                return self.length
            self._deferred = []
            if self.spill:
                self._cells.remove_everywhere(length)
                self._cells.evaluated = length
                self.spill.rewind(length)
            if self._viewed or self.spill:
                self.attend(None)
            return self._cells.truncate(length)

    def attend(self, ranges: Sequence[tuple[int, int]] | None) -> None:
        if self._keeper is None:
            raise UsageError("this session was made without views")
        with self._cells.open():
            if self.spill and ranges is not None:
                self.spill.look(ranges)
            self._look(self._keeper, ranges)
            self._viewed = ranges is not None

    def attention(self, chunk: int) -> tuple[Floats, Floats]:
        if self.capture is None:
            raise UsageError("this session was made without views")
        return self.capture.queries(), self.capture.means(self.evaluated, chunk)

    def fork(self) -> ForkedSession:
        """Another timeline over the same cells. Raises UsageError where none was reserved, or it is taken."""
        if self._reserved is None or self._keeper is None:
            raise UsageError("this session was made without room for another timeline")
        lanes, self._reserved = self._reserved, None
        return ForkedSession(self, self._cells, lanes, self._keeper)

    def flush(self) -> None:
        """Evaluate what is deferred."""
        with self._cells.open():
            while self._deferred:
                self._evaluate_deferred(min(len(self._deferred), self._chunk))

    @property
    def portable(self) -> bool:
        """Whether a file has all that `load` needs: what views choose by is not in it."""
        return self.capture is None and self.spill is None

    def save(self, path: str, tokens: Sequence[int]) -> int:
        """Write keys and values of what is evaluated, which `tokens` begin with; of how many. Raises EngineError."""
        with self._cells.open():
            self._drop_tree()
            if self.evaluated:
                self._cells.save(path, tokens[: self.evaluated])
            return self.evaluated

    def load(self, path: str) -> list[int] | None:
        """Go on from what `save` wrote: its tokens; None, with nothing committed, where the engine refuses it."""
        with self._cells.open():
            self.rewind(0)
            return self._cells.load(path) if self.portable else None

    def close(self) -> None:
        self._cells.close()
        if self.spill:
            self.spill.close()

    def _evaluate_deferred(self, count: int) -> None:
        """One wide pass over `count` deferred tokens, without logits."""
        self._drop_tree()
        if self.spill:
            self.spill.make_room(count)
        cells, first = self._cells, self._lanes.ids[0]
        cells.batch.clear()
        for offset, token in enumerate(self._deferred[:count]):
            cells.batch.add(token, self.evaluated + offset, (first,), output=False)
        cells.run(self._idle)
        if self.capture:
            self.capture.commit_rows(count, self.evaluated)
        self._settle_deferred(first, count)

    def _settle_deferred(self, lane: int, count: int) -> None:
        """The first `count` deferred tokens are evaluated now, in `lane`."""
        if count:
            self._cells.share(lane, self.evaluated, self.evaluated + count)
            self._cells.evaluated += count
            del self._deferred[:count]


class ForkedSession(_Timeline):
    """Implements `engines.base.ViewableSession` over another session's cells: what that one has committed, this one has.

    The other session commits first. Cells scored here never become committed ones: they may have seen a part only.
    """

    def __init__(self, main: LlamaSession, cells: Cells, lanes: Lanes, keeper: int) -> None:
        super().__init__(cells, lanes)
        self._main, self._keeper = main, keeper
        self._base = 0  # the length that our tree goes on from

    @property
    def length(self) -> int:
        return self._main.length

    @property
    def capacity(self) -> int:
        return self._main.capacity

    def extend(self, tokens: Sequence[int]) -> None:
        """The other session has them."""

    def score(self, tree: DraftTree, start: int = 0) -> Floats:
        if len(tree) > self._lanes.count:
            raise ContextFull(f"a tree of {len(tree)} nodes does not fit beside the context")
        self._main.flush()
        with self._cells.open():
            if start == 0:
                self._adopt(frozenset())
            self._fill(tree, start, ())
            self._cells.run(self._idle)
            return self._cells.rows(len(tree) - start)

    def commit(self, path: Sequence[int], tokens: Sequence[int], keep: Sequence[int] = ()) -> None:
        with self._cells.open():
            self._adopt(self._lanes.keep(keep))

    def _adopt(self, through: frozenset[int]) -> None:
        """See the other session's cells instead of ours; lanes in `through` keep what comes after them."""
        end = self.evaluated
        for lane in self._lanes.ids:
            self._cells.remove(lane, self._base, end if lane in through else -1)
            self._cells.copy(self._keeper, lane, self._base, end)
        if not through:
            self._lanes.reset()
        self._base = end

    def attend(self, ranges: Sequence[tuple[int, int]] | None) -> None:
        with self._cells.open():
            self._look(self._keeper, ranges)

    def attention(self, chunk: int) -> tuple[Floats, Floats]:
        return self._main.attention(chunk)

    def rewind(self, length: int) -> int:
        with self._cells.open():
            self._base = min(self._base, self.evaluated)
            self._adopt(frozenset())
        return min(length, self._main.length)

    def close(self) -> None:
        """The other session frees the cells."""
