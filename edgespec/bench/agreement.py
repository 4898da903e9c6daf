"""How often the drafter's first choice is the target's token: the figure by which pairs are compared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgespec.engines.llamacpp.model import LlamaModel
from edgespec.speculation.tree import DraftTree

__all__ = ["agreement"]


def agreement(drafter: LlamaModel, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]) -> tuple[int, int]:
    """(agreed, positions) over all tokens of the target's greedy `answers`, the drafter being given what came before."""
    agreed = positions = 0
    longest = max(len(prompt) + len(answer) for prompt, answer in zip(prompts, answers, strict=True))
    session = drafter.session(context=longest + 1, chunk=64, max_nodes=1)
    for prompt, answer in zip(prompts, answers, strict=True):
        session.rewind(0)
        session.extend(prompt[:-1])
        before = [prompt[-1], *answer[:-1]]
        for token, wanted in zip(before, answer, strict=True):
            row = session.score(DraftTree(token))[0]
            agreed += int(np.argmax(row)) == wanted
            positions += 1
            session.commit([0], [token])
    session.close()
    return agreed, positions
