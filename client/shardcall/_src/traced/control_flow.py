"""Loops and branches of traced functions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from shardcall._src.device_arrays.array_properties import ArrayProperties
from shardcall._src.traced.inner_trace import InnerTrace
from shardcall._src.traced.numbers import TracedNumber, as_traced, computed
from shardcall._src.traced.trace import Trace, TracingClient
from shardcall._src.traced.traced_array import TracedArray
from shardcall._src.traced.tracing import NUMBERS, ActiveTrace, name_of
from shardcall_core.graphs.graph import Graph, Node, NodeParameter, Value, parameters_of
from shardcall_core.types.arrays import Array
from shardcall_core.types.errors import InvalidParameterError, TracingError
from shardcall_core.types.pytrees import Structure, flatten

MAX_ITERATIONS = 1024
"""The most iterations of an outermost loop that is a part of a program; one of more runs in slices."""

_ENDLESS = 1 << 62
_INT64 = np.dtype(np.int64)


class LoopClient(TracingClient, Protocol):
    """A client that traces functions."""

    def jit(self, function: Callable[..., Any]) -> Any:
        """Returns a function that runs as one program."""


@dataclass(frozen=True)
class _Body:
    """A body, traced.

    Attributes:
        graph: its graph.
        operands: the values outside that the inputs are; an argument is None.
        arguments: for each input the index of the argument that it is, or -1.
        results: the types of its results.
    """

    graph: Graph
    operands: tuple[Value | None, ...]
    arguments: tuple[int, ...]
    results: tuple[Array, ...]

    def bound(self, arguments: Sequence[Value], carried: Sequence[int]) -> tuple[list[Value], tuple[int, ...]]:
        """Returns the operands for arguments, and for each result the index of the operand that it becomes.

        Args:
            arguments: the first values of the arguments.
            carried: for each result the index of the argument that it becomes, or -1.
        """
        sources = zip(self.operands, self.arguments, strict=True)
        operands = [arguments[at] if value is None else value for value, at in sources]
        indices = {at: i for i, at in enumerate(self.arguments) if at >= 0}
        for at in carried:
            if at >= 0 and at not in indices:  # the body does not read it
                indices[at] = len(operands)
                operands.append(arguments[at])
        return operands, tuple(indices[at] if at >= 0 else -1 for at in carried)


class ControlFlow:
    """Loops and branches with the arguments of ``jax.lax``.

    Outside of a traced function they run as one of their own.

    Args:
        client: the client.
        active: the trace of its calls.
    """

    def __init__(self, client: LoopClient, active: ActiveTrace) -> None:
        self._client = client
        self._active = active

    def fori_loop(self, lower: Any, upper: Any, body: Callable[..., Any], init: Any) -> Any:
        """Returns the state after ``state = body(i, state)`` for each i; see `shardcall.namespace`."""
        trace = self._active.trace
        if trace is None:
            traced = self._alone(lambda lower, upper, init: self.fori_loop(lower, upper, body, init), body)
            return traced(_plain(lower), _plain(upper), init)
        body = trace.copies.of(body)
        lower, upper = checked_bound("lower of fori_loop", lower), checked_bound("upper of fori_loop", upper)
        first, structure = self._state(trace, "fori_loop", init)
        index = trace.value(_as_index(lower), "lower")
        with self._body(trace) as inner:
            i = inner.argument(0, index.type)
            state = structure.with_leaves(_arguments(inner, first, 1))
            leaves = _checked(inner, "fori_loop", body, (i, state), first, structure)
            traced_body = _traced(inner, leaves)
            if reads_index := 0 in traced_body.arguments:
                traced_body = _traced(inner, [i + 1, *leaves])
        carried = tuple(range(0 if reads_index else 1, len(first) + 1))
        count = max(0, upper - lower) if type(lower) is int and type(upper) is int else None
        if count == 0:
            return structure.with_leaves(first)
        values = [index._traced.value, *(leaf._traced.value for leaf in first)]
        operands, becomes = traced_body.bound(values, carried)
        parameters: dict[str, NodeParameter] = {"graph": traced_body.graph, "carried": becomes}
        is_outermost = not isinstance(trace, InnerTrace)
        if count is not None and not (is_outermost and (count > MAX_ITERATIONS or traced_body.graph.has_loops)):
            parameters["count"] = count
        else:
            operands.append(self._times(trace, lower, upper)._traced.value)
        results = _added(trace, "graph", operands, parameters, traced_body.results)
        return structure.with_leaves(results[1:] if reads_index else results)

    def while_loop(self, cond: Callable[[Any], Any], body: Callable[[Any], Any], init: Any) -> Any:
        """Returns the state after ``state = body(state)`` while ``cond(state)``; see `shardcall.namespace`."""
        trace = self._active.trace
        if trace is None:
            return self._alone(lambda init: self.while_loop(cond, body, init), body)(init)
        cond, body = trace.copies.of(cond), trace.copies.of(body)
        first, structure = self._state(trace, "while_loop", init)
        begins = self._condition(trace, cond(structure.with_leaves(first)), "while_loop")
        with self._body(trace) as inner:
            state = structure.with_leaves(_arguments(inner, first, 0))
            leaves = _checked(inner, "while_loop", body, (state,), first, structure)
            goes_on = self._condition(inner, cond(structure.with_leaves(leaves)), "while_loop")
            traced_body = _traced(inner, [*leaves, goes_on])
        values = [*(leaf._traced.value for leaf in first), begins._traced.value]
        operands, becomes = traced_body.bound(values, range(len(first) + 1))
        operands.append(trace.constant(np.asarray(_ENDLESS, _INT64))._traced.value)
        parameters: dict[str, NodeParameter] = {
            "graph": traced_body.graph,
            "carried": becomes,
            "condition": len(first),
        }
        results = _added(trace, "graph", operands, parameters, traced_body.results)
        return structure.with_leaves(results[:-1])

    def scan(
        self, f: Callable[..., Any], init: Any, xs: Any = None, length: int | None = None, *, reverse: bool = False
    ) -> tuple[Any, Any]:
        """Returns the last carry and the stacked results of ``carry, y = f(carry, x)``; see `shardcall.namespace`."""
        trace = self._active.trace
        if trace is None:
            traced = self._alone(lambda init, xs: self.scan(f, init, xs, length, reverse=reverse), f)
            carry, ys = traced(init, xs)
            return carry, ys
        f = trace.copies.of(f)
        first, structure = self._state(trace, "scan", init, may_be_empty=True)
        rows, rows_structure = self._state(trace, "scan", xs, may_be_empty=True)
        count = _length(rows, rows_structure, length)
        with self._body(trace) as inner:
            state = structure.with_leaves(_arguments(inner, first, 0))
            row_types = [Array(row.shape[1:], row.dtype) for row in rows]
            x = rows_structure.with_leaves(
                inner.argument(len(first) + i, row_type) for i, row_type in enumerate(row_types)
            )
            returned = f(state, x)
            if not isinstance(returned, tuple) or len(returned) != 2:
                raise TracingError(
                    f"the function of scan in {trace.name} returns no pair; let it return the carry and what is stacked"
                )
            leaves = _checked(inner, "scan", lambda *_: returned[0], (state, x), first, structure)
            stacked, ys_structure = flatten(returned[1])
            ys = [inner.value(leaf, "what the function of scan returns") for leaf in stacked]
            traced_body = _traced(inner, [*leaves, *ys])
        values = [leaf._traced.value for leaf in (*first, *rows)]
        operands, becomes = traced_body.bound(values, (*range(len(first)), *[-1] * len(ys)))
        scanned = tuple(i for i, at in enumerate(traced_body.arguments) if at >= len(first))
        parameters: dict[str, NodeParameter] = {
            "graph": traced_body.graph,
            "carried": becomes,
            "scanned": scanned,
            "length": count,
            "reverse": bool(reverse),
        }
        types = [
            row_type if at >= 0 else Array((count, *row_type.shape), row_type.dtype)
            for row_type, at in zip(traced_body.results, becomes, strict=True)
        ]
        results = _added(trace, "scan", operands, parameters, types)
        return structure.with_leaves(results[: len(first)]), ys_structure.with_leaves(results[len(first) :])

    def cond(self, pred: Any, then: Callable[..., Any], otherwise: Callable[..., Any], *operands: Any) -> Any:
        """Returns what one of two functions returns; see `shardcall.namespace`."""
        trace = self._active.trace
        if trace is None:
            traced = self._alone(lambda pred, *arguments: self.cond(pred, then, otherwise, *arguments), then)
            return traced(_plain(pred), *operands)
        then, otherwise = trace.copies.of(then), trace.copies.of(otherwise)
        if isinstance(pred, bool | np.bool):
            return then(*operands) if pred else otherwise(*operands)
        condition = self._condition(trace, pred, "cond")
        bodies, structures = [], []
        for function in (then, otherwise):
            with self._body(trace) as inner:
                leaves, structure = flatten(function(*_on_mesh(trace, operands)))
                results = [inner.value(leaf, "what a function of cond returns") for leaf in leaves]
                bodies.append(_traced(inner, results))
                structures.append(structure)
        _check_branches(trace, bodies, structures)
        values = list(dict.fromkeys(value for body in bodies for value in body.operands if value is not None))
        indices = [tuple(values.index(value) for value in body.operands if value is not None) for body in bodies]
        parameters: dict[str, NodeParameter] = {
            "then": bodies[0].graph,
            "otherwise": bodies[1].graph,
            "then_inputs": indices[0],
            "otherwise_inputs": indices[1],
        }
        outputs = _added(trace, "cond", [condition._traced.value, *values], parameters, bodies[0].results)
        return structures[0].with_leaves(outputs)

    def _alone(self, function: Callable[..., Any], body: Callable[..., Any]) -> Any:
        """Returns a function as one that is traced, with the name of a body of it in errors."""
        traced = self._client.jit(function)
        traced._tracing.name = name_of(body)
        return traced

    @contextmanager
    def _body(self, trace: Trace) -> Iterator[InnerTrace]:
        inner = InnerTrace(trace)
        with inner.entered(self._active):
            yield inner

    def _state(
        self, trace: Trace, name: str, tree: Any, *, may_be_empty: bool = False
    ) -> tuple[list[TracedArray], Structure]:
        """Returns the leaves of what a loop carries or takes rows of, as arrays of the trace, and its structure."""
        leaves, structure = flatten(tree)
        if not leaves and not may_be_empty:
            raise TracingError(f"{name} in {trace.name} carries no array; give it what its body computes")
        return [trace.value(leaf, f"what {name} takes") for leaf in leaves], structure

    def _condition(self, trace: Trace, value: Any, name: str) -> TracedArray:
        """Returns one bool of a trace."""
        condition = trace.value(value, "the condition")
        if condition.shape:
            raise TypeError(
                f"the condition of {name} is of shape {condition.shape}; give one bool, such as any(), or use where"
            )
        return condition if condition.dtype == np.bool_ else trace.value(condition != 0, "the condition")

    def _times(self, trace: Trace, lower: Any, upper: Any) -> TracedArray:
        """Returns the number of iterations between two bounds."""
        if isinstance(lower, int | TracedNumber) and isinstance(upper, int | TracedNumber):
            times = computed(_iterations, as_traced(upper, trace), as_traced(lower, trace))
            return trace.value(times.in_type(_INT64), "upper")
        functions = trace.functions
        times = functions.subtract(_as_index(upper), _as_index(lower))
        return trace.value(functions.maximum(times, np.int64(0)), "upper")


def _iterations(upper: int, lower: int) -> int:
    return max(0, upper - lower)


def _plain(number: Any) -> Any:
    """Returns integers of NumPy as Python's, which programs do not depend on."""
    return operator.index(number) if isinstance(number, np.integer) else number


