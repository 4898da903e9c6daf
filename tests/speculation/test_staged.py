"""Guesses that cost nothing, before a drafter and without one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.engines.fake import FakeModel, FakeSampler
from edgespec.speculation.decoder import Decoder
from edgespec.speculation.drafting.base import Drafter, NoDrafter
from edgespec.speculation.drafting.lookup import SpokenText
from edgespec.speculation.drafting.model import ModelDrafter
from edgespec.speculation.drafting.staged import Kind, StagedDrafter, Trust
from edgespec.speculation.policy import FixedPolicy
from edgespec.types import Round, SamplingParams

TARGET = FakeModel(6, seed=1)  # its greedy text soon repeats itself
SMALL = FakeModel(6, seed=9, teacher=TARGET, agreement=0.5)


def staged(inner: Drafter, trust: Trust | None = None, most: int = 32) -> StagedDrafter:
    spoken = SpokenText(1000)
    return StagedDrafter(inner, spoken, [spoken], trust or Trust(), alone=isinstance(inner, NoDrafter), most=most)


def rounds(drafter: Drafter, params: SamplingParams, nodes: int = 8, most: int = 120, rows: int = 64) -> list[Round]:
    decoder = Decoder(TARGET.session(rows=rows), drafter, FixedPolicy(nodes), FakeSampler(params), lambda token: False)
    return list(decoder.rounds([3], most))


def text(done: list[Round]) -> list[int]:
    return [token for one in done for token in one.tokens]


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.3, 1.0]), st.integers(1, 20), st.booleans())
def test_the_text_stays_as_it_is(seed: int, temperature: float, nodes: int, alone: bool) -> None:
    params = SamplingParams(temperature=temperature, seed=seed)
    inner = NoDrafter() if alone else ModelDrafter(SMALL.session(), vocabulary=6)
    assert text(rounds(staged(inner), params, nodes)) == text(rounds(NoDrafter(), params, 0))


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 40), st.sampled_from([0.0, 1.0]), st.booleans())
def test_no_pass_is_wider_than_the_sessions_are(seed: int, most: int, nodes: int, agreement: float, doubted: bool) -> None:
    """A session refuses more nodes, or leaves, than it has rows for; stalls, checks and guesses all add some."""
    small = FakeModel(6, seed=9, teacher=TARGET, agreement=agreement)
    inner = ModelDrafter(small.session(rows=most + 1), vocabulary=6, leaves=most)
    drafter = staged(inner, Doubted() if doubted else None, most)
    params = SamplingParams(temperature=0.5, seed=seed)
    assert text(rounds(drafter, params, nodes, rows=most + 1)) == text(rounds(NoDrafter(), params, 0))


def test_text_that_repeats_is_guessed_without_a_drafter() -> None:
    done = rounds(staged(NoDrafter()), SamplingParams())
    assert len(done) < 40 < len(text(done)) / 2


def test_sure_guesses_spare_the_drafter_its_passes() -> None:
    alone, helped = SMALL.session(), SMALL.session()
    rounds(ModelDrafter(alone, vocabulary=6), SamplingParams())
    trust = Trust()
    rounds(staged(ModelDrafter(helped, vocabulary=6), trust), SamplingParams())
    rounds(staged(ModelDrafter(helped, vocabulary=6), trust), SamplingParams())
    assert helped.passes / 2 < 0.7 * alone.passes


def test_trust_follows_what_happened() -> None:
    trust, kind = Trust(), ("ngram", 1, 0)
    begin = trust.chance(kind)
    for _ in range(30):
        trust.learn(kind, True)
    assert trust.chance(kind) > 0.9 > begin
    for _ in range(60):
        trust.learn(kind, False)
    assert trust.chance(kind) < 0.4
    ((name, right, tried),) = trust.summary()
    assert name == "ngram"
    assert 0.2 < right < 0.5
    assert tried > 70


class Doubted(Trust):
    def chance(self, kind: Kind) -> float:
        return 0.3


@pytest.mark.parametrize("agreement", [0.0, 1.0])
def test_a_guess_in_doubt_joins_the_tree_if_the_drafter_finds_it_likely(agreement: float) -> None:
    """One pass scores all of it; with a drafter that knows the text it stays, with another it does not."""
    session = FakeModel(6, seed=9, sharpness=6.0, teacher=TARGET, agreement=agreement).session()
    drafter = staged(ModelDrafter(session, vocabulary=6, branch=1), Doubted())
    plain = text(rounds(NoDrafter(), SamplingParams(), 0))
    drafter.extend([3, *plain[:60]])
    tree = drafter.begin(plain[60])
    before = session.passes
    drafter.step(lambda nodes, logprob: nodes < 4)
    assert session.passes == before + 1
    agreed = [tree.tokens[node] for node in tree.path(len(tree) - 1)][1:] == plain[61 : 60 + len(tree)]
    assert agreed == bool(agreement)


def test_rewinding_ends_what_was_said() -> None:
    drafter = staged(NoDrafter())
    drafter.extend([1, 2, 3, 1, 2])
    assert drafter.rewind(0) == 0
    assert len(drafter.begin(3)) == 1
