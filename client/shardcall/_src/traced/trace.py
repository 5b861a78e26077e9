"""The trace of a function: the calls that it makes, as a graph."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np

from shardcall._src.calls.call_request import AUTO, CallOptions, CallRequest, prepare
from shardcall._src.device_arrays.array_operators import Unconvertible
from shardcall._src.device_arrays.array_version import ArrayBase, ArrayVersion, ServerIdentity
from shardcall._src.device_arrays.call_sites import Line, line_of_caller
from shardcall._src.device_arrays.operands import as_operand
from shardcall._src.device_arrays.remote_array import RemoteArray, check_there, find_remote_array
from shardcall._src.programs.program_builder import ProgramBuilder
from shardcall._src.programs.templates import Templates, node_of, spec_of
from shardcall._src.traced.function_copies import FunctionCopies
from shardcall._src.traced.numbers import Evaluate, TracedNumber
from shardcall._src.traced.traced_array import TracedArray, TracedResult
from shardcall._src.traced.traced_graph import TracedGraph
from shardcall_core.element_types import DType
from shardcall_core.graphs.canonical import CanonicalForm
from shardcall_core.graphs.graph import MAX_CONSTANT_BYTES, Constant, Graph, Node, Value
from shardcall_core.types import parameters
from shardcall_core.types.arguments import bind, operand_name
from shardcall_core.types.arrays import Array, NDArray
from shardcall_core.types.errors import TracingError

_MAX_KEY_BYTES = 1 << 12
_MAX_WRITTEN_BYTES = 1 << 16  # of one constant at all its uses; another one is an operand of the program
_MAX_CALLS = 4096  # of which a program has fewer: those that results need


@dataclass(frozen=True)
class Input:
    """An input of a graph.

    Attributes:
        array_type: its type.
        leaf: the index of the argument that it is; None if it is none.
        number: computes the number that it is from the arguments.
        python_type: the class of that number.
        is_alone: whether its element type is the one that it has alone, which depends on its value.
        array: the array of this process that it is.
        base: the base of the array on the mesh that it is.
        is_base: whether it is the base of the argument, of which that is a view.
    """

    array_type: Array
    leaf: int | None = None
    number: Evaluate | None = None
    python_type: type | None = None
    is_alone: bool = False
    array: NDArray | None = None
    base: ArrayBase | None = None
    is_base: bool = False


class CurrentTrace(Protocol):
    """The trace that calls of this thread belong to.

    Attributes:
        trace: the trace; None while no function is traced.
        creating: what stands for NumPy and its functions in a traced function, by the ids of these.
    """

    trace: Trace | None
    creating: dict[int, Any]


class TracingClient(Protocol):
    """A client whose calls are traced."""

    _templates: Templates

    @property
    def _here(self) -> ServerIdentity:
        """The server."""

    @property
    def xp(self) -> Any:
        """The functions of arrays."""

    def plan(self, name: str, /, *operands: Any, **arguments: Any) -> Any:
        """Returns the plan of a call."""


class Trace(ProgramBuilder[Input]):
    """The calls of a function that is being traced.

    Attributes:
        name: the name of the function, with its file and line.
        exact: whether the results are those of the calls one by one, bit for bit.
        types: the types of the results of each call.
        lines: the line of each call.
        bodies: the graphs that calls run.
        is_closed: True after the trace.
        has_open_body: True while the body of a loop or branch is traced.
        copies: the functions of the caller as the trace calls them.
        stand_ins: what the arrays on the mesh that the function refers to are in the program, by their bases.

    Args:
        client: the client that the calls go to.
        name: as the attribute.
        active: the trace of the calls of this thread.
        exact: as the attribute.
        copies: as the attribute; None for new ones.
    """

    def __init__(
        self,
        client: TracingClient,
        name: str,
        active: CurrentTrace,
        *,
        exact: bool,
        copies: FunctionCopies | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self.exact = exact
        self.types: list[Sequence[Array]] = []
        self.lines: list[Line] = []
        self.has_open_body = False
        self.bodies: dict[Graph, TracedGraph] = {}
        self.is_closed = False
        self._client = client
        self._active = active
        self.copies = copies or FunctionCopies(active.creating)
        self.stand_ins: dict[ArrayBase, TracedArray] = {}
        self._first: dict[ArrayBase, ArrayVersion] = {}  # the values of inputs that can be written to

    @property
    def functions(self) -> Any:
        """The functions of arrays."""
        return self._client.xp

    def submit(
        self, name: str, operands: Sequence[Any], keywords: Mapping[str, Any], options: CallOptions
    ) -> tuple[TracedArray, ...]:
        """Adds a call; returns its results.

        Raises:
            TracingError: for a mesh, and if there are too many calls.
            ShardcallError: for invalid arguments.
        """
        if options.mesh is not None:
            raise TracingError(
                f"mesh= was given to {name} in {self.name}, and a program runs on the devices of its arguments; "
                "leave it out"
            )
        if len(self.nodes) >= _MAX_CALLS:
            raise TracingError(f"{self.name} makes more than {_MAX_CALLS} calls; trace a smaller part of it")
        template = None
        if options.are_plain:
            values = self._operands(name, operands)
            operand_types = [None if value is None else value.type for value in values]
            template = self._client._templates.find(name, operand_types, keywords)
        results: Sequence[Array]
        if template is not None:
            node, results = template.node, template.results
        else:
            bound = bind(name, operands, keywords, in_specs=options.in_specs, out_specs=options.out_specs)
            values = self._operands(name, bound.operands)
            call = prepare(
                name,
                [None if value is None else value.type for value in values],
                bound.parameters,
                options._replace(in_specs=bound.in_specs, out_specs=bound.out_specs),
                memo=self._client._templates.messages,
            )
            node, results = node_of(call), self._types(call)
        operand_values = tuple(None if value is None else value._traced.value for value in values)
        return self.add(node._replace(operands=operand_values), results)

    def add(self, node: Node, types: Sequence[Array]) -> tuple[TracedArray, ...]:
        """Adds a call as a node; returns its results.

        Args:
            node: the node.
            types: the types of its results.
        """
        index = self.add_node(node)
        self.types.append(types)
        self.lines.append(line_of_caller())
        return tuple(self._tracer(result_type, Value(index, i)) for i, result_type in enumerate(types))

    def constant(self, array: NDArray) -> TracedArray:
        """Returns an array of this process as one of the program."""
        return self._input(content_key(array), Input(Array(array.shape, array.dtype), array=np.array(array)))

    def argument(self, index: int, argument_type: Array) -> TracedArray:
        """Returns an argument."""
        return self._writeable(("argument", index), Input(argument_type, leaf=index))

    def number(self, number: TracedNumber, dtype: DType | None) -> TracedArray:
        """Returns a number as an array without axes.

        Args:
            dtype: the element type; None for the one that it has alone.

        Raises:
            OverflowError: if the type does not hold the number.
            OperandTypeError: if there is no such type.
        """
        is_alone = dtype is None
        array = as_operand(number.number, "the number") if is_alone else np.asarray(number.number, dtype)
        new_input = Input(
            Array((), array.dtype), number=number.evaluate, python_type=number.python_type, is_alone=is_alone
        )
        return self._input(("number", number.key, array.dtype, is_alone), new_input)

    def value(self, item: Any, name: str) -> TracedArray:
        """Returns any value as an array of the program.

        Args:
            name: its name in errors.

        Raises:
            TracingError: for an array of another trace.
            ShardcallError: for a value that is no array.
        """
        array = find_remote_array(item)
        if isinstance(item, Unconvertible) and array is None:
            raise item._refusal(name)
        if array is None:
            return self.constant(as_operand(item, name))
        if not isinstance(array, TracedArray):
            array = self.stand_in(array, name)
        if array._trace is not self:
            array._result.begin()  # which refuses it
        return self._tracer(array.type, array._traced.value)

    def stand_in(self, array: RemoteArray, name: str = "the array") -> TracedArray:
        """Returns what an array on the mesh is in the program; a write to that is one to the array.

        Args:
            array: the array, or a view.
            name: its name in errors.
        """
        base = array._store
        tracer = self.stand_ins.get(base)
        if tracer is None:
            check_there(array, name)
            tracer = self._writeable(("remote array", id(base)), Input(base.type, base=base))
            tracer._is_ndarray = not base.type.shape and (bool(array._steps) or not array._is_scalar)
            self.stand_ins[base] = tracer
        return as_view(tracer, array)

    def base_of_argument(self, index: int, base: ArrayBase) -> TracedArray:
        """Returns what the base of an argument is in the program.

        Args:
            index: the index of the argument.
            base: the base.
        """
        if base not in self.stand_ins:
            new_input = Input(base.type, leaf=index, is_base=True)
            tracer = self._writeable(("base of argument", index), new_input)
            tracer._is_ndarray = not base.type.shape
            self.stand_ins[base] = tracer
        return self.stand_ins[base]

    def is_same(self, a: TracedArray, b: TracedArray) -> bool:
        """Returns whether two arrays of this trace are computed alike from the same inputs."""
        if a._trace is not b._trace:
            return False
        form = self.form([a._traced.value, b._traced.value])
        return form.graph.results[0] == form.graph.results[1]

    def release(self) -> None:
        """Forgets the arrays of the trace, which refer to it, so that nothing waits for the collector of cycles."""
        self.stand_ins.clear()
        self._first.clear()
        self.copies.release()

    def is_written(self, tracer: TracedArray) -> bool:
        """Returns whether something was written to an input."""
        return tracer._store.version is not self._first[tracer._store]

    @contextmanager
    def present(self) -> Iterator[None]:
        """Adds the calls of a block to this trace."""
        before, self._active.trace = self._active.trace, self
        try:
            yield
        finally:
            self._active.trace = before

    def program_form(self, results: Sequence[TracedArray]) -> CanonicalForm:
        """Returns the canonical form of a program with some results; what is known now is constant in it."""
        operands = itertools.chain.from_iterable(node.operands for node in self.nodes)
        uses = Counter(value.number for value in operands if isinstance(value, Value) and value.node < 0)
        constants = {
            i: Constant.of(item.array)
            for i, item in enumerate(self.inputs)
            if item.array is not None
            and item.array.nbytes <= MAX_CONSTANT_BYTES
            and item.array.nbytes * uses[i] <= _MAX_WRITTEN_BYTES
        }
        return self.form((result._traced.value for result in results), constants, exact=self.exact)

    def graph_of(self, form: CanonicalForm) -> TracedGraph:
        """Returns the graph of a form of these calls; of equal ones the line is that of one."""
        olds = {new: old for old, new in form.indices.items()}
        indices = [olds[i] for i in range(len(form.nodes))]
        return TracedGraph(
            form.nodes,
            [self.inputs[i].array_type for i in form.inputs],
            [self.types[i] for i in indices],
            [str(self.lines[i]) for i in indices],
        )

    def _operands(self, kernel: str, items: Sequence[Any]) -> list[TracedArray | None]:
        """Returns the operands of a call, without those left out at its end."""
        values = [self._operand(kernel, i, item) for i, item in enumerate(items)]
        while values and values[-1] is None:
            values.pop()
        return values

    def _operand(self, kernel: str, index: int, item: Any) -> TracedArray | None:
        if item is None or (type(item) is TracedArray and item._trace is self):
            return item
        name = operand_name(kernel, index)
        if isinstance(item, Array):
            raise TracingError(f"{name} is {item!r}, a type without values; give an array")
        return self.value(item, name)

    def _input(self, key: Hashable, new_input: Input) -> TracedArray:
        return self._tracer(new_input.array_type, self.add_input(key, new_input))

    def _writeable(self, key: Hashable, new_input: Input) -> TracedArray:
        tracer = self._input(key, new_input)
        self._first[tracer._store] = tracer._store.version
        return tracer

    def _tracer(self, result_type: Array, value: Value) -> TracedArray:
        owner: Any = self._client
        return TracedArray(ArrayVersion(owner, self._client._here, b"", result_type, pending=TracedResult(self, value)))

    def _types(self, call: CallRequest) -> Sequence[Array]:
        types = self._client._templates.types(call)
        if types is None:  # which only the server can determine, or refuse
            message = call.message
            plan = self._client.plan(
                message.kernel,
                *call.operands,
                in_specs=[spec_of(spec) for spec in message.in_specs] or None,
                out_specs=[spec_of(spec) for spec in message.out_specs] or None,
                strategy=message.strategy or AUTO,
                **{name: parameters.from_proto(value) for name, value in message.parameters.items()},
            )
            types = tuple(placement.type for placement in plan.results)
            self._client._templates.add_types(call, types)
        return types


def content_key(array: NDArray) -> Hashable:
    """Returns a key that arrays of equal type and values have."""
    data = array.tobytes()
    return "array", array.dtype, array.shape, data if len(data) <= _MAX_KEY_BYTES else hashlib.sha256(data).digest()


def as_view(tracer: TracedArray, array: RemoteArray) -> TracedArray:
    """Returns the view that an array is of its base.

    Args:
        tracer: what the base is in a program.
        array: the array.
    """
    for step in array._steps:
        tracer = tracer._view(step)
    return tracer


def base_of(tracer: TracedArray) -> TracedArray:
    """Returns the array that one is a view of; itself if it is none."""
    base = tracer.base
    return tracer if base is None else cast(TracedArray, base)