def checked_bound(name: str, bound: Any) -> Any:
    """Returns a bound of a loop.

    Args:
        name: its name in errors, such as "upper of fori_loop".
        bound: the bound.

    Raises:
        InvalidParameterError: for one that is no integer.
    """
    bound = _plain(bound)
    number = bound.number if isinstance(bound, TracedNumber) else bound
    if isinstance(number, ArrayProperties):
        is_integer = number.type.dtype.kind in "iu" and not number.type.shape
    else:
        is_integer = type(number) is int and -(2**62) <= number <= 2**62
    if not is_integer:
        raise InvalidParameterError(
            f"{name} is {number!r}; give an integer from -2**62 to 2**62, or an array of one",
            field=name.partition(" ")[0],
        )
    return bound


def _as_index(bound: Any) -> Any:
    if isinstance(bound, TracedNumber):
        return bound.in_type(_INT64)
    return np.asarray(bound, _INT64) if type(bound) is int else bound.astype(_INT64)


def _on_mesh(trace: Trace, operands: Sequence[Any]) -> list[Any]:
    """Returns arguments with the arrays of this process in them as arrays of the program."""
    leaves, structure = flatten(list(operands))
    results: list[Any] = structure.with_leaves(
        trace.value(leaf, "an operand") if isinstance(leaf, np.ndarray) else leaf for leaf in leaves
    )
    return results


