"""Golden files: what the embedded pair computes, whatever engine or machine runs it.

    {"format": 1, "models": {"target": SHA-256, "drafter": SHA-256}, "passes": [PASS, ...]}

A PASS scores a tree of token ids with one of the two models: `tokens` and `parents`, of which node 0 comes right after `prompt`.
For each node, `best` has the likeliest successors, the likeliest first, and `logits` theirs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from edgespec.errors import ModelInvalid
from edgespec.speculation.tree import DraftTree
from edgespec.types import Floats

__all__ = ["SURE", "TOLERANCE", "GoldenFile", "GoldenPass"]

FORMAT = 1
SURE = 0.5  # logits between the best two from which on the best token is the same on every machine
TOLERANCE = 1.0  # logits no two machines differ by: with AVX2 and AVX-512 they are up to 0.19 off what plain C computes
_KEPT = 8  # successors of a node


@dataclass(frozen=True)
class GoldenPass:
    name: str
    model: str  # "target" or "drafter"
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    best: tuple[tuple[int, ...], ...]  # per node
    logits: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, name: str, model: str, prompt: Sequence[int], tree: DraftTree, rows: Floats) -> GoldenPass:
        """What `rows`, (nodes, vocabulary), say of `tree` after `prompt`."""
        best = np.argsort(-rows, axis=1, kind="stable")[:, :_KEPT]
        logits = np.take_along_axis(rows, best, axis=1).round(4)
        return cls(
            name, model, tuple(prompt), tuple(tree.tokens), tuple(tree.parents),
            tuple(map(tuple, best.tolist())), tuple(map(tuple, logits.tolist())),
        )  # fmt: skip

    @property
    def tree(self) -> DraftTree:
        made = DraftTree(self.tokens[0])
        for parent, token in zip(self.parents[1:], self.tokens[1:], strict=True):
            made.add(parent, token, -1.0)
        return made

    def difference(self, rows: Floats) -> str | None:
        """What is wrong with these logits, (nodes, vocabulary); None for nothing."""
        if rows.shape[0] != len(self.tokens):
            return f"{rows.shape[0]} rows of logits instead of {len(self.tokens)}"
        for node, (best, logits) in enumerate(zip(self.best, self.logits, strict=True)):
            off = float(np.abs(rows[node, list(best)] - np.array(logits)).max())
            if not off <= TOLERANCE:  # so that NaN is a difference
                return f"logits of node {node} are off by {off:.2f}"
            if logits[0] - logits[1] > SURE and int(rows[node].argmax()) != best[0]:
                return f"node {node} is followed by token {int(rows[node].argmax())} instead of {best[0]}"
        return None


@dataclass(frozen=True)
class GoldenFile:
    models: dict[str, str]  # role -> SHA-256
    passes: tuple[GoldenPass, ...]

    @classmethod
    def read(cls, path: Path) -> GoldenFile:
        """Raises ModelInvalid."""
        try:
            found = json.loads(path.read_text())
            if found["format"] != FORMAT:
                raise ValueError(f"format {found['format']}")
            return cls(dict(found["models"]), tuple(_pass(one) for one in found["passes"]))
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise ModelInvalid(f"{path} is no golden file ({error}): check models/golden out again") from error

    def write(self, path: Path) -> None:
        found = {"format": FORMAT, "models": self.models, "passes": [asdict(one) for one in self.passes]}
        path.write_text(json.dumps(found) + "\n")


def _pass(found: dict[str, object]) -> GoldenPass:
    return GoldenPass(**{name: _frozen(value) for name, value in found.items()})  # type: ignore[arg-type]


def _frozen(value: object) -> object:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
