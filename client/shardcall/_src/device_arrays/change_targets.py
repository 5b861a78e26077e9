"""The arrays that functions of NumPy change."""

from __future__ import annotations

from typing import Any


def target_of(array: Any, what: str) -> Any:
    """Returns an array on the mesh that a function is to change.

    Args:
        array: the argument.
        what: the name of the function, such as ``"numpy.put"``.

    Raises:
        TypeError: for what is no array on the mesh, what NumPy returns as a scalar, and what is a view in NumPy.
    """
    if not hasattr(type(array), "_assign"):
        raise TypeError(
            f"{what} changes an array, and got an object of type {type(array).__name__}; give an array on the mesh"
        )
    if array._is_scalar:
        raise TypeError(f"{what} changes an array, and got a number, which NumPy does not change; assign a new one")
    if getattr(array, "_base", None) is not None:
        raise TypeError(
            f"{what} does not write to a part of an array, which is a copy on the mesh and a view in NumPy; write to "
            "the array itself, or array[key] = values"
        )
    return array