def _arguments(inner: InnerTrace, first: Sequence[TracedArray], start: int) -> Iterator[TracedArray]:
    for i, leaf in enumerate(first, start):
        yield inner.argument(i, leaf.type)


def _checked(
    inner: InnerTrace,
    name: str,
    body: Callable[..., Any],
    arguments: Sequence[Any],
    first: Sequence[TracedArray],
    structure: Structure,
) -> list[TracedArray]:
    """Returns the leaves of what a body returns, which have the types of those that it was given.

    Raises:
        TracingError: for another structure, and for a leaf of another type.
    """
    returned, returned_structure = flatten(body(*arguments))
    if returned_structure != structure:
        raise TracingError(
            f"the body of {name} in {inner.name} returns another structure than that of its initial value; let it "
            "return the same"
        )
    leaves = []
    for path, leaf, begin in zip(structure.paths("carry"), returned, first, strict=True):
        value = inner.value(_in_type(leaf, begin), f"{path} of {name}")
        if value.type != begin.type:
            raise TracingError(
                f"the body of {name} in {inner.name} returns {value.type} for {path}, which is {begin.type} before the "
                "first iteration; let both be of one type: begin with 0.0 in place of 0, or use astype"
            )
        leaves.append(value)
    return leaves


def _in_type(leaf: Any, begin: TracedArray) -> Any:
    """Returns a Python number in the element type of what it becomes; any other leaf as it is."""
    if isinstance(leaf, TracedNumber):
        return leaf.in_type(begin.dtype)
    return np.asarray(leaf, begin.dtype) if type(leaf) in NUMBERS else leaf


