"""Who guesses can be told not to branch, and not to draft while the target waits; the text is the same."""

from collections.abc import Callable

import pytest

from edgespec.engines.base import Sampler
from edgespec.engines.fake import FakeModel, FakeSampler
from edgespec.speculation.decoder import Decoder
from edgespec.speculation.drafting.guessers import Guessers
from edgespec.speculation.drafting.lookup import SpokenText
from edgespec.speculation.drafting.staged import Trust
from edgespec.speculation.policy import AlphaPolicy
from edgespec.speculation.tree import DraftTree
from edgespec.speculation.verify import METHODS
from edgespec.speculation.verify.match import match_target
from edgespec.types import Acceptance, Floats, Round, SamplingParams

TARGET = FakeModel(12, seed=1)
SMALL = FakeModel(12, seed=2, teacher=TARGET, agreement=0.7)
PARAMS = SamplingParams(temperature=0.8, seed=5)


def rounds(*, branching: bool, draft_ahead: bool) -> tuple[list[Round], list[int]]:
    """Sixty tokens' rounds, and the leaves of every tree, by LLMCad's rule."""
    leaves: list[int] = []

    def verify(tree: DraftTree, rows: Floats, sampler: Sampler, *, ends: Callable[[int], bool], most: int) -> Acceptance:
        leaves.append(tree.leaves)
        return match_target(tree, rows, sampler, ends=ends, most=most)

    who = Guessers(12, 31, SpokenText(100), Trust(), small=SMALL.session(), branching=branching, draft_ahead=draft_ahead)
    drafter = who.drafter(METHODS["match"], PARAMS)
    target = TARGET.session(stalls=4)
    decoder = Decoder(target, drafter, AlphaPolicy(31), FakeSampler(PARAMS), lambda token: False, verify=verify)
    return list(decoder.rounds([1], 60)), leaves


@pytest.mark.parametrize("draft_ahead", [True, False])
def test_without_branching_every_tree_is_a_chain(draft_ahead: bool) -> None:
    chains, trees = (rounds(branching=branching, draft_ahead=draft_ahead) for branching in (False, True))
    assert set(chains[1]) == {1} != set(trees[1])
    assert [token for done in chains[0] for token in done.tokens] == [token for done in trees[0] for token in done.tokens]


@pytest.mark.parametrize("branching", [True, False])
def test_stalls_can_be_left_alone(branching: bool) -> None:
    alone, used = (rounds(branching=branching, draft_ahead=draft_ahead)[0] for draft_ahead in (False, True))
    assert alone[-1].drafted_ahead == 0 < used[-1].kept_ahead
    assert [token for done in alone for token in done.tokens] == [token for done in used for token in done.tokens]
