from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.engines.fake import FakeModel, FakeSampler, FakeSession
from edgespec.errors import EngineError
from edgespec.speculation.decoder import Decoder
from edgespec.speculation.drafting.model import ModelDrafter
from edgespec.speculation.policy import SIZES, AutoPolicy, FixedPolicy
from edgespec.speculation.tree import DraftTree
from edgespec.types import Floats, SamplingParams

TARGET = FakeModel(12, seed=1)


class Adversary:
    """A drafter that guesses at random, and sometimes nothing."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def begin(self, pending: int) -> DraftTree:
        self._tree = DraftTree(pending)
        return self._tree

    def step(self, nodes: int) -> bool:
        parent, token = int(self._rng.integers(len(self._tree))), int(self._rng.integers(12))
        if len(self._tree) > nodes or self._rng.random() < 0.1:
            return False
        if self._tree.child(parent, token) is None:
            self._tree.add(parent, token, -1.0)
        return True

    def extend(self, tokens: Sequence[int]) -> None: ...

    def commit(self, path: Sequence[int], tokens: Sequence[int]) -> None: ...

    def rewind(self, length: int) -> int:
        return length


def text(params: SamplingParams, drafter, nodes: int, most: int = 40, session: FakeSession | None = None) -> list[int]:
    target = session or TARGET.session()
    decoder = Decoder(target, drafter, FixedPolicy(nodes), FakeSampler(params), ends=lambda token: token == 11)
    emitted = [token for done in decoder.rounds(3, most) for token in done.tokens]
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
    first = next(iter(decoder.rounds(3, 40)))
    assert (first.nodes, first.accepted, len(first.tokens)) == (4, 4, 5)
    assert first.from_draft == (True, True, True, True, False)


def test_trees_are_best_first_and_nested() -> None:
    model = FakeModel(12, seed=4)
    tree = ModelDrafter(model.session(), vocabulary=12)
    small, grown = tree.begin(3), ModelDrafter(model.session(), vocabulary=12)
    while tree.step(4):
        pass
    large = grown.begin(3)
    while grown.step(16):
        pass
    assert len(small) == 5
    assert len(large) == 17
    assert all(large.logprobs[node] <= large.logprobs[large.parents[node]] for node in range(1, 17))


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


def rounds(policy: AutoPolicy, gain: dict[int, float], sweep, draft, count: int = 200) -> list[int]:
    """Feed the policy a machine on which, of the first n nodes of any tree, gain[n] are accepted on average."""
    chosen, debt = [], dict.fromkeys(SIZES, 0.0)
    for _ in range(count):
        nodes = policy.size()
        chosen.append(nodes)
        accepted: list[int] = []
        for smaller, size in pairwise(SIZES):
            if size <= nodes:
                debt[size] += gain[size] - gain.get(smaller, 0.0)
                accepted += [size] * int(debt[size])
                debt[size] -= int(debt[size])
        policy.learn(nodes, accepted, draft(nodes), sweep(nodes))
    return chosen


def test_auto_takes_large_trees_where_the_disk_is_slow_and_none_where_drafts_fail() -> None:
    def slow_disk(nodes: int) -> float:
        return 1.0 + 0.001 * nodes

    def cheap(nodes: int) -> float:
        return 0.002 * nodes

    good, bad = {4: 1.5, 8: 2.2, 16: 3.0, 32: 3.6}, dict.fromkeys(SIZES, 0.02)
    chosen = rounds(AutoPolicy(slow_disk, cheap), good, slow_disk, cheap)
    assert chosen.count(32) > 150
    policy = AutoPolicy(slow_disk, lambda nodes: 0.05 * nodes)
    chosen = rounds(policy, bad, slow_disk, lambda nodes: 0.05 * nodes)
    assert chosen[-100:].count(0) > 90
    assert policy.reason.startswith("off")


def test_auto_is_off_where_compute_grows_with_every_node_and_tries_again_now_and_then() -> None:
    def resident(nodes: int) -> float:
        return 0.05 * (nodes + 1)

    policy = AutoPolicy(resident, lambda nodes: 0.01 * nodes)
    gain = {4: 1.0, 8: 1.2, 16: 1.3, 32: 1.4}
    chosen = rounds(policy, gain, resident, lambda nodes: 0.01 * nodes)
    assert chosen[-100:].count(0) > 90
    assert any(chosen[-100:])


def test_auto_never_exceeds_the_plan() -> None:
    policy = AutoPolicy(lambda nodes: 1.0, lambda nodes: 0.0, largest=8)
    assert max(rounds(policy, dict.fromkeys(SIZES, 4.0), lambda n: 1.0, lambda n: 0.0)) == 8
