"""Pure: what a round takes, from costs measured on this machine and from what a plan streams.

A round drafts, then the target's sweep reads what is not in memory and computes the rows of the tree. Reading and computing
go on together but not independently: direct reads take processor time, and the reader waits for a processor that computes.
The plan's prediction, the policy's first guess and the ceiling in the statistics are all taken from here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from edgespec.types import ROW_BLOCK, Tables

__all__ = ["SHORT_CONTEXT", "Corrections", "CostModel", "PassCosts", "ReadCosts", "Table"]

Table = tuple[tuple[int, float], ...]  # (rows in a pass, seconds), ascending
SHORT_CONTEXT = 256  # cells of the context that passes were timed with: the engine goes over that many at least
_STEP_NODES, _STEP_ROWS = 3, 4  # nodes that a drafter's step adds on average, and the block of rows that it computes
_TRUST = 10.0  # rounds until what was measured counts as much as what was predicted
_FADE = 0.98  # of older rounds, per round
_LEAST_SPEED = 0.1  # of computing, while the disk is read


@dataclass(frozen=True)
class PassCosts:
    """Seconds of a pass of one model: of a layer, of what belongs to none, and of a further cell of context in a layer."""

    layers: int
    layer: Table
    core: Table
    cell: Table

    def seconds(self, rows: int, cells: int = 0) -> float:
        """For `rows` tokens over `cells` of context beyond a short one's, all weights in memory."""
        block = rows if rows == 1 else -(-rows // ROW_BLOCK) * ROW_BLOCK
        layer = _at(self.layer, block) + cells * _at(self.cell, block)
        return _at(self.core, block) + self.layers * layer


def _at(table: Table, rows: int) -> float:
    """Linear between what was measured, in proportion beyond."""
    widths, costs = [width for width, _ in table], [seconds for _, seconds in table]
    return float(np.interp(rows, widths, costs)) * max(1.0, rows / widths[-1])


@dataclass(frozen=True)
class ReadCosts:
    """Of direct reads: bytes per second alone; seconds that a byte takes longer beside a pass, and that it costs the pass."""

    bandwidth: float
    delayed: float = 0.0
    lost: float = 0.0

    def seconds(self, size: int) -> float:
        return size / self.bandwidth

    def beside(self, size: int, computing: float) -> float:
        """Seconds until `size` bytes are read and `computing` seconds' worth is computed, begun together.

        While both go on each slows the other down; what is left of the longer one then goes on alone.
        """
        bandwidth = 1 / (1 / self.bandwidth + self.delayed)
        speed = max(_LEAST_SPEED, 1 - self.lost * bandwidth)
        both = min(computing / speed, size / bandwidth)
        return both + (computing - both * speed) + (size - both * bandwidth) / self.bandwidth


@dataclass(frozen=True)
class CostModel:
    """Of a pair under its plan. `streamed_bytes` are read in every sweep; `scale` is what rounds took over what was predicted."""

    target: PassCosts
    drafter: PassCosts | None
    disk: ReadCosts
    streamed_bytes: int
    scale: float = 1.0

    def computing(self, rows: int, cells: int = 0) -> float:
        """Seconds of the target's pass if nothing had to be read."""
        return self.scale * self.target.seconds(rows, cells)

    def sweep(self, rows: int, cells: int = 0) -> float:
        """Seconds of the target's pass."""
        return self.scale * self.disk.beside(self.streamed_bytes, self.target.seconds(rows, cells))

    def drafting(self, nodes: int, cells: int = 0) -> float:
        """Seconds that the drafter takes for `nodes` outside the target's stalls; 0 without one."""
        return self.scale * nodes / _STEP_NODES * self.drafter.seconds(_STEP_ROWS, cells) if self.drafter else 0.0

    def round(self, rows: int, cells: int = 0) -> float:
        """Seconds from one tree to the next, for a tree of `rows` with its root, all drafted outside stalls."""
        return self.sweep(rows, cells) + self.drafting(rows - 1, cells)

    @property
    def plain_rate(self) -> float:
        """Tokens per second without drafts."""
        return 1 / self.sweep(1)

    def corrected(self, experience: Corrections) -> CostModel:
        return replace(self, scale=experience.scale)


class Corrections:
    """What rounds under this plan took over what was predicted; `tables` are for keeping it."""

    def __init__(self, tables: Tables | None = None) -> None:
        known = (tables or {}).get("round", {})
        self._known = {place: known.get(place, 0.0) for place in range(3)}  # 0 -> rounds, 1 -> seconds, 2 -> predicted

    def learn(self, seconds: float, predicted: float) -> None:
        """One round; `predicted` is by uncorrected costs."""
        for place, value in enumerate((1.0, seconds, predicted)):
            self._known[place] = _FADE * self._known[place] + value

    @property
    def scale(self) -> float:
        """What to multiply predictions with: 1 as long as nothing was measured."""
        rounds, seconds, predicted = (self._known[place] for place in range(3))
        if not rounds or not predicted:
            return 1.0
        return 1.0 + (seconds / predicted - 1.0) * rounds / (rounds + _TRUST)

    @property
    def tables(self) -> Tables:
        return {"round": self._known} if self._known[0] else {}
