"""The arrays that functions such as `numpy.put` change: their checks and locks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def writing(array: Any, what: str) -> Iterator[Any]:
    """Returns an array on the mesh that a function is to change, to which no other thread writes in the block.

    Args:
        array: the argument.
        what: the name of the function, such as ``"numpy.put"``.

    Raises:
        TypeError: as of `target_of`.
        ValueError: for a view that NumPy does not write to.
    """
    target = target_of(array, what)
    with target._writing():
        yield target


def target_of(array: Any, what: str) -> Any:
    """Returns an array on the mesh that a function is to change.

    Args:
        array: the argument.
        what: the name of the function, such as ``"numpy.put"``.

    Raises:
        TypeError: for what is no array on the mesh and what NumPy returns as a scalar.
    """
    if not hasattr(type(array), "_assign"):
        raise TypeError(
            f"{what} changes an array, and got an object of type {type(array).__name__}; give an array on the mesh"
        )
    if array._is_scalar:
        raise TypeError(f"{what} changes an array, and got a number, which NumPy does not change; assign a new one")
    return array
