"""Wiring: the costs of a pair under its plan, from samples of both models and the disk that the target is on."""

from __future__ import annotations

import hashlib
import logging
import os
import platform
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from statistics import fmean

from edgespec.cache import cache_folder
from edgespec.engines.llamacpp.library import engine_version
from edgespec.engines.llamacpp.sample import Sample
from edgespec.errors import EngineError
from edgespec.memory.budget import resident_bytes
from edgespec.memory.calibrate import measure_passes, pass_costs, read_costs
from edgespec.memory.costs import CostModel, PassCosts, ReadCosts
from edgespec.memory.heap import give_back
from edgespec.memory.needs import tokenizer_bytes
from edgespec.memory.resident import embedding_by_rows
from edgespec.types import FileIdentity, MemoryPlan, ModelHeader, Tables

__all__ = ["Calibrator", "sampled_layers"]

_SAMPLE = 256 << 20  # bytes of layers: more than a cache holds, little enough for any budget that pages layers as large
_FEWEST = 2  # layers, so that what comes before the first can be told apart
_OUTPUTS = 80  # rows of logits that a sample's context holds, twice counted
_MARGIN = 48 << 20  # its cells and scratch
_log = logging.getLogger(__name__)


def sampled_layers(header: ModelHeader, room: int) -> tuple[int, ...]:
    """Which layers to time: of all sizes, as mixed types make them, and more than a cache holds together if `room` allows."""
    sizes = _layer_sizes(header)
    wanted = min(header.layers, max(_FEWEST, round(_SAMPLE / fmean(sizes))))
    cache = 2 * Sample.context * max(header.kv_heads) * (header.key_size + header.value_size)
    fit = max(1, int(room / (max(sizes) * 9 / 8 + cache)))  # repacked weights can take an eighth more
    count = wanted if wanted <= fit else 1 << fit.bit_length() - 1  # budgets that differ a little are measured once
    order = sorted(range(header.layers), key=lambda layer: (sizes[layer], layer))
    return tuple(sorted(order[(2 * place + 1) * header.layers // (2 * count)] for place in range(count)))


def _layer_sizes(header: ModelHeader) -> list[int]:
    return [max(1, sum(tensor.size for tensor in header.layer_tensors(layer))) for layer in range(header.layers)]


class Calibrator:
    """Measures what is not known yet, once per machine, engine and shape of a model, and says so by `progress`.

    Samples stay within `budget`. `stand_in` is a model that the engine surely computes, for those of which it takes no
    sample. `notes` are what to tell.
    """

    def __init__(self, threads: int, budget: int, stand_in: Callable[[], ModelHeader], progress: Callable[[str], None]) -> None:
        self._threads, self._budget, self._stand_in, self._progress = threads, budget, stand_in, progress
        self._cache = cache_folder() / "calibration.json"
        self._machine = f"{platform.machine()} {platform.processor()} {os.cpu_count()} {engine_version()} x{threads}"
        self.notes: list[str] = []

    def costs(
        self, target: ModelHeader, drafter: ModelHeader | None, plan: MemoryPlan, *, repacked: bool, probe: FileIdentity
    ) -> CostModel:
        """Of this pair under `plan`, whose target is read from the disk that `probe` is on."""
        small = self.passes(drafter, repacked=True) if drafter else None
        passes = self.passes(target, repacked=repacked or plan.paging == "resident")
        if plan.kept:
            small = replace(passes, layers=len(plan.kept))
        return CostModel(passes, small, self._reads(target, probe), plan.streamed_bytes)

    def passes(self, header: ModelHeader, *, repacked: bool) -> PassCosts:
        """Of this model with its weights in memory; of another, by bytes, where the engine refuses a sample of it."""
        try:
            return self._passes(header, repacked)
        except EngineError as error:
            self.notes.append(f"speeds are guessed until they are measured: {error}")
            other = self._stand_in()
            known = self._passes(other, repacked=False, small=True)
            share = fmean(_layer_sizes(header)) / fmean(_layer_sizes(other))
            layer = tuple((rows, share * seconds) for rows, seconds in known.layer)
            return replace(known, layers=header.layers, layer=layer)

    def _passes(self, header: ModelHeader, repacked: bool, *, small: bool = False) -> PassCosts:
        kept, sizes = sampled_layers(header, self._room(header)), _layer_sizes(header)
        share = fmean(sizes) / fmean(sizes[layer] for layer in kept)

        def measure() -> Tables:
            self._progress(f"measuring how fast this machine computes models such as {header.name}, once")
            with ExitStack() as undo:
                return measure_passes(self._sample(header, kept, repacked, undo, small=small))

        key = f"passes {self._machine}{' repacked' if repacked else ''} {_shape(header, kept)}"
        return pass_costs(self._cache, key, header.layers, share, measure)

    def _room(self, header: ModelHeader) -> int:
        """For layers, within the budget: nothing else of the models is in memory yet."""
        core = sum(tensor.size for tensor in header.core_tensors if tensor != embedding_by_rows(header))
        vocabulary = _OUTPUTS * 4 * len(header.vocabulary.tokens) + tokenizer_bytes(header)
        return self._budget - resident_bytes() - core * 9 // 8 - vocabulary - _MARGIN

    def _reads(self, target: ModelHeader, probe: FileIdentity) -> ReadCosts:
        with ExitStack() as undo:

            def sample() -> Sample:
                try:
                    return self._sample(target, sampled_layers(target, self._room(target)), False, undo)
                except EngineError:
                    other = self._stand_in()
                    return self._sample(other, sampled_layers(other, self._room(other)), False, undo, small=True)

            return read_costs(self._cache, self._machine, probe, sample)

    def _sample(
        self, header: ModelHeader, kept: Sequence[int], repacked: bool, undo: ExitStack, *, small: bool = False
    ) -> Sample:  # fmt: skip
        """Raises EngineError where there is no room, unless the model is so `small` that it takes less than a plan's margin."""
        if not small and sum(_layer_sizes(header)[layer] for layer in kept) > self._room(header):
            raise EngineError(f"the budget has no room for a sample of {header.name}")
        sample = Sample(header, kept, threads=self._threads, repacked=repacked)
        undo.callback(give_back)
        undo.callback(sample.close)
        return sample


def _shape(header: ModelHeader, kept: Sequence[int]) -> str:
    """Names what the costs of a sample depend on, whatever the model is called."""
    tensors = [tensor for layer in kept for tensor in header.layer_tensors(layer)]
    counted = Counter((tensor.name.split(".")[-2], tensor.kind, tensor.shape) for tensor in [*tensors, *header.core_tensors])
    facts = (header.heads, sorted(set(header.kv_heads)), header.key_size, header.experts, sorted(counted.items()))
    return f"{header.architecture} {header.width} {hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}"
