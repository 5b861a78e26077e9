"""Loops of traced functions: the program of one iteration, run several times."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np

from shardcall._src.traced.program import TracedProgram
from shardcall_core.types.arrays import type_of
from shardcall_core.types.errors import InvalidParameterError, TracingError
from shardcall_core.types.pytrees import Structure, flatten


def checked_count(times: SupportsIndex) -> int:
    """Returns a number of iterations.

    Raises:
        InvalidParameterError: for what is no integer, a number below 0, and one above 2**62.
    """
    try:
        count = -1 if isinstance(times, bool) else operator.index(times)
    except TypeError:
        count = -1
    if not 0 <= count <= 1 << 62:
        raise InvalidParameterError(f"times of repeat is {times!r}; give an integer from 0 to 2**62", field="times")
    return count


def as_arrays(tree: Any) -> Any:
    """Returns a tree with its Python numbers as arrays, which they are after an iteration."""
    leaves, structure = flatten(tree)
    return structure.with_leaves([np.asarray(leaf) if type(leaf) in (int, float, complex) else leaf for leaf in leaves])


def carried_by(program: TracedProgram, name: str, leaves: Sequence[Any], structure: Structure) -> tuple[int, ...]:
    """Returns for each result of a program the input that it becomes in the next iteration; -1 if there is none.

    Args:
        program: the program of an iteration.
        name: the name of the argument that the results become.
        leaves: the leaves of all arguments.
        structure: the structure of a dict of the arguments by the names of their parameters.

    Raises:
        TracingError: if the results do not have the structure and the types of the argument.
    """
    position = structure.keys.index(name)
    first = sum(child.leaf_count for child in structure.children[:position])
    if program.structure != structure.children[position]:
        raise TracingError(
            f"{program.name} returns another structure than that of its argument {name}, which the result becomes in "
            "the next iteration; let it return the same"
        )
    inputs = {item.leaf: i for i, item in enumerate(program.inputs) if item.leaf is not None}
    carried = []
    for number, leaf_type in enumerate(program.types):
        leaf = leaves[first + number]
        if type_of(leaf) != leaf_type:
            raise TracingError(
                f"{program.name} returns {leaf_type} where its argument {name} has {type_of(leaf)}, which the result "
                "becomes in the next iteration; let it return the same type, or begin with that of the result"
            )
        carried.append(inputs.get(first + number, -1))
    return tuple(carried)
