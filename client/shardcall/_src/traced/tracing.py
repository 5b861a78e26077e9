"""Traces functions."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

import numpy as np

from shardcall._src.device_arrays.remote_array import RemoteArray
from shardcall._src.traced.creating_functions import creating_functions
from shardcall._src.traced.numbers import TracedNumber
from shardcall._src.traced.program import TracedProgram, program_of
from shardcall._src.traced.references import References
from shardcall._src.traced.trace import Trace, TracingClient, base_of
from shardcall._src.traced.traced_array import TracedArray
from shardcall._src.traced.writes import Alias, Arguments
from shardcall_core.types.arrays import Array, type_of
from shardcall_core.types.errors import TracingError
from shardcall_core.types.pytrees import Structure, flatten

NUMBERS = (bool, int, float, complex)
"""The classes of numbers that take the element type of the array beside them."""

_UNSTEADY = frozenset(
    (
        *("random", "default_rng", "RandomState", "time", "perf_counter", "monotonic", "now", "urandom"),
        *("normal", "uniform", "integers", "standard_normal", "rand", "randn", "randint", "random_sample", "gauss"),
        *("choice", "shuffle", "permutation", "exponential", "poisson", "binomial"),
    )
)
"""Names in the code of functions that may compute something else each time."""


class ActiveTrace(threading.local):
    """The trace that calls of this thread belong to.

    Attributes:
        trace: the trace; None while no function is traced.
        creating: what stands for NumPy and its functions in a traced function, by the ids of these.
    """

    trace: Trace | None = None

    def __init__(self) -> None:
        self.creating = creating_functions(lambda: self.trace)

    @contextmanager
    def entered(self, trace: Trace) -> Iterator[None]:
        """Adds the calls of a block to a trace, and closes it."""
        before, self.trace = self.trace, trace
        try:
            yield
        finally:
            self.trace = before
            trace.is_closed = True


class FunctionTracer:
    """Traces a function for one client.

    Args:
        client: the client that its calls go to.
        active: the trace of the client's calls.
        function: the function.
        exact: whether results are those of the calls one by one, bit for bit.
    """

    def __init__(
        self, client: TracingClient, active: ActiveTrace, function: Callable[..., Any], *, exact: bool
    ) -> None:
        self.name = name_of(function)
        self._exact = exact
        self._client = client
        self._active = active
        self._function = function
        self._signature = inspect.signature(function)

    def program(
        self,
        leaves: Sequence[Any],
        structure: Structure,
        arguments: Arguments,
        references: References,
        *,
        is_body: bool = False,
    ) -> tuple[TracedProgram, Trace]:
        """Returns the program of the function for arguments, and the trace, which keeps the arrays that it refers to.

        Args:
            leaves: the leaves of the arguments: arrays, types, numbers and static values.
            structure: the structure of a dict of the arguments by the names of their parameters.
            arguments: the arrays among them.
            references: what the function refers to.
            is_body: whether it is traced as the body of a loop.

        Raises:
            TracingError: for a function that cannot be traced.
        """
        before = _random_states(references)
        program, trace = self._traced(leaves, structure, arguments, is_body=is_body)
        if before != _random_states(references) or references.names & _UNSTEADY:
            again, _ = self._traced(leaves, structure, arguments, is_body=is_body)
            if (again.form, again.constants) != (program.form, program.constants):
                raise TracingError(
                    f"{self.name} is another program each time that it is traced, since it takes random numbers, such "
                    "as those of np.random, or the time; pass these as arguments, or generate them on the mesh from "
                    "a seed: client.xp.normal(seed, shape)"
                )
        return program, trace

    def _traced(
        self, leaves: Sequence[Any], structure: Structure, arguments: Arguments, *, is_body: bool
    ) -> tuple[TracedProgram, Trace]:
        trace = Trace(self._client, self.name, self._active, exact=self._exact)
        try:
            return self._program_of(trace, leaves, structure, arguments, is_body=is_body), trace
        finally:
            trace.release()

    def _program_of(
        self, trace: Trace, leaves: Sequence[Any], structure: Structure, arguments: Arguments, *, is_body: bool
    ) -> TracedProgram:
        tracers: dict[int, TracedArray] = {}
        values = [self._argument(trace, arguments, i, leaf, tracers) for i, leaf in enumerate(leaves)]
        before = {i: tracer._steps for i, tracer in tracers.items()}
        bound = inspect.BoundArguments(self._signature, structure.with_leaves(values))
        with self._active.entered(trace):
            with _without_errors_of_numpy():
                returned, shape = flatten(trace.copies.of(self._function)(*bound.args, **bound.kwargs))
            for i, steps in before.items():
                if tracers[i]._steps != steps:
                    raise TracingError(
                        f"{self.name} sets the shape of its argument {[*paths(structure)][i]}, which its caller would "
                        "not see; use reshape()"
                    )
            written = [
                (target, tracer)
                for target, tracer in arguments.targets(trace, tracers)
                if trace.is_written(base_of(tracer))
            ]
            indices = {tracer._store: i for i, (_, tracer) in enumerate(written)}
            aliases: dict[int, Alias] = {}
            results = []
            for i, item in enumerate(returned):
                is_input = isinstance(item, RemoteArray) and item._store in trace.stand_ins
                leaf = trace.stand_in(item) if is_input else item
                if isinstance(leaf, TracedArray) and leaf._store in indices and not is_body:
                    aliases[i] = Alias(indices[leaf._store], leaf._steps)
                else:
                    results.append(trace.value(leaf, "what the function returns"))
            results += [trace.value(base_of(tracer), "what the function writes") for _, tracer in written]
        targets = [target for target, _ in written]
        return program_of(trace, results, shape, aliases, targets, is_body=is_body)

    def _argument(
        self, trace: Trace, arguments: Arguments, index: int, leaf: Any, tracers: dict[int, TracedArray]
    ) -> Any:
        """Returns an argument of the function; adds it to the tracers if it is an array."""
        if isinstance(leaf, StaticArgument):
            return leaf.value
        if type(leaf) in NUMBERS:
            return TracedNumber(trace, itemgetter(index), leaf, ("argument", index))
        tracers[index] = arguments.traced(trace, index, leaf if isinstance(leaf, Array) else type_of(leaf))
        return tracers[index]


class StaticArgument:
    """An argument that the function gets as it is.

    Attributes:
        value: the argument.
    """

    def __init__(self, value: Any) -> None:
        self.value = value


def paths(structure: Structure) -> Iterator[str]:
    """Yields the names of the leaves of arguments, such as ``params['w']``, for a dict by the names of parameters."""
    for name, child in zip(structure.keys, structure.children, strict=True):
        yield from child.paths(str(name))


@contextmanager
def _without_errors_of_numpy() -> Iterator[None]:
    """Raises a `TracingError` that NumPy has replaced, such as by its error for a sequence in place of a number."""
    try:
        yield
    except ValueError as error:
        if isinstance(cause := error.__cause__, TracingError):
            raise cause.with_traceback(error.__traceback__) from None
        raise


def _random_states(references: References) -> list[Any]:
    """Returns the states of NumPy's generators of random numbers."""
    generators = (
        generator.bit_generator for generator in references.generators if isinstance(generator, np.random.Generator)
    )
    return [_comparable(np.random.get_state(legacy=False)), *(_comparable(generator.state) for generator in generators)]


def _comparable(state: Any) -> Any:
    """Returns a state with the bytes of its arrays, which compare sooner than their texts are made."""
    if isinstance(state, dict):
        return {name: _comparable(value) for name, value in state.items()}
    return state.tobytes() if isinstance(state, np.ndarray) else state


def bound_arguments(
    name: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> inspect.BoundArguments:
    """Returns the arguments of a call by the names of the parameters.

    Raises:
        TypeError: for arguments that the function of this name does not take.
    """
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{name} was called with other arguments than {signature}: {error}") from None


def name_of(function: Callable[..., Any]) -> str:
    """Returns the name of a function, with its file and line."""
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", type(function).__name__).rpartition("<locals>.")[2]
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"
