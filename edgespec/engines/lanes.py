"""Which sequence ids carry which tree nodes, for engines that know sequences but no trees.

Every id ("lane") is tagged with the whole committed prefix. A node belongs to the lanes of all root-to-leaf paths
through it, so the path below any lane is linear, which is all such an engine understands. Pure bookkeeping.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from edgespec.errors import UsageError

__all__ = ["Assignment", "Lanes"]


@dataclass(frozen=True)
class Assignment:
    """What one batch needs: lanes per new node, and cells to tag first: (from lane, to lane, nodes' depth above root)."""

    lanes: tuple[tuple[int, ...], ...]
    forks: tuple[tuple[int, int, int], ...]


@dataclass
class Lanes:
    """Lanes of the tree scored so far; after each commit `reset`, or `keep` the part that lives on."""

    count: int
    first: int = 0  # lanes are numbered from here: other timelines may have lower ones
    _own: list[int] = field(default_factory=list)  # node -> the lane it was put on first
    _depths: list[int] = field(default_factory=list)  # node -> how far below the root it is
    _tip: dict[int, int] = field(default_factory=dict)  # lane -> the deepest node on it

    def reset(self) -> None:
        self._own, self._depths, self._tip = [], [], {}

    def keep(self, nodes: Sequence[int]) -> frozenset[int]:
        """Only these nodes (ascending, a whole subtree) remain, renumbered from 0; the lanes that still carry any of them."""
        kept = {node: place for place, node in enumerate(nodes) if node < self.scored}
        self._own = [self._own[node] for node in kept]
        self._depths = [self._depths[node] - self._depths[nodes[0]] for node in kept]
        self._tip = {lane: kept[tip] for lane, tip in self._tip.items() if tip in kept}
        return frozenset(self._tip)

    def trim(self, nodes: int) -> list[tuple[int, int]]:
        """Only the first `nodes` remain; the lanes that carried others, and how far below the root the first of these was."""
        dropped, self._own, self._depths = set(self._own[nodes:]), self._own[:nodes], self._depths[:nodes]
        shorter = []
        for lane in dropped:
            tip = max((node for node, own in enumerate(self._own) if own == lane), default=None)
            shorter.append((lane, 0 if tip is None else self._depths[tip] + 1))
            if tip is None:
                del self._tip[lane]
            else:
                self._tip[lane] = tip
        return shorter

    @property
    def scored(self) -> int:
        return len(self._own)

    def lane(self, node: int) -> int:
        return self._own[node]

    @property
    def ids(self) -> range:
        return range(self.first, self.first + self.count)

    def _fresh(self) -> int:
        free = next((lane for lane in self.ids if lane not in self._tip), None)
        if free is None:
            raise UsageError(f"a tree of more than {self.count} leaves was asked for")
        return free

    def assign(self, parents: Sequence[int], depths: Sequence[int], start: int) -> Assignment:
        """Put nodes `start`.. on lanes: the first child goes on with its parent's lane, the others fork."""
        if start != self.scored:
            raise UsageError(f"nodes must be scored in order: {self.scored} were, {start} was asked for")
        through: list[set[int]] = [set() for _ in range(len(parents) - start)]
        forks: list[tuple[int, int, int]] = []
        for node in range(start, len(parents)):
            parent = parents[node]
            if parent >= 0 and self._tip.get(self._own[parent]) == parent:
                lane = self._own[parent]
            else:
                lane = self._fresh()
                ancestor = parent
                while ancestor >= start:  # new in this batch: tagged there, not copied
                    through[ancestor - start].add(lane)
                    ancestor = parents[ancestor]
                if ancestor >= 0:
                    forks.append((self._own[ancestor], lane, depths[ancestor] + 1))
            self._own.append(lane)
            self._depths.append(depths[node])
            self._tip[lane] = node
            through[node - start].add(lane)
        return Assignment(tuple(tuple(sorted(lanes)) for lanes in through), tuple(forks))
