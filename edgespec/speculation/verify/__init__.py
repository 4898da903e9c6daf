"""How guesses are judged: `METHODS[name].make(seed)` is a verifier, and the method says what its guesses must be like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from edgespec.speculation.verify.block import Block
from edgespec.speculation.verify.lossy import Lossy, bild, lenience, typical
from edgespec.speculation.verify.match import match_target
from edgespec.speculation.verify.rejection import Rejection
from edgespec.speculation.verify.walk import Verifier

__all__ = ["LOSSY", "METHODS", "Method", "Verifier"]


@dataclass(frozen=True)
class Method:
    """`drawn`: whether guesses are drawn with or without replacement, or chosen; `guesses` to draw at a node.

    `mixed`: whether guesses that the last drafter did not draw itself may be among them.
    """

    make: Callable[[int], Verifier]
    drawn: Literal["no", "with", "without"] = "no"
    guesses: int = 1
    mixed: bool = True


_BRANCHES = 3

METHODS: dict[str, Method] = {
    "match": Method(lambda seed: match_target),
    "sampling": Method(lambda seed: Rejection(seed, replacement=False), "without"),
    "tree": Method(lambda seed: Rejection(seed, replacement=False), "without", _BRANCHES),
    "multistep": Method(lambda seed: Rejection(seed, replacement=True), "with", _BRANCHES),
    "block": Method(Block, "without", mixed=False),
}
"""Lossless, by the name they have for `--verify`: the seed makes a verifier's own randomness."""

LOSSY: dict[str, Method] = {
    "typical": Method(lambda seed: Lossy(typical)),
    "bild": Method(lambda seed: Lossy(bild)),
    "lenience": Method(lambda seed: Lossy(lenience(seed)), "without"),
}
"""Not the target's distribution, by the name they have for `--lossy`."""
