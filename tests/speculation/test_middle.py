"""A small model's chains before a middle model, whose tree the target gets."""

from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.engines.fake import FakeModel, FakeSampler
from edgespec.speculation.decoder import Decoder
from edgespec.speculation.drafting.base import Drafter, NoDrafter
from edgespec.speculation.drafting.middle import ChainGuesser, MiddleDrafter
from edgespec.speculation.drafting.model import ModelDrafter
from edgespec.speculation.policy import FixedPolicy
from edgespec.types import SamplingParams

TARGET = FakeModel(12, seed=1)
MIDDLE = FakeModel(12, seed=5, teacher=TARGET, agreement=0.8)
SMALL = FakeModel(12, seed=9, teacher=MIDDLE, agreement=0.8)


def text(drafter: Drafter, params: SamplingParams, nodes: int, most: int = 80) -> list[int]:
    decoder = Decoder(TARGET.session(), drafter, FixedPolicy(nodes), FakeSampler(params), lambda token: False)
    return [token for done in decoder.rounds([3], most) for token in done.tokens]


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 1.0]), st.integers(1, 20), st.integers(3, 100), st.sampled_from([1, 6]))
def test_the_text_stays_as_it_is(seed: int, temperature: float, nodes: int, room: int, branch: int) -> None:
    """Whatever room the small model's context has."""
    params = SamplingParams(temperature=temperature, seed=seed)
    small = ChainGuesser(SMALL.session(capacity=room + 100), 12)
    drafter = MiddleDrafter(ModelDrafter(MIDDLE.session(), vocabulary=12, branch=branch), small)
    assert text(drafter, params, nodes) == text(NoDrafter(), params, 0)


def test_a_small_model_spares_the_middle_one_passes() -> None:
    alone, helped = MIDDLE.session(stalls=0), MIDDLE.session(stalls=0)
    text(ModelDrafter(alone, vocabulary=12, branch=1), SamplingParams(), 8)
    text(MiddleDrafter(ModelDrafter(helped, vocabulary=12, branch=1), ChainGuesser(SMALL.session(), 12)), SamplingParams(), 8)
    assert helped.passes < 0.75 * alone.passes


def test_the_small_model_follows_what_was_really_said() -> None:
    """After paths that were dropped, rewinds and prompts, its guesses are those of a fresh one."""
    used, path = ChainGuesser(SMALL.session(), 12), [4, 5]
    used.extend([1, 2, 3])
    used.guess(path)
    used.guess([4, 7, 2])
    used.commit([4, 7])
    used.guess([9])
    assert used.rewind(4) == 4
    used.extend([8, 8])
    fresh = ChainGuesser(SMALL.session(), 12)
    fresh.extend([1, 2, 3, 4, 8, 8])
    assert used.guess([6, 1]) == fresh.guess([6, 1])
    assert len(fresh.guess([6, 1])) > 0


def test_no_room_is_no_guess() -> None:
    guesser = ChainGuesser(SMALL.session(capacity=5), 12)
    guesser.extend([1, 2, 3])
    assert guesser.guess([4, 5, 6]) == ()
