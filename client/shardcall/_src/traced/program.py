"""Programs: functions as they were traced, in their canonical form."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from shardcall._src.device_arrays.array_version import ArrayBase
from shardcall._src.device_arrays.plan import Plan
from shardcall._src.device_arrays.remote_array import RemoteArray
from shardcall._src.traced.trace import Input, Trace
from shardcall._src.traced.traced_array import TracedArray
from shardcall._src.traced.traced_graph import Bodies, TracedGraph, located, with_lines
from shardcall._src.traced.writes import Alias, WriteTarget
from shardcall_core.graphs.graph import MAX_BYTES, MAX_DEPTH, MAX_ITEMS, MAX_NODES, MAX_VALUES, Graph, Node, Value
from shardcall_core.graphs.messages import to_message
from shardcall_core.graphs.stages import Stage, is_stage, result_of, stages_of
from shardcall_core.types.arrays import Array
from shardcall_core.types.errors import InvalidParameterError, ShardcallError, TracingError
from shardcall_core.types.pytrees import Structure
from shardcall_core.types.sizes import human

MAX_CONSTANT_BYTES = 1 << 20
"""The most bytes of arrays of this process that a call sends beside its arguments; more are kept on the mesh."""


@dataclass(frozen=True)
class TracedProgram:
    """A function as it was traced for arguments of one structure and of the same types.

    Attributes:
        name: the name of the function, with its file and line.
        form: its calls of kernels in their canonical form.
        stages: the calls of programs that it is: one, unless it has loops that run in slices.
        stage_types: the types of the results of each.
        returned: the stage that each result is of, and its index there.
        inputs: what the program takes.
        types: the types of its results.
        structure: the structure of what the function returns.
        aliases: the leaves of what it returns that are arrays which it writes to, or views of them, by their indices.
        writes: the arrays that it writes to; their values are the last results.
        constants: the keys of the inputs; equal ones are equal inputs.
        bases: the arrays on the mesh among the inputs, which are not kept there by the program.
        graph: its calls.
        bodies: the graphs that they run.
        exact: whether the results are those of its calls one by one, bit for bit.
    """

    name: str
    form: Graph
    stages: tuple[Stage, ...]
    stage_types: tuple[tuple[Array, ...], ...]
    returned: tuple[Value, ...]
    inputs: tuple[Input, ...]
    types: tuple[Array, ...]
    structure: Structure
    aliases: Mapping[int, Alias]
    writes: tuple[WriteTarget, ...]
    constants: tuple[Hashable, ...]
    bases: tuple[weakref.ref[ArrayBase] | None, ...]
    graph: TracedGraph
    bodies: Bodies
    exact: bool

    @property
    def key(self) -> str:
        """The digest of the form, hexadecimal; equal for functions that make the same calls in other words."""
        return self.form.digest

    @cached_property
    def large_constants(self) -> tuple[int, ...]:
        """The indices of the operands that are arrays of this process which are kept on the mesh."""
        sizes = {i: item.array.nbytes for i, item in enumerate(self.inputs) if item.array is not None}
        return tuple(sizes) if sum(sizes.values()) > MAX_CONSTANT_BYTES else ()

    def specs_of(self, stage: int, out_specs: Sequence[Any] | None) -> list[Any] | None:
        """Returns the specs of a stage's results.

        Args:
            stage: its index.
            out_specs: the specs of the program's results.
        """
        if not out_specs:
            return None
        computed = len(self.returned) - len(self.writes)  # before the values that are written
        count = computed + len(self.aliases)
        if len(out_specs) > count:
            raise InvalidParameterError(
                f"out_specs has {len(out_specs)} specs, and {self.name} returns {count} arrays; give at most one for "
                "each",
                field="out_specs",
            )
        results = iter(self.returned)
        specs = {}
        for i, spec in enumerate(out_specs):
            alias = self.aliases.get(i)
            if alias is not None and alias.steps and spec is not None:
                raise InvalidParameterError(
                    f"out_specs[{i}] is {spec}, and that result is a view of an array that {self.name} changes; give "
                    "None, or return a copy",
                    field="out_specs",
                )
            result = next(results) if alias is None else self.returned[computed + alias.write]
            if alias is None or spec is not None:
                specs[result] = spec
        return [specs.get(Value(stage, i)) for i in range(len(self.stages[stage].results))]

    def located(self, stage: int, error: ShardcallError) -> ShardcallError:
        """Returns an error of a stage whose message names the lines of calls, where that of the server names nodes."""
        return located(error, self._calls(stage), self.bodies)

    def with_lines(self, stage: int, plan: Plan) -> Plan:
        """Returns the plan of a stage with the lines of its steps."""
        return replace(plan, steps=with_lines(plan.steps, self._calls(stage), self.bodies))

    def _calls(self, stage: int) -> list[tuple[Node, str]]:
        calls, part = self.graph.calls, self.stages[stage]
        if part.nodes:
            return [calls[i] for i in part.nodes]
        return self.bodies[part.graph].calls if part.graph in self.bodies else calls

    def repeated(self, carried: tuple[int, ...]) -> TracedProgram:
        """Returns a program that runs this one several times; its last operand is the number of iterations.

        Args:
            carried: for each result the operand that it becomes, or -1.
        """
        results = tuple(Value(0, i) for i in range(len(self.types)))
        operands = tuple(Value(-1, i) for i in range(len(self.inputs) + 1))
        stage = Stage({"graph": self.form, "carried": carried}, operands, results)
        return replace(self, stages=_stages([stage], exact=self.exact), stage_types=(self.types,), returned=results)

    def operands(self, leaves: Sequence[Any], objects: Sequence[Any]) -> list[Any] | None:
        """Returns the operands of a call; None if the program does not fit it, and the function is to be traced again.

        Args:
            leaves: the leaves of the arguments.
            objects: the caller's objects that they are.
        """
        operands = []
        for item, base in zip(self.inputs, self.bases, strict=True):
            value = leaves[item.leaf] if item.leaf is not None else item.array
            if base is not None and (alive := base()) is not None:
                value = RemoteArray._of(alive.current)
            elif item.is_base:
                assert item.leaf is not None
                value = RemoteArray._of(objects[item.leaf]._store.current)
            elif item.number is not None:
                value = _number(item, leaves)
            if value is None:
                return None
            operands.append(value)
        return operands


def _number(item: Input, leaves: Sequence[Any]) -> Any:
    assert item.number is not None
    try:
        value = item.number(leaves)
        array = np.asarray(value, None if item.is_alone else item.array_type.dtype)
        return array if type(value) is item.python_type and array.dtype == item.array_type.dtype else None
    except ArithmeticError:
        return None  # the trace raises it, or takes another type


def program_of(
    trace: Trace,
    results: Sequence[TracedArray],
    structure: Structure,
    aliases: Mapping[int, Alias],
    writes: Sequence[WriteTarget],
    *,
    is_body: bool = False,
) -> TracedProgram:
    """Returns the program of a trace.

    Args:
        trace: the trace.
        results: the leaves of what the function returned but the aliases, and the values that it writes.
        structure: the structure of what it returned.
        aliases: as of `TracedProgram`.
        writes: as of `TracedProgram`.
        is_body: whether it is to be the body of a loop, so that loops in it do not run in slices.

    Raises:
        TracingError: for a program beyond the limits, and one without results.
    """
    if not results:
        raise TracingError(f"{trace.name} returns no array; return what its caller is to see")
    form = trace.program_form(results)
    graph, used = form.graph, list(form.inputs)
    inputs = [trace.inputs[i] for i in used]
    check_limits(trace.name, graph, inputs, max_values=MAX_ITEMS if is_body else MAX_VALUES)
    stages = [Stage({"graph": graph}, tuple(Value(-1, i) for i in range(len(inputs))), graph.results)]
    returned = [Value(0, i) for i in range(len(results))]
    if not is_body and any(map(is_stage, graph.nodes)):
        stages = stages_of(graph)
        returned = [result_of(value, stages) for value in graph.results]
    traced = trace.graph_of(form)
    keys = list(trace.keys)
    bases = (None if item.base is None else weakref.ref(item.base) for item in inputs)
    return TracedProgram(
        trace.name,
        graph,
        _stages(stages, exact=trace.exact),
        tuple(tuple(map(traced.type_of, stage.results)) for stage in stages),
        tuple(returned),
        tuple(replace(item, base=None) for item in inputs),
        tuple(result.type for result in results),
        structure,
        aliases,
        tuple(writes),
        tuple(keys[i] for i in used),
        tuple(bases),
        traced,
        trace.bodies,
        trace.exact,
    )


def _stages(stages: Sequence[Stage], *, exact: bool) -> tuple[Stage, ...]:
    """Returns the stages of a program, exact ones if it is."""
    if not exact:
        return tuple(stages)
    return tuple(replace(stage, parameters={**stage.parameters, "exact": True}) for stage in stages)


def check_limits(name: str, graph: Graph, inputs: Sequence[Input], *, max_values: int) -> None:
    """Checks the size of a program.

    Args:
        name: the name of the function.
        graph: its calls.
        inputs: what they take.
        max_values: the maximum number of inputs, and of results.

    Raises:
        TracingError: if it is too large.
    """
    smaller = "trace a smaller part of it"
    if graph.node_count > MAX_NODES:
        raise TracingError(
            f"{name} has {graph.node_count} calls of kernels, and a program at most {MAX_NODES:,}; write a loop of "
            f"Python as xp.fori_loop, call .repeat, or {smaller}"
        )
    if graph.depth > MAX_DEPTH:
        raise TracingError(
            f"{name} has {graph.depth} loops, branches and derivatives one in the other, and a program at most "
            f"{MAX_DEPTH}; {smaller}"
        )
    if len(inputs) > max_values or len(graph.results) > max_values:
        raise TracingError(
            f"{name} takes {len(inputs)} arrays and numbers, arguments, indices and constants together, and returns "
            f"{len(graph.results)}; a program has at most {MAX_VALUES:,} of each, and the body of a loop, a branch or "
            f"a function that is transformed {MAX_ITEMS}: join some, or {smaller}"
        )
    if (nbytes := to_message(graph).ByteSize()) > MAX_BYTES:
        raise TracingError(
            f"{name} is described by {human(nbytes)}, and a program by at most {human(MAX_BYTES)}; {smaller}"
        )
