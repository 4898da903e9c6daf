"""Wiring: which layers of a target matter most, measured once per model by a pass over a sample of text."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np

from edgespec.cache import cache_folder
from edgespec.engines.llamacpp.model import LlamaModel
from edgespec.memory.learned import recall, remember
from edgespec.speculation.tree import DraftTree
from edgespec.types import Floats, MemoryPlan, ModelHeader

__all__ = ["Influence", "layer_order", "measured_influence"]

_TABLE = "influence"
_NEGLIGIBLE = 0.002  # what passes such a layer comes out as it went in
_SAMPLE = (
    "The river had risen overnight, and by morning the lower road was gone. Two farmers stood at the gate and counted "
    "what was left: nine sheep, one dog, half a fence. \n\ndef total(prices):\n    return sum(price for price in prices "
    "if price > 0)\n\nQ: What is the capital of France?\nA: Paris."
)


class Influence:
    """Block influence: one minus the cosine between what enters a layer and what leaves it, averaged over tokens
    (Men et al., "ShortGPT: Layers in Large Language Models are More Redundant Than You Expect", 2024)."""

    def __init__(self) -> None:
        self.by_layer: dict[int, float] = {0: 1.0}  # what enters the first is not seen; it is never left out
        self._before: Floats = np.empty((0, 0), np.float32)

    def see(self, layer: int, rows: Floats) -> None:
        """Layers come in order. The last may have fewer rows, those of the last tokens."""
        if layer:
            entered = self._before[-len(rows) :].astype(np.float64)
            norms = np.linalg.norm(entered, axis=1) * np.linalg.norm(rows.astype(np.float64), axis=1)
            cosine = (entered * rows).sum(axis=1) / np.maximum(norms, 1e-12)
            self.by_layer[layer] = max(0.0, 1.0 - float(cosine.mean()))
        self._before = rows.copy()


def layer_order(influence: dict[int, float]) -> tuple[int, ...]:
    """Layers worth drafting with, the most influential first; of equals the first."""
    worth = [layer for layer in influence if influence[layer] >= _NEGLIGIBLE]
    return tuple(sorted(worth, key=lambda layer: (-influence[layer], layer)))


def measured_influence(header: ModelHeader, plan: MemoryPlan, threads: int) -> dict[int, float]:
    """By one paged pass within `plan`, or as it was measured before. Raises as `LlamaModel` does."""
    cache, key = cache_folder() / "learned.json", json.dumps([header.path, [file.mtime_ns for file in header.files]])
    known = recall(cache, key).get(_TABLE, {})
    if set(known) != set(range(header.layers)):
        known = _measure(header, plan, threads)
        remember(cache, key, {_TABLE: known})
    return known


def _measure(header: ModelHeader, plan: MemoryPlan, threads: int) -> dict[int, float]:
    influence = Influence()
    model = LlamaModel(header, replace(plan, paging="slots"), threads=threads, strict=True, observe=influence.see)
    try:
        tokens = model.tokenizer.encode(_SAMPLE, bos=True)[: min(plan.chunk, plan.context)]
        session = model.session(context=plan.context, chunk=plan.chunk, max_nodes=1)
        session.extend(tokens[:-1])
        session.score(DraftTree(tokens[-1]))
    finally:
        model.close()
    return influence.by_layer
