"""Traces of functions that become one call of another trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from shardcall._src.device_arrays.remote_array import RemoteArray, find_remote_array
from shardcall._src.traced.numbers import TracedNumber
from shardcall._src.traced.program import check_limits
from shardcall._src.traced.trace import Input, Trace
from shardcall._src.traced.traced_array import TracedArray
from shardcall._src.traced.tracing import ActiveTrace
from shardcall_core.element_types import DType
from shardcall_core.graphs.graph import MAX_ITEMS, Graph
from shardcall_core.types.arrays import Array, NDArray
from shardcall_core.types.errors import TracingError
from shardcall_core.types.pytrees import Structure, flatten


class InnerTrace(Trace):
    """The calls of a function that is traced within another one, as a graph that is one call of that one.

    What it takes of the outer trace, such as arrays of the closure, becomes an input of the graph.

    Attributes:
        outer: the outer trace.
        operands: the arrays of the outer trace that the inputs are; None for an argument.

    Args:
        outer: the outer trace.
    """

    def __init__(self, outer: Trace) -> None:
        super().__init__(outer._client, outer.name, outer._active, exact=outer.exact, copies=outer.copies)
        self.outer = outer
        self.bodies = outer.bodies
        self.operands: list[TracedArray | None] = []

    @contextmanager
    def entered(self, active: ActiveTrace) -> Iterator[None]:
        """Adds the calls of a block to this trace; meanwhile the arrays of the outer one do not change."""
        before, self.outer.has_open_body = self.outer.has_open_body, True
        try:
            with active.entered(self):
                yield
        finally:
            self.outer.has_open_body = before

    def run(
        self, active: ActiveTrace, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[list[TracedArray], Structure]:
        """Traces a function; returns the leaves of its result, and their structure.

        Raises:
            TracingError: for a function that cannot be traced, or returns no array.
        """
        with self.entered(active):
            returned, structure = flatten(self.copies.of(function)(*args, **kwargs))
            results = [self.value(leaf, "what the function returns") for leaf in returned]
        if not results:
            raise TracingError(f"a function in {self.name} returns no array; return what is computed")
        return results, structure

    def constant(self, array: NDArray) -> TracedArray:
        """Returns an array of this process as one of the program."""
        return self._of_outer(self.outer.constant(array), array)

    def number(self, number: TracedNumber, dtype: DType | None) -> TracedArray:
        """Returns a number as an array without axes, as `Trace.number`."""
        return self._of_outer(self.outer.number(number, dtype))

    def argument(self, index: int, leaf_type: Array) -> TracedArray:
        """Returns an argument."""
        tracer = super().argument(index, leaf_type)
        self.operands += [None] * (len(self.inputs) - len(self.operands))
        return tracer

    def value(self, item: Any, name: str) -> TracedArray:
        """Returns any value as an array of the program, as `Trace.value`."""
        array = find_remote_array(item)
        if array is None or (isinstance(array, TracedArray) and array._trace is self):
            return super().value(item, name)
        return self._of_outer(self.outer.value(item, name))

    def stand_in(self, array: RemoteArray, name: str = "the array") -> TracedArray:
        """Returns what an array on the mesh is in the outermost program, as `Trace.stand_in`."""
        return self.outer.stand_in(array, name)

    def graph(self, results: Sequence[TracedArray]) -> tuple[Graph, list[int]]:
        """Returns the graph of some results, and the inputs that it uses, in their sequence.

        Raises:
            TracingError: for a graph beyond the limits.
        """
        form = self.program_form(results)
        used = list(form.inputs)
        check_limits(self.name, form.graph, [self.inputs[i] for i in used], max_values=MAX_ITEMS)
        self.bodies[form.graph] = self.graph_of(form)
        return form.graph, used

    def _of_outer(self, array: TracedArray, constant: NDArray | None = None) -> TracedArray:
        """Returns an array of the outer trace.

        Args:
            array: the array.
            constant: its values, if it is constant.
        """
        tracer = self._input(("outer", array._traced.value), Input(array.type, array=constant))
        if len(self.operands) < len(self.inputs):
            self.operands.append(array)
        return tracer


def required_leaf(item: Input) -> int:
    """Returns the number of the argument that an input is."""
    assert item.leaf is not None
    return item.leaf
