"""Scans: a graph that runs once for each row of arrays, in one program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding

from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.functions.checks import boolean, integer, integers, program
from shardcall_core.functions.signature import OperandInfo, ParameterInfo, ParameterValues, Signature
from shardcall_core.graphs.graph import Graph
from shardcall_core.layouts.layout import ArrayType, MeshAxes, OperandTypes, Spec, Specs, required
from shardcall_server.kernels.core.blocks import partition_spec
from shardcall_server.kernels.core.kernel import Kernel, Problem, Program, Strategy
from shardcall_server.kernels.core.reproducibility import Reproducibility
from shardcall_server.kernels.graphs.bodies import GraphBodies, all_resharded, resharded
from shardcall_server.kernels.graphs.loop import GraphLoop, check_carried
from shardcall_server.kernels.graphs.plan import GraphPlan
from shardcall_server.kernels.graphs.vmap import without_axis


@dataclass(frozen=True)
class ScanParameters:
    """The parameters of `ScanKernel`.

    Attributes:
        graph: the graph of one iteration.
        carried: for each result the operand that it becomes in the next iteration, -1 for one that is stacked.
        scanned: the operands from which an iteration takes one row.
        length: the number of iterations.
        reverse: True to begin with the last row.
    """

    graph: Graph
    carried: tuple[int, ...]
    scanned: tuple[int, ...]
    length: int
    reverse: bool


class ScanKernel(Kernel[ScanParameters]):
    """A graph that runs once for each row of some operands, as ``jax.lax.scan``; only a node of graphs.

    Sharding: the first axis of operands that are scanned and of results that are stacked is not sharded.

    Args:
        bodies: graphs of the kernels of nodes.
    """

    name = "scan"
    version = 3
    summary = "A graph that runs once for each row of arrays."
    operands = (OperandInfo("inputs", "The inputs of the graph, complete ones.", optional=True, repeated=True),)
    parameters = (
        ParameterInfo("graph", "The graph of one iteration."),
        ParameterInfo("carried", "For each result the operand that it becomes, or -1 to stack it."),
        ParameterInfo("scanned", "The operands from which an iteration takes one row.", ()),
        ParameterInfo("length", "The number of iterations."),
        ParameterInfo("reverse", "True to begin with the last row.", default=False),
    )
    reproducibility = Reproducibility.PER_CALL

    def __init__(self, bodies: GraphBodies) -> None:
        self._bodies = bodies
        self.strategies = (  # type: ignore[misc]  # with these graphs
            Strategy("composed", "A loop in the program. Serves every layout.", lambda _: None, self._build),
        )

    def validate(self, operands: OperandTypes, parameters: ParameterValues) -> Signature[ScanParameters]:
        """Checks the graph, and determines the results' types.

        Raises:
            CallError: for what a graph refuses, and for operands without as many rows as there are iterations.
        """
        parsed = ScanParameters(
            program(parameters, "graph"),
            integers(parameters, "carried"),
            integers(parameters, "scanned"),
            integer(parameters, "length"),
            boolean(parameters, "reverse"),
        )
        used = parsed.graph.input_count
        if len(operands) < used:
            raise CallError(
                Reason.OPERAND_COUNT,
                f"the graph has {used} inputs and {len(operands)} operands came; give one for each",
                field="operands",
            )
        rows = _rows(operands, parsed)
        results = self._bodies.results(parsed.graph, rows[:used])
        check_carried(GraphLoop(parsed.carried), used, rows, results)
        stacked = tuple(
            result if index >= 0 else ArrayType((parsed.length, *result.shape), result.dtype)
            for index, result in zip(parsed.carried, results, strict=True)
        )
        return Signature(parsed, stacked, tuple(self._bodies.types(parsed.graph, rows[:used]).checks))

    def work_bytes(self, operands: OperandTypes, signature: Signature[ScanParameters]) -> int:
        """Returns the bytes of an iteration, times their number."""
        parameters = signature.parameters
        rows = _rows(operands, parameters)[: parameters.graph.input_count]
        return self._bodies.types(parameters.graph, rows).work_bytes * parameters.length

    def default_in_specs(
        self, operands: OperandTypes, parameters: ScanParameters, in_specs: Specs, mesh: MeshAxes, strategy: str
    ) -> Specs:
        """Fills in unset specs as the kernels in the graph do; the first axis of scanned operands is not sharded."""
        rows, used = _rows(operands, parameters), parameters.graph.input_count
        requested = [_row_spec(i, spec, parameters, mesh) for i, spec in enumerate(in_specs)]
        plan = self._bodies.plan(parameters.graph, rows[:used], tuple(requested[:used]), mesh)
        first = dict(zip(parameters.carried, parameters.graph.results, strict=True))
        inner = (*plan.in_specs, *(requested[i] or plan.specs[first[i]] for i in range(used, len(rows))))
        return tuple(
            spec or (((), *row_spec) if i in parameters.scanned else row_spec)
            for i, (spec, row_spec) in enumerate(zip(in_specs, inner, strict=True))
        )

    def default_out_specs(self, problem: Problem[ScanParameters], strategy: str) -> Specs:
        """Shards each result as an iteration does, and not along the axis of iterations."""
        carried = problem.parameters.carried
        defaults = (
            spec if i >= 0 else ((), *spec) for i, spec in zip(carried, self._result_specs(problem), strict=True)
        )
        return tuple(
            default if spec is None else spec for default, spec in zip(defaults, problem.out_specs, strict=True)
        )

    def is_reproducible(self, problem: Problem[ScanParameters]) -> bool:
        """Returns True if the results of all nodes are reproducible."""
        return all(kernel.is_reproducible(of_node) for kernel, of_node in self.parts(problem))

    def parts(self, problem: Problem[ScanParameters]) -> Sequence[tuple[Kernel, Problem]]:
        """Returns the kernels of the nodes, each with its problem."""
        used = problem.parameters.graph.input_count
        rows, specs = self._row_types(problem)
        return self._bodies.parts(problem.parameters.graph, rows[:used], specs[:used], problem.mesh)

    def plans(self, problem: Problem[ScanParameters]) -> Sequence[GraphPlan]:
        """Returns the plan of the graph."""
        used = problem.parameters.graph.input_count
        rows, specs = self._row_types(problem)
        return (self._bodies.plan(problem.parameters.graph, rows[:used], specs[:used], problem.mesh),)

    def _row_types(self, problem: Problem[ScanParameters]) -> tuple[tuple[ArrayType, ...], tuple[Spec, ...]]:
        """Returns the types of the operands in one iteration, and their specs."""
        rows = _rows(problem.operands, problem.parameters)
        specs = (_row_spec(i, spec, problem.parameters, problem.mesh) for i, spec in enumerate(problem.in_specs))
        return rows, tuple(map(required, specs))

    def _result_specs(self, problem: Problem[ScanParameters]) -> list[Spec]:
        """Returns the spec of each result in one iteration."""
        used = problem.parameters.graph.input_count
        rows, specs = self._row_types(problem)
        result_specs = self._bodies.result_specs(problem.parameters.graph, rows[:used], specs[:used], problem.mesh)
        return [spec if i < 0 else specs[i] for spec, i in zip(result_specs, problem.parameters.carried, strict=True)]

    def _build(self, problem: Problem[ScanParameters], mesh: jax.sharding.Mesh) -> Program:
        parameters, axes, results = problem.parameters, problem.mesh, self._result_specs(problem)
        used = parameters.graph.input_count
        rows, row_specs = self._row_types(problem)
        inner = self._bodies.program(parameters.graph, rows[:used], row_specs[:used], results, axes, mesh)
        placed = [NamedSharding(mesh, partition_spec(spec)) for spec in results]
        is_carried = [index >= 0 for index in parameters.carried]
        specs = [spec if carried else ((), *spec) for carried, spec in zip(is_carried, results, strict=True)]

        def program(*arrays: jax.Array) -> tuple[jax.Array, ...]:
            operands = list(arrays)
            for i in parameters.scanned:
                has, needs = required(problem.in_specs[i]), ((), *row_specs[i])
                operands[i] = resharded(operands[i], required(problem.operands[i]), has, needs, axes, mesh)
            xs = [operands[i] for i in parameters.scanned]
            indices = [index for index in parameters.carried if index >= 0]

            def body(
                state: tuple[list[jax.Array], jax.Array], row: list[jax.Array]
            ) -> tuple[tuple[list[jax.Array], jax.Array], list[jax.Array]]:
                values, flags = state
                inputs = list(operands)
                for i, value in zip((*parameters.scanned, *indices), (*row, *values), strict=True):
                    inputs[i] = value
                computed = inner(*inputs[:used])
                kept = list(map(lax.with_sharding_constraint, computed[: len(results)], placed))
                carry = [value for value, carried in zip(kept, is_carried, strict=True) if carried]
                stacked = [value for value, carried in zip(kept, is_carried, strict=True) if not carried]
                raised = computed[len(results) :]
                return (carry, flags | jnp.stack(raised) if raised else flags), stacked

            first = [operands[i] for i in indices]
            count = len(problem.checks)
            state = (first, jnp.zeros(count, bool))
            (carry, flags), stacked = lax.scan(body, state, xs, length=parameters.length, reverse=parameters.reverse)
            last, stacked_rows = iter(carry), iter(stacked)
            ordered = [next(last) if carried else next(stacked_rows) for carried in is_carried]
            moved = all_resharded(ordered, problem.results, specs, problem.out_specs, axes, mesh)
            return (*moved, *(flags[i] for i in range(count)))

        return program


def _rows(operands: OperandTypes, parameters: ScanParameters) -> tuple[ArrayType, ...]:
    """Returns the types of the operands in one iteration."""
    inputs = [required(operand) for operand in operands]
    if parameters.length < 0:
        raise CallError(Reason.INVALID_PARAMETER, f"length={parameters.length}; give 0 or more", field="length")
    for i in parameters.scanned:
        if not 0 <= i < len(inputs) or i in parameters.carried or inputs[i].shape[:1] != (parameters.length,):
            raise CallError(
                Reason.INVALID_PARAMETER,
                f"scanned is {shorten(str(parameters.scanned))}; give indices of operands with {parameters.length} "
                "rows, the length, that no result becomes",
                field="scanned",
            )
    return tuple(
        replace(array_type, shape=array_type.shape[1:]) if i in parameters.scanned else array_type
        for i, array_type in enumerate(inputs)
    )


def _row_spec(index: int, spec: Spec | None, parameters: ScanParameters, mesh: MeshAxes) -> Spec | None:
    """Returns the spec of an operand in one iteration; a scanned one whose rows are sharded gets another sharding."""
    if spec is None or index not in parameters.scanned:
        return spec
    return without_axis(spec, 0, mesh)
