import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.engines.fake import FakeModel, FakeSampler, FakeSession
from edgespec.errors import EngineError
from edgespec.speculation.decoder import Decoder, Policy
from edgespec.speculation.drafting.base import Drafter, NoDrafter, Worth
from edgespec.speculation.drafting.model import ModelDrafter
from edgespec.speculation.policy import AlphaPolicy, FixedPolicy
from edgespec.speculation.tree import DraftTree
from edgespec.types import Floats, SamplingParams

TARGET = FakeModel(12, seed=1)


class Adversary:
    """A drafter that guesses at random, and sometimes nothing."""

    promise = 0.0

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self.ahead = self.kept = 0

    def begin(self, pending: int) -> DraftTree:
        self._tree = DraftTree(pending)
        return self._tree

    def step(self, worth: Worth) -> bool:
        parent, token = int(self._rng.integers(len(self._tree))), int(self._rng.integers(12))
        if not worth(len(self._tree) - 1, -1.0) or self._rng.random() < 0.1:
            return False
        if self._tree.child(parent, token) is None:
            self._tree.add(parent, token, -1.0)
        return True

    def idle(self, seconds: float) -> bool:
        grew = self.step(lambda nodes, logprob: nodes < 30)
        self.ahead += grew
        return grew

    def extend(self, tokens: Sequence[int]) -> None: ...

    def check(self, guess: Sequence[int], at: int = 0) -> None: ...

    def catch_up(self) -> None: ...

    def commit(self, path: Sequence[int], pending: int) -> DraftTree:
        root = self._tree.child(path[-1], pending)
        self._tree = self._tree.below(root)[0] if root is not None else DraftTree(pending)
        return self._tree

    def rewind(self, length: int) -> int:
        return length


def text(
    params: SamplingParams, drafter: Drafter | None, nodes: int, most: int = 40, session: FakeSession | None = None
) -> list[int]:
    target = session or TARGET.session()
    decoder = Decoder(target, drafter or NoDrafter(), FixedPolicy(nodes), FakeSampler(params), ends=lambda token: token == 11)
    emitted = [token for done in decoder.rounds([3], most) for token in done.tokens]
    assert target.tokens == [3, *emitted][:-1]
    return emitted


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(0, 20), st.sampled_from([0.0, 0.7, 1.5]), st.floats(1.0, 1.5))
def test_any_drafter_leaves_the_text_as_it_is(seed: int, nodes: int, temperature: float, penalty: float) -> None:
    params = SamplingParams(temperature=temperature, seed=seed, repeat_penalty=penalty, top_k=8)
    assert text(params, Adversary(seed), nodes) == text(params, None, 0)


@pytest.mark.parametrize("branch", [1, 6])
@pytest.mark.parametrize("agreement", [0.0, 0.5, 1.0])
def test_a_model_drafter_leaves_the_text_as_it_is(branch: int, agreement: float) -> None:
    for seed in range(5):
        params = SamplingParams(temperature=0.5, seed=seed)
        session = FakeModel(12, seed=9, teacher=TARGET, agreement=agreement).session()
        drafter = ModelDrafter(session, vocabulary=12, branch=branch)
        assert text(params, drafter, 8) == text(params, None, 0)


def test_a_perfect_drafter_is_accepted_whole() -> None:
    session = FakeModel(12, seed=9, teacher=TARGET, agreement=1.0).session()
    decoder = Decoder(
        TARGET.session(),
        ModelDrafter(session, vocabulary=12, branch=1),
        FixedPolicy(4),
        FakeSampler(SamplingParams()),
        ends=lambda t: False,
    )
    plain, second = itertools.islice(decoder.rounds([3], 40), 2)
    assert (plain.nodes, len(plain.tokens)) == (0, 1)
    assert (second.nodes, second.accepted, len(second.tokens)) == (4, 4, 5)
    assert second.from_draft == (True, True, True, True, False)


def test_trees_are_best_first_and_nested() -> None:
    model = FakeModel(12, seed=4)
    tree = ModelDrafter(model.session(), vocabulary=12)
    small, grown = tree.begin(3), ModelDrafter(model.session(), vocabulary=12)
    while tree.step(lambda nodes, logprob: nodes < 4):
        pass
    large = grown.begin(3)
    while grown.step(lambda nodes, logprob: nodes < 16):
        pass
    assert len(small) == 5
    assert len(large) == 17
    assert all(large.logprobs[node] <= large.logprobs[large.parents[node]] for node in range(1, 17))