def _traced(inner: InnerTrace, results: Sequence[TracedArray]) -> _Body:
    """Returns a body whose results are these."""
    graph, used = inner.graph(results)
    outside = [inner.operands[i] for i in used]
    leaves = [inner.inputs[i].leaf for i in used]
    return _Body(
        graph,
        tuple(None if array is None else array._traced.value for array in outside),
        tuple(-1 if leaf is None else leaf for leaf in leaves),
        tuple(result.type for result in results),
    )


def _added(
    trace: Trace, kernel: str, operands: Sequence[Value], parameters: dict[str, NodeParameter], types: Sequence[Array]
) -> tuple[TracedArray, ...]:
    return trace.add(Node(kernel, tuple(operands), parameters_of(list(parameters.items()))), types)


def _length(rows: Sequence[TracedArray], structure: Structure, length: int | None) -> int:
    """Returns the number of iterations of a scan.

    Raises:
        InvalidParameterError: if arrays and length do not agree.
    """
    counts = {path: row.shape[0] if row.shape else None for path, row in zip(structure.paths("xs"), rows, strict=True)}
    count = next(iter(counts.values()), None) if length is None else operator.index(length)
    if count is None or count < 0 or any(count_of_rows != count for count_of_rows in counts.values()):
        counted = (
            ", ".join(f"{path} has {count_of_rows} rows" for path, count_of_rows in counts.items())
            or "xs has no arrays"
        )
        raise InvalidParameterError(
            f"length={length} of scan, and {counted}; give arrays of equally many rows, or a length", field="length"
        )
    return count


def _check_branches(trace: Trace, bodies: Sequence[_Body], structures: Sequence[Structure]) -> None:
    """Checks that both functions of cond return the same.

    Raises:
        TypeError: for another structure, and for a leaf of another type.
    """
    if structures[0] != structures[1]:
        raise TypeError("the functions of cond return different structures; let both return the same")
    if not bodies[0].results:
        raise TracingError(f"the functions of cond in {trace.name} return no array; let them return what they compute")
    for path, ours, theirs in zip(structures[0].paths("result"), bodies[0].results, bodies[1].results, strict=True):
        if ours != theirs:
            raise TypeError(
                f"the functions of cond return {ours} and {theirs} for {path}; let both return the same type"
            )
