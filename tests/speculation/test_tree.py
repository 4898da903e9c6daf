import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.engines.lanes import Lanes
from edgespec.errors import UsageError
from edgespec.speculation.tree import DraftTree


@st.composite
def trees(draw: st.DrawFn, most: int = 24) -> DraftTree:
    tree = DraftTree(draw(st.integers(0, 9)))
    for token, parent in draw(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 100)), max_size=most)):
        parent %= len(tree)
        if tree.child(parent, token) is None:
            tree.add(parent, token, tree.logprobs[parent] - 1.0)
    return tree


@given(trees())
def test_the_mask_is_the_parent_closure(tree: DraftTree) -> None:
    mask = tree.ancestor_mask()
    for node in range(len(tree)):
        assert [int(other) for other in mask[node].nonzero()[0]] == sorted(tree.path(node))


@given(trees())
def test_paths_lead_from_the_root(tree: DraftTree) -> None:
    for node in range(len(tree)):
        path = tree.path(node)
        assert path[0] == 0
        assert path[-1] == node
        assert tree.is_path(path)
        assert len(path) == tree.depths[node] + 1
        for child in tree.children(node):
            assert tree.child(node, tree.tokens[child]) == child


def test_twins_and_orphans_are_refused() -> None:
    tree = DraftTree(1)
    tree.add(0, 5, -1.0)
    for parent, token in ((0, 5), (7, 1), (-1, 1)):
        with pytest.raises(UsageError):
            tree.add(parent, token, -1.0)


class Cells:
    """A cache that, like llama.cpp's, knows only positions and sequence ids, and checks what llama.cpp checks."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.cells: list[tuple[int, int, set[int]]] = []  # (position, node, lanes)

    def last(self, lane: int) -> int:
        return max((position for position, _, lanes in self.cells if lane in lanes), default=-1)

    def score(self, tree: DraftTree, start: int, lanes: Lanes) -> None:
        assignment = lanes.assign(tree.parents, tree.depths, start)
        for source, lane, depth in assignment.forks:
            for position, _, tags in self.cells:
                if source in tags and position < depth:
                    tags.add(lane)
        for together in assignment.lanes:  # lanes that share a token must have the same past
            assert len({self.last(lane) for lane in together}) == 1
        for node, shared in zip(range(start, len(tree)), assignment.lanes, strict=True):
            for lane in shared:
                assert self.last(lane) == tree.depths[node] - 1
            self.cells.append((tree.depths[node], node, set(shared)))
            seen = {other for position, other, have in self.cells if min(shared) in have and position <= tree.depths[node]}
            assert seen == set(tree.path(node))


@given(trees(), st.lists(st.integers(1, 6), max_size=10))
def test_lanes_show_every_node_its_ancestors_and_nothing_else(tree: DraftTree, sizes: list[int]) -> None:
    """Scored at once or in any pieces, as the drafter grows it."""
    lanes, cells, partial = Lanes(len(tree)), Cells(len(tree)), DraftTree(tree.tokens[0])
    pieces, start = iter(sizes), 0
    while start < len(tree):
        stop = min(len(tree), start + next(pieces, len(tree)))
        for node in range(max(1, start), stop):
            partial.add(tree.parents[node], tree.tokens[node], tree.logprobs[node])
        cells.score(partial, start, lanes)
        start = stop
    for node in range(len(tree)):
        carried = {n for position, n, tags in cells.cells if lanes.lane(node) in tags and position <= tree.depths[node]}
        assert carried == set(tree.path(node))


def test_lanes_refuse_gaps_and_too_many_leaves() -> None:
    lanes = Lanes(1)
    with pytest.raises(UsageError, match="in order"):
        lanes.assign([-1], [0], 1)
    with pytest.raises(UsageError, match="leaves"):
        lanes.assign([-1, 0, 0], [0, 1, 1], 0)


@given(trees(), st.data())
def test_a_head_is_a_copy_and_a_subtree_keeps_paths_and_probabilities(tree: DraftTree, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(tree)))
    head = tree.head(count)
    assert (head.tokens, head.parents, head.logprobs) == (tree.tokens[:count], tree.parents[:count], tree.logprobs[:count])
    root = data.draw(st.integers(0, len(tree) - 1))
    below, nodes = tree.below(root)
    assert set(nodes) == {node for node in range(len(tree)) if root in tree.path(node)}
    for place, node in enumerate(nodes):
        path = tree.path(node)
        assert [below.tokens[n] for n in below.path(place)] == [tree.tokens[n] for n in path[path.index(root) :]]
        assert below.logprobs[place] == pytest.approx(tree.logprobs[node] - tree.logprobs[root])