def test_alpha_alone_decides_how_far_drafts_go() -> None:
    """However unlikely: a chain over twelve tokens among which the model hardly has a favourite."""
    model = FakeModel(12, seed=4, sharpness=0.3)

    def least(policy: Policy) -> float:
        drafter = ModelDrafter(model.session(), vocabulary=12, branch=1)
        tree = drafter.begin(3)
        while drafter.step(policy.worth):
            pass
        return math.exp(tree.logprobs[-1])

    assert 1e-6 <= least(AlphaPolicy(32, 1e-6)) < 1e-5
    assert 1e-2 <= least(AlphaPolicy(32, 1e-2)) < 1e-1
    assert 1e-3 <= least(FixedPolicy(32)) < 1e-2


class Failing(FakeSession):
    """Fails, or returns what is not a number, at the n-th pass."""

    def __init__(self, nth: int, *, broken: bool, forever: bool = False) -> None:
        super().__init__(TARGET, 4096, lambda: None)
        self.nth, self.broken, self.forever, self.calls = nth, broken, forever, 0

    def score(self, tree: DraftTree, start: int = 0) -> Floats:
        self.calls += 1
        due = self.calls == self.nth or (self.forever and self.calls > self.nth)
        if due and not self.broken:
            raise EngineError("the engine failed")
        rows = super().score(tree, start)
        return np.where(due, np.float32("nan"), rows) if due else rows


@pytest.mark.parametrize("broken", [True, False])
def test_one_bad_pass_is_repeated_plainly_and_two_are_an_error(broken: bool) -> None:
    wanted = text(SamplingParams(), None, 0)
    for nth in range(1, 6):
        assert text(SamplingParams(), Adversary(nth), 6, session=Failing(nth, broken=broken)) == wanted
        with pytest.raises(EngineError):
            text(SamplingParams(), Adversary(nth), 6, session=Failing(nth, broken=broken, forever=True))


class Recording(FakeSession):
    """A drafter's session that remembers how much it was asked to score."""

    def __init__(self, model: FakeModel) -> None:
        super().__init__(model, 4096, lambda: None)
        self.asked = 0

    def score(self, tree: DraftTree, start: int = 0) -> Floats:
        self.asked += len(tree) - start
        return super().score(tree, start)


def test_what_was_drafted_in_a_stall_survives_when_the_guess_held() -> None:
    """The fake target waits in every pass; a perfect chain drafter then drafts the next round's chain meanwhile."""
    session = FakeModel(12, seed=9, teacher=TARGET, agreement=1.0).session()
    drafter = ModelDrafter(session, vocabulary=12, branch=1)
    decoder = Decoder(TARGET.session(), drafter, FixedPolicy(4), FakeSampler(SamplingParams()), ends=lambda t: False)
    rounds = list(decoder.rounds([3], 60))
    assert rounds[-1].kept_ahead == rounds[-1].drafted_ahead > 15
    assert all(done.accepted == done.nodes for done in rounds)


def test_drafts_made_ahead_for_another_token_are_dropped_and_counted() -> None:
    session = FakeModel(12, seed=9).session()
    drafter = ModelDrafter(session, vocabulary=12)
    decoder = Decoder(TARGET.session(), drafter, FixedPolicy(4), FakeSampler(SamplingParams()), ends=lambda t: False)
    rounds = list(decoder.rounds([3], 40))
    assert 0 <= rounds[-1].kept_ahead < 0.5 * rounds[-1].drafted_ahead


def test_a_kept_tree_is_not_scored_twice() -> None:
    session = Recording(FakeModel(12, seed=9, teacher=TARGET, agreement=0.7))
    drafter = ModelDrafter(session, vocabulary=12)
    decoder = Decoder(TARGET.session(), drafter, FixedPolicy(6), FakeSampler(SamplingParams()), ends=lambda t: False)
    rounds = list(decoder.rounds([3], 60))
    roots = len(rounds)
    assert session.asked <= roots + sum(done.nodes for done in rounds) + rounds[-1].drafted_ahead


def test_the_stalls_of_the_prompt_are_the_drafters_too() -> None:
    prompt = [int(token) for token in np.random.default_rng(0).integers(0, 12, 200)]
    session = FakeModel(12, seed=9, teacher=TARGET, agreement=1.0).session()
    drafter = ModelDrafter(session, vocabulary=12)
    drafter.extend(prompt[:-1])
    decoder = Decoder(TARGET.session(), drafter, FixedPolicy(4), FakeSampler(SamplingParams()), ends=lambda t: False)
    next(iter(decoder.rounds(prompt, 10)))
    assert session.length == len(prompt)  # one more than the prompt before its last token: that was committed too


def test_a_drafter_that_fails_in_a_stall_ends_the_pass_and_the_next_is_plain() -> None:
    class Broken(Adversary):
        def idle(self, seconds: float) -> bool:
            raise EngineError("the drafter failed")

    with pytest.raises(EngineError, match="the drafter failed"):
        text(SamplingParams(), Broken(1), 4)
