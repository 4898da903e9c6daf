"""Whatever judges the guesses, the text's distribution is the target's: by chi-square, through the whole decode loop.

Who guesses is put together by the function that a runtime calls for every generation, around sessions that last, as there;
the drafter agrees with the target in part only. Every wrong rule must be noticed by the same test of as many texts.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice, product
from typing import Any, ClassVar

import numpy as np
import pytest
from exact import Text, exact, p_value, total_variation
from numpy.typing import NDArray

from edgespec.engines.fake import FakeModel, FakeSampler
from edgespec.speculation.decoder import Decoder
from edgespec.speculation.drafting.draw import Drawer
from edgespec.speculation.drafting.guessers import Guessers, Proposal
from edgespec.speculation.drafting.lookup import SpokenText
from edgespec.speculation.drafting.model import ModelDrafter
from edgespec.speculation.drafting.staged import Kind, Trust
from edgespec.speculation.policy import FixedPolicy
from edgespec.speculation.tree import DraftTree, Draws
from edgespec.speculation.verify import LOSSY, METHODS, Method, Verifier
from edgespec.speculation.verify.block import Block
from edgespec.speculation.verify.rejection import Distribution, Rejection, drawn_from
from edgespec.types import Floats, SamplingParams

VOCABULARY, TEXTS, LENGTH, CRITICAL = 4, 1500, 4, 1e-4
TARGET = FakeModel(VOCABULARY, seed=3, sharpness=1.2)
SMALL = FakeModel(VOCABULARY, seed=9, sharpness=1.2, teacher=TARGET, agreement=0.5)
SMALLEST = FakeModel(VOCABULARY, seed=4, sharpness=1.2, teacher=SMALL, agreement=0.5)
PROMPT = (1, 2, 0, 3, 1, 2)
STAGES = {
    "plain": set[str](),
    "chain": {"drafter"},
    "tree": {"drafter"},
    "n-grams": {"ngram"},
    "staged": {"ngram", "drafter"},
    "straight": {"ngram", "drafter"},
    "middle": {"drafter", "self"},
    "all": {"ngram", "drafter", "self"},
}
SAMPLINGS: list[dict[str, Any]] = [
    {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    {"temperature": 0.7, "top_k": 4, "top_p": 0.95, "min_p": 0.0},
    {"temperature": 1.3, "top_k": 0, "top_p": 1.0, "min_p": 0.05, "repeat_penalty": 1.3, "presence_penalty": 0.3},
]
DRAWN = [name for name in METHODS if METHODS[name].drawn != "no"]
SAME = {("sampling", "chain"), *product(["block"], set(STAGES) - {"tree", "all"})}  # texts as with the others
PAIRS = [pair for pair in product(DRAWN, list(STAGES)[1:]) if pair not in SAME]
GRID = [(*pair, number % 3) for number, pair in enumerate(PAIRS)]  # each method and each shape with every sampling
MORE = {("multistep", "tree"): 4}  # times as many texts where the smallest of the errors below would be


class Believing(Trust):
    """Hands no guess to the drafter first."""

    def chance(self, kind: Kind) -> float:
        return 0.9


class Sampler(FakeSampler):
    """Remembers what it computed: with so few tokens the same rows come again and again."""

    known: ClassVar[dict[object, NDArray[np.float64]]] = {}

    def probs(self, row: Floats) -> NDArray[np.float64]:
        key = (replace(self._params, seed=0), tuple(self._recent), row.tobytes())
        if key not in self.known:
            self.known[key] = super().probs(row)
        return self.known[key].copy()


def guessers(shape: str, kind: type[Guessers] = Guessers) -> Guessers:
    """With the sessions of a runtime; the middle one plays the target looking at part of its context."""
    stages, spoken = STAGES[shape], SpokenText(200)
    small, middle = (SMALLEST, SMALL) if "self" in stages else (SMALL, None)
    return kind(
        VOCABULARY, 16, spoken, Believing() if shape == "straight" else Trust(), sources=[spoken] if "ngram" in stages else [],
        small=small.session() if "drafter" in stages else None, middle=middle.session() if middle else None,
        branching=shape != "chain",
    )  # fmt: skip


def texts(method: Method, params: SamplingParams, who: Guessers, verifier: Verifier | None = None) -> Iterator[Text]:
    """Of LENGTH tokens each, every one a generation with a seed of its own; more are made, so that trees are whole."""
    target = TARGET.session(stalls=2)
    while True:
        params = replace(params, seed=params.seed + 2)
        unbiased = replace(params, repeat_penalty=1.0, presence_penalty=0.0)
        drafter = who.drafter(method, params, Sampler(unbiased).probs if who.sessions else None)
        target.rewind(0)
        drafter.rewind(0)
        drafter.extend(PROMPT[:-1])
        verify = verifier or method.make(params.seed + 1)
        decoder = Decoder(target, drafter, FixedPolicy(4), Sampler(params), lambda token: False, verify=verify)
        made: list[int] = []
        for done in decoder.rounds(PROMPT, LENGTH + 4):
            made += done.tokens
            if len(made) >= LENGTH:
                break
        yield tuple(made[:LENGTH])


@cache
def wanted(sampling: int) -> dict[Text, float]:
    return exact(TARGET, SamplingParams(**SAMPLINGS[sampling]), PROMPT, LENGTH)


def fits(made: Sequence[Text], sampling: int) -> bool:
    return p_value(wanted(sampling), made) > CRITICAL


@pytest.mark.parametrize(("name", "shape", "sampling"), GRID)
def test_the_distribution_is_the_targets(name: str, shape: str, sampling: int) -> None:
    many = TEXTS * MORE.get((name, shape), 1)
    made = list(islice(texts(METHODS[name], SamplingParams(**SAMPLINGS[sampling]), guessers(shape)), many))
    assert fits(made, sampling)
    assert total_variation(wanted(sampling), made) < 0.5 * np.sqrt(len(wanted(sampling)) / many)


@pytest.mark.parametrize("sampling", range(len(SAMPLINGS)))
def test_matching_says_what_plain_decoding_says(sampling: int) -> None:
    """With the same seeds, whoever guesses."""
    made = {
        shape: list(islice(texts(METHODS["match"], SamplingParams(**SAMPLINGS[sampling]), guessers(shape)), TEXTS // 5))
        for shape in STAGES
    }
    assert all(said == made["plain"] for said in made.values())
    plain = islice(texts(METHODS["match"], SamplingParams(**SAMPLINGS[sampling]), guessers("plain")), TEXTS)
    assert fits(list(plain), sampling)


class ForgetsTheResidual(Rejection):
    """After a rejection it draws from p again."""

    def _emit(self, left: Distribution, tree: DraftTree, node: int) -> int:
        drawn = tree.draws.get(node)
        if drawn:
            proposal = drawn.distribution(len(left))
            for token in drawn.tokens:
                if self._rng.random() * proposal[token] < left[token]:
                    return token
        return drawn_from(left, self._rng)


class TrustsTheUndrawn(Rejection):
    """Tries guesses that nobody drew as if they had been drawn evenly."""

    def _emit(self, left: Distribution, tree: DraftTree, node: int) -> int:
        drawn = tree.draws.get(node)
        for child in tree.children(node):
            token = tree.tokens[child]
            if token not in (drawn.tokens if drawn else ()) and self._rng.random() < len(left) * left[token]:
                return token
        return super()._emit(left, tree, node)


class StopsAtTheFirst(Block):
    """Ends the block at the first place that fails, which is not block verification."""

    def _longest(self, drafts: list[int], wanted: list[Distribution], proposed: list[Distribution]) -> tuple[int, float]:
        share = 1.0
        for place, token in enumerate(drafts, 1):
            before, share = share, min(share * wanted[place - 1][token] / proposed[place - 1][token], 1.0)
            rest = np.maximum(share * wanted[place] - proposed[place], 0).sum() if place < len(drafts) else 0.0
            chance = share if place == len(drafts) else rest / (rest + 1 - share) if rest else 0.0
            if self._rng.random() > chance:
                return place - 1, before
        return len(drafts), share


class Liar(Drawer):
    """Says it drew from another distribution than it did."""

    def __call__(self, row: Floats, taken: Collection[int]) -> Draws:
        drawn = super().__call__(row, taken)
        return Draws(drawn.tokens, drawn.ids, np.full(len(drawn.ids), 1 / len(drawn.ids)))


class Liars(Guessers):
    def _drawer(self, method: Method, seed: int, proposal: Proposal | None) -> Drawer | None:
        assert proposal is not None
        assert method.drawn != "no"
        return Liar(proposal, method.guesses, seed, method.drawn)


@pytest.mark.parametrize(
    ("name", "shape", "wrong"),
    [
        ("sampling", "tree", ForgetsTheResidual(7, replacement=False)),
        ("tree", "tree", ForgetsTheResidual(7, replacement=False)),
        ("tree", "middle", ForgetsTheResidual(7, replacement=False)),
        ("multistep", "tree", Rejection(7, replacement=False)),
        ("sampling", "n-grams", TrustsTheUndrawn(7, replacement=False)),
        ("tree", "staged", TrustsTheUndrawn(7, replacement=False)),
        ("multistep", "straight", TrustsTheUndrawn(7, replacement=True)),
        ("block", "tree", StopsAtTheFirst(7)),
        ("sampling", "all", LOSSY["lenience"].make(7)),
    ],
)
def test_a_wrong_rule_is_noticed(name: str, shape: str, wrong: Verifier) -> None:
    many = TEXTS * MORE.get((name, shape), 1)
    made = islice(texts(METHODS[name], SamplingParams(**SAMPLINGS[0]), guessers(shape), wrong), many)
    assert not fits(list(made), 0)


@pytest.mark.parametrize("name", DRAWN)
def test_a_drafter_that_lies_about_its_distribution_is_noticed(name: str) -> None:
    made = islice(texts(METHODS[name], SamplingParams(**SAMPLINGS[0]), guessers("tree", Liars)), TEXTS)
    assert not fits(list(made), 0)


@pytest.mark.parametrize("name", METHODS)
def test_greedy_is_plain_decoding(name: str) -> None:
    params = SamplingParams(temperature=0.0, repeat_penalty=1.2)
    plain = max(exact(TARGET, params, PROMPT, LENGTH).items(), key=lambda item: item[1])[0]
    assert set(islice(texts(METHODS[name], params, guessers("all")), 20)) == {plain}


@pytest.mark.parametrize("name", DRAWN)
def test_a_drafter_that_agrees_is_always_right(name: str) -> None:
    params, method = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0), METHODS[name]
    drafts = ModelDrafter(TARGET.session(), vocabulary=VOCABULARY, drawer=Drawer(FakeSampler(params).probs, 1, 5), branch=1)
    decoder = Decoder(TARGET.session(), drafts, FixedPolicy(4), FakeSampler(params), lambda token: False, verify=method.make(7))
    rounds = list(decoder.rounds([1], 41))
    assert all(done.accepted == done.nodes > 0 for done in rounds[1:-1])


@pytest.mark.parametrize("name", LOSSY)
def test_lossy_rules_accept_more_than_the_target_would(name: str) -> None:
    params = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=1)

    def accepted(method: Method) -> int:
        """Drafts among 600 tokens."""
        drawer = Drawer(FakeSampler(params).probs, 1, 5) if method.drawn != "no" else None
        drafts = ModelDrafter(SMALL.session(), vocabulary=VOCABULARY, drawer=drawer, branch=1)
        decoder = Decoder(
            TARGET.session(), drafts, FixedPolicy(4), FakeSampler(params), lambda token: False, verify=method.make(7)
        )
        return sum(done.accepted for done in decoder.rounds([1], 600))

    lossless = METHODS["sampling" if LOSSY[name].drawn != "no" else "match"]
    assert accepted(LOSSY[name]) > accepted(lossless)
