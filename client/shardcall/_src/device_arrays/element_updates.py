"""Updates of elements that return a new array: ``array.at[key].set(values)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardcall_core.types.tracebacks import shortened


class IndexedArray:
    """An array whose elements are to be updated; ``array.at[key]`` chooses them.

    Args:
        functions: the namespace with the functions.
        array: the array.
    """

    def __init__(self, functions: Any, array: Any) -> None:
        self._functions = functions
        self._array = array

    def __getitem__(self, key: Any) -> ElementUpdates:
        return ElementUpdates(self._functions, self._array, key)


@shortened
class ElementUpdates:
    """Updates of the elements at an index, as those of ``jax.Array.at``. Each returns a new array.

    The values broadcast to the elements and are converted to the array's element type. Of equal indices in arrays of
    integers `set` takes the last; the other updates with values are all made, in some order.

    Args:
        functions: the namespace with the functions.
        array: the array.
        key: the index, as of ``array[key]``.
    """

    def __init__(self, functions: Any, array: Any, key: Any) -> None:
        self._functions = functions
        self._array = array
        self._key = key

    def get(self) -> Any:
        """Returns the elements: ``array[key]``."""
        return self._functions.getitem(self._array, self._key)

    def set(self, values: Any) -> Any:
        """Returns the array with other elements."""
        return self._update(values, "set")

    def add(self, values: Any) -> Any:
        """Returns the array with values added to the elements."""
        return self._update(values, "add")

    def multiply(self, values: Any) -> Any:
        """Returns the array with the elements multiplied by values."""
        return self._update(values, "multiply")

    mul = multiply

    def divide(self, values: Any) -> Any:
        """Returns the array with the elements divided by values, for equal indices by their product, as JAX does.

        The product may overflow where divisions one after the other, as of ``numpy.divide.at``, would not.
        """
        return self._update(values, "divide")

    def power(self, values: Any) -> Any:
        """Returns the array with the elements raised to powers, for equal indices to their product; see `divide`."""
        return self._update(values, "power")

    def min(self, values: Any) -> Any:
        """Returns the array with the smaller ones of the elements and values."""
        return self._update(values, "min")

    def max(self, values: Any) -> Any:
        """Returns the array with the larger ones of the elements and values."""
        return self._update(values, "max")

    def apply(self, function: Callable[[Any], Any]) -> Any:
        """Returns the array with a function's results for the elements; once for equal indices."""
        return self.set(function(self.get()))

    def _update(self, values: Any, mode: str) -> Any:
        return self._functions.update(self._array, self._key, values, mode)
