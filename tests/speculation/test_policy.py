"""Policies on machines of arithmetic: what a pass costs is a formula, what is accepted is drawn."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.speculation.policy import AlphaPolicy, AutoPolicy, FixedPolicy
from edgespec.speculation.tree import DraftTree
from edgespec.types import Acceptance

Cost = Callable[[int], float]


def resident(rows: int) -> float:
    return 0.05 + 0.02 * (rows - 1)


def slow_disk(rows: int) -> float:
    return max(1.0, resident(rows))


class Machine:
    """A drafter whose chains have tokens of confidence `claimed`, accepted with probability `true`."""

    def __init__(self, cost: Cost, claimed: float, true: float, draft: float = 0.001) -> None:
        self.cost, self.claimed, self.true, self.draft = cost, claimed, true, draft
        self.rng = np.random.default_rng(0)
        self.tokens, self.seconds = 0, 0.0

    def round(self, policy: AutoPolicy | AlphaPolicy | FixedPolicy) -> int:
        tree, asked = DraftTree(1), policy.worth(0, 0.0)  # a drafter that is asked takes its time, whatever it then says
        while policy.worth(len(tree) - 1, logprob := math.log(self.claimed) * len(tree)):
            tree.add(len(tree) - 1, 1, logprob)
        right = 0
        while right < len(tree) - 1 and self.rng.random() < self.true:
            right += 1
        accepted = Acceptance(tuple(range(right + 1)), (1,) * (right + 1), 0)
        drafting, sweep = self.draft * max(asked, len(tree) - 1), self.cost(len(tree))
        policy.learn(tree, accepted, drafting, sweep)
        self.tokens, self.seconds = self.tokens + right + 1, self.seconds + drafting + sweep
        return len(tree) - 1

    def rate(self, policy: AutoPolicy | AlphaPolicy | FixedPolicy, rounds: int = 300) -> float:
        for _ in range(rounds):
            self.round(policy)
        return self.tokens / self.seconds


def auto(cost: Cost, largest: int = 31) -> AutoPolicy:
    return AutoPolicy(cost, 0.001, largest)


@pytest.mark.parametrize("cost", [resident, slow_disk])
@pytest.mark.parametrize("true", [0.1, 0.5, 0.8, 0.95])
def test_auto_is_close_to_the_best_fixed_size(cost: Cost, true: float) -> None:
    best = max(Machine(cost, true, true).rate(FixedPolicy(nodes)) for nodes in (0, 3, 7, 11, 15, 23, 31))
    assert Machine(cost, true, true).rate(auto(cost)) > 0.93 * best


def test_a_drafter_that_overrates_itself_is_found_out_and_switched_off() -> None:
    machine, policy = Machine(resident, claimed=0.95, true=0.02), auto(resident)
    plain = Machine(resident, 0.95, 0.02).rate(FixedPolicy(0))
    assert machine.rate(policy, 500) > 0.95 * plain
    assert policy.reason.startswith("off")


def test_speculation_comes_back_when_it_would_pay() -> None:
    machine, policy = Machine(resident, claimed=0.9, true=0.02), auto(resident)
    machine.rate(policy, 100)
    machine.true = 0.95
    sizes = [machine.round(policy) for _ in range(400)]
    assert sum(sizes[-100:]) > 300
    assert policy.reason.startswith("on")


def test_auto_never_exceeds_the_plan() -> None:
    machine, policy = Machine(slow_disk, 0.99, 0.99), auto(slow_disk, largest=7)
    assert max(machine.round(policy) for _ in range(50)) == 7


def test_blocks_of_rows_are_filled_where_arithmetic_costs() -> None:
    """Three nodes and the root make a block: the fourth row costs nothing more, so the second and third node are free."""

    def in_blocks(rows: int) -> float:
        return 0.05 if rows == 1 else 0.03 * -(-rows // 4) + 0.03

    machine, policy = Machine(in_blocks, 0.7, 0.7), auto(in_blocks)
    sizes = [machine.round(policy) for _ in range(100)]
    assert {(size + 1) % 4 for size in sizes if size} == {0}


def test_a_policy_goes_on_from_what_an_earlier_one_learned() -> None:
    machine, taught = Machine(resident, 0.9, 0.3), auto(resident)
    machine.rate(taught)
    fresh = auto(resident)
    fresh.begin_with(taught.costs | taught.acceptance)
    assert fresh.probability(math.log(0.9)) == taught.probability(math.log(0.9)) < 0.6
    assert fresh.rate == taught.rate


def test_the_rate_that_comes_lies_in_the_range_to_expect_which_narrows() -> None:
    taught = auto(slow_disk)
    Machine(slow_disk, 0.8, 0.8).rate(taught)
    fresh = auto(slow_disk)
    fresh.begin_with(taught.acceptance)  # another plan: its costs are predictions
    measured = Machine(slow_disk, 0.8, 0.8).rate(auto(slow_disk))
    low, high = fresh.expected_range()
    assert low < measured < high
    widest = auto(slow_disk).expected_range()
    assert high / low < widest[1] / widest[0]


def test_no_less_is_expected_than_without_drafts() -> None:
    low, high = auto(lambda rows: float(rows)).expected_range()  # a tree of sixteen takes sixteen times as long
    assert low == high == pytest.approx(1.0)


def chain(confidence: float, length: int) -> DraftTree:
    tree = DraftTree(1)
    for node in range(length):
        tree.add(node, 1, math.log(confidence) * (node + 1))
    return tree


def test_llmcads_rule_is_the_papers() -> None:
    policy, tree = AlphaPolicy(32), chain(0.8, 4)
    assert policy.worth(5, math.log(0.011))
    assert not policy.worth(5, math.log(0.009))
    policy.learn(tree, Acceptance((0, 1, 2, 3, 4), (1,) * 5, 0), 0, 1)
    assert policy.alpha == pytest.approx(0.005)
    policy.learn(tree, Acceptance((0, 1), (1, 1), 0), 0, 1)  # one of four right
    assert policy.alpha == pytest.approx(0.005 / (0.8**4) ** (3 / 4))


def test_llmcads_rule_counts_along_the_branch_that_was_taken() -> None:
    """A likelier sibling beside a chain that was right to its end changes nothing."""
    policy, tree = AlphaPolicy(32), chain(0.75, 4)
    assert tree.logprobs[-1] < math.log(0.345)
    tree.add(0, 2, math.log(0.345))
    policy.learn(tree, Acceptance((0, 1, 2, 3, 4), (1,) * 5, 0), 0, 1)
    assert policy.alpha == pytest.approx(0.005)


def test_of_branches_that_share_as_much_the_likelier_one_counts() -> None:
    policy, tree = AlphaPolicy(32), chain(0.6, 2)
    tree.add(1, 2, math.log(0.6 * 0.3))
    policy.learn(tree, Acceptance((0, 1), (1, 3), 0), 0, 1)  # what both have in common was right
    assert policy.alpha == pytest.approx(0.01 / (0.6**2) ** (1 / 2))


@st.composite
def judged(draw: st.DrawFn) -> tuple[DraftTree, int]:
    """A tree, and the last of its nodes that was right."""
    tree = DraftTree(0)
    for token, (parent, confidence) in enumerate(
        draw(st.lists(st.tuples(st.integers(0, 100), st.floats(0.01, 0.99)), max_size=24))
    ):
        parent %= len(tree)
        tree.add(parent, token, tree.logprobs[parent] + math.log(confidence))
    return tree, draw(st.integers(0, len(tree) - 1))


def learned(tree: DraftTree, last: int, alpha: float) -> float:
    """What a round makes of alpha."""
    policy, path = AlphaPolicy(32, alpha), tuple(tree.path(last))
    policy.learn(tree, Acceptance(path, (1,) * len(path), 0), 0, 1)
    return policy.alpha


@given(judged(), st.floats(3e-6, 0.8))
def test_alpha_falls_where_a_whole_branch_was_right_and_rises_elsewhere(judged: tuple[DraftTree, int], alpha: float) -> None:
    tree, last = judged
    if tree.children(last):
        assert learned(tree, last, alpha) > alpha
    else:
        assert learned(tree, last, alpha) == pytest.approx(alpha / 2)


@given(judged(), st.floats(1e-6, 0.9))
def test_alpha_stays_within_its_bounds(judged: tuple[DraftTree, int], alpha: float) -> None:
    assert 1e-6 * (1 - 1e-9) <= learned(*judged, alpha) <= 0.9 * (1 + 1e-9)


@given(judged(), st.floats(1e-6, 0.9))
def test_the_more_of_a_branch_was_right_the_lower_is_alpha(judged: tuple[DraftTree, int], alpha: float) -> None:
    tree, leaf = judged
    branch = DraftTree(0)
    for node in tree.path(leaf)[1:]:
        branch.add(len(branch) - 1, 0, tree.logprobs[node])
    after = [learned(branch, last, alpha) for last in range(len(branch))]
    assert after == sorted(after, reverse=True)


def test_llmcads_rule_asks_for_less_where_nothing_was_confident_enough() -> None:
    policy = AlphaPolicy(32)
    policy.learn(DraftTree(1), Acceptance((0,), (1,), 0), 0, 1)
    assert policy.alpha == pytest.approx(0.005)
