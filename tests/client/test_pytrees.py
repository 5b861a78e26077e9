"""Trees are taken apart and put together again."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from rows import rows

from shardcall_core.types.arrays import Array
from shardcall_core.types.pytrees import flatten


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True, slots=True)
class State:
    u: Any
    more: Any = field(default_factory=dict)

    def __post_init__(self):
        if isinstance(self.u, str):
            raise TypeError(self.u)


TREES = [
    (1, [1]),
    ((), []),
    (None, []),
    ([1, (2, None), {"b": 3, "a": [4]}], [1, 2, 4, 3]),
    (Point(1, [2]), [1, 2]),
    (State(1, {2: None, 3: 4}), [1, 4]),
    ({1: 1, "a": 2, (0,): 3}, [1, 2, 3]),
    ((Array((2,), "f4"), "text"), [Array((2,), "f4"), "text"]),
]


@rows(("tree", "leaves"), TREES)
def test_a_tree_is_put_together_from_its_leaves(tree, leaves):
    leaves_of_tree, structure = flatten(tree)
    assert (leaves_of_tree, structure.with_leaves(leaves_of_tree)) == (leaves, tree)
    assert (flatten(tree)[1], hash(flatten(tree)[1])) == (structure, hash(structure))


def test_structures_differ_by_classes_keys_and_sizes():
    trees = [(1,), [1], [1, 1], Point(1, 1), {"a": 1}, {"b": 1}, {"a": 1, "b": 1}, None, 1, State(1), (None,)]
    assert len({flatten(tree)[1] for tree in trees}) == len(trees)
    assert flatten({"a": 1, "b": 2})[1] == flatten({"b": 1, "a": 2})[1]


def test_leaves_that_stand_for_others_are_not_checked():
    leaves_of_tree = flatten(State(np.ones(3)))[1].with_leaves(["a leaf"])
    assert (leaves_of_tree.u, leaves_of_tree.more) == ("a leaf", {})


def test_leaves_have_paths():
    tree = {"params": [State(1, {2: 3})], "x": (1,)}
    assert [*flatten(tree)[1].paths("args")] == ["args['params'][0].u", "args['params'][0].more[2]", "args['x'][0]"]
