"""Exact distributions of short texts, and chi-square against them."""

import math
from collections import Counter
from collections.abc import Iterable
from itertools import product

import numpy as np

from edgespec.engines.fake import FakeModel, FakeSampler
from edgespec.types import SamplingParams

Text = tuple[int, ...]


def exact(model: FakeModel, params: SamplingParams, prompt: Text, length: int) -> dict[Text, float]:
    """Probability of every continuation of `length` tokens under plain decoding."""
    out = {}
    for path in product(range(model.vocabulary), repeat=length):
        probability, sampler = 1.0, FakeSampler(params)
        for place, token in enumerate(path):
            probability *= sampler.probs(model.logits([*prompt, *path[:place]]))[token]
            sampler.accept(token)
        out[path] = probability
    return out


def p_value(wanted: dict[Text, float], texts: Iterable[Text]) -> float:
    """Of the observed counts, by the Wilson-Hilferty approximation of chi-square; 0 for a text that cannot be."""
    counts = Counter(texts)
    total = sum(counts.values())
    if any(wanted[text] == 0 for text in counts):
        return 0.0
    big = {text: share * total for text, share in wanted.items() if share * total >= 5}
    observed = [counts[text] for text in big] + [total - sum(counts[text] for text in big)]
    expected = [*big.values(), total - sum(big.values())]
    if expected[-1] < 1:
        observed, expected = observed[:-1], expected[:-1]
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    freedom = max(1, len(expected) - 1)
    z = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / np.sqrt(2 / (9 * freedom))
    return 0.5 * math.erfc(z / math.sqrt(2))


def total_variation(wanted: dict[Text, float], texts: Iterable[Text]) -> float:
    counts = Counter(texts)
    total = sum(counts.values())
    return 0.5 * sum(abs(counts[text] / total - share) for text, share in wanted.items())
