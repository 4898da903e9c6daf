"""Whatever judges the guesses, the text's distribution is the target's: by chi-square, through the whole decode loop.

The loop runs several rounds a text, keeps subtrees and drafts ahead; the drafter agrees with the target in part only.
Every wrong rule must be noticed by the same test.
"""

from collections.abc import Iterator
from functools import partial
from itertools import product

import numpy as np
import pytest
from exact import Text, exact, p_value, total_variation

from edgespec.engines.fake import FakeModel, FakeSampler
from edgespec.speculation.decoder import Decoder
from edgespec.speculation.drafting.draw import Drawer
from edgespec.speculation.drafting.lookup import SpokenText
from edgespec.speculation.drafting.middle import ChainGuesser, MiddleDrafter
from edgespec.speculation.drafting.model import ModelDrafter
from edgespec.speculation.drafting.staged import StagedDrafter, Trust
from edgespec.speculation.policy import FixedPolicy
from edgespec.speculation.verify import LOSSY, METHODS, Method, Verifier
from edgespec.speculation.verify.block import Block
from edgespec.speculation.verify.rejection import Rejection, drawn_from
from edgespec.types import SamplingParams

VOCABULARY, TEXTS, LENGTH, CRITICAL = 4, 1500, 4, 1e-4
TARGET = FakeModel(VOCABULARY, seed=3, sharpness=1.2)
SMALL = FakeModel(VOCABULARY, seed=9, sharpness=1.2, teacher=TARGET, agreement=0.5)
SMALLEST = FakeModel(VOCABULARY, seed=4, sharpness=1.2, teacher=SMALL, agreement=0.5)
PROMPT = (1, 2, 0, 3, 1, 2)
SHAPES = ("chain", "tree", "staged", "middle")
GRID = [pair for pair in product(METHODS, SHAPES) if pair != ("block", "middle")]  # blocks are of drawn guesses alone
SAMPLINGS = [
    {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    {"temperature": 0.7, "top_k": 4, "top_p": 0.95, "min_p": 0.0},
    {"temperature": 1.3, "top_k": 0, "top_p": 1.0, "min_p": 0.05, "repeat_penalty": 1.3, "presence_penalty": 0.3},
]


def texts(
    verifier: Verifier, method: Method, params: SamplingParams, shape: str, kind: type[Drawer] = Drawer, many: int = TEXTS
) -> Iterator[Text]:
    """Of LENGTH tokens each, all from one source of randomness; more are made, so that trees are whole."""
    sampler, trust = FakeSampler(params), Trust()
    drafts = FakeSampler(SamplingParams(**{**vars(params), "repeat_penalty": 1.0, "presence_penalty": 0.0}))
    count = 1 if shape == "chain" else method.guesses
    drawer = kind(drafts.probs, count, 5, method.drawn) if method.drawn != "no" else None
    for _ in range(many):
        sampler._recent = []
        inner = ModelDrafter(SMALL.session(), vocabulary=VOCABULARY, drawer=drawer, branch=1 if shape == "chain" else 6)
        spoken = SpokenText(100)
        sources = [spoken] if shape == "staged" else []
        drafter = StagedDrafter(inner, spoken, sources, trust, alone=True) if sources else inner
        if shape == "middle":
            drafter = MiddleDrafter(inner, ChainGuesser(SMALLEST.session(), VOCABULARY))
        drafter.extend(PROMPT[:-1])
        target = TARGET.session(stalls=2)
        target.extend(PROMPT[:-1])
        decoder = Decoder(target, drafter, FixedPolicy(4), sampler, lambda token: False, verify=verifier)
        made: list[int] = []
        for done in decoder.rounds(PROMPT[-1:], LENGTH + 4):
            made += done.tokens
            if len(made) >= LENGTH:
                break
        yield tuple(made[:LENGTH])


@pytest.mark.parametrize("options", SAMPLINGS)
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        (name, shape)
        for name in METHODS
        for shape in ("chain", "tree", "staged", "middle")
        if (name, shape) != ("block", "middle")
    ],
)  # blocks are of drawn guesses alone
def test_the_distribution_is_the_targets(name: str, shape: str, options: dict[str, float]) -> None:
    params, method = SamplingParams(seed=11, **options), METHODS[name]
    wanted = exact(TARGET, params, PROMPT, LENGTH)
    made = list(texts(method.make(7), method, params, shape))
    assert p_value(wanted, made) > CRITICAL
    assert total_variation(wanted, made) < 0.5 * np.sqrt(len(wanted) / TEXTS)


class ForgetsTheResidual(Rejection):
    """After a rejection it draws from p again."""

    def _emit(self, left, tree, node):
        drawn = tree.draws.get(node)
        if drawn:
            proposal = drawn.distribution(len(left))
            for token in drawn.tokens:
                if self._rng.random() * proposal[token] < left[token]:
                    return token
        return drawn_from(left, self._rng)


class StopsAtTheFirst(Block):
    """Ends the block at the first place that fails, which is not block verification."""

    def _longest(self, drafts, wanted, proposed):
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

    def __call__(self, row, taken):
        drawn = super().__call__(row, taken)
        return type(drawn)(drawn.tokens, drawn.ids, np.full(len(drawn.ids), 1 / len(drawn.ids)))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("sampling", ForgetsTheResidual(7, replacement=False)),
        ("tree", ForgetsTheResidual(7, replacement=False)),
        ("multistep", Rejection(7, replacement=False)),
        ("block", StopsAtTheFirst(7)),
        ("sampling", LOSSY["lenience"].make(7)),
    ],
)
def test_a_wrong_rule_is_noticed(name: str, wrong: Verifier) -> None:
    params = SamplingParams(seed=11, **SAMPLINGS[0])
    made = texts(wrong, METHODS[name], params, "tree", many=4 * TEXTS)
    assert p_value(exact(TARGET, params, PROMPT, LENGTH), made) < CRITICAL


@pytest.mark.parametrize("name", ["sampling", "tree", "block"])
def test_a_drafter_that_lies_about_its_distribution_is_noticed(name: str) -> None:
    params, method = SamplingParams(seed=11, **SAMPLINGS[0]), METHODS[name]
    made = texts(method.make(7), method, params, "tree", Liar)
    assert p_value(exact(TARGET, params, PROMPT, LENGTH), made) < CRITICAL


@pytest.mark.parametrize("name", METHODS)
def test_greedy_is_plain_decoding(name: str) -> None:
    params, method = SamplingParams(temperature=0.0, repeat_penalty=1.2), METHODS[name]
    plain = max(exact(TARGET, params, PROMPT, LENGTH).items(), key=lambda item: item[1])[0]
    some = partial(next, texts(method.make(7), method, params, "tree"))
    assert {some() for _ in range(20)} == {plain}


@pytest.mark.parametrize("name", ["sampling", "tree", "multistep", "block"])
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
