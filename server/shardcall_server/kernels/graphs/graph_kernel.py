"""Graphs of kernel calls as one program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import jax

from shardcall_core.call_error import CallError, Reason
from shardcall_core.functions.checks import flag, integer, integers, program, text
from shardcall_core.functions.signature import OperandInfo, ParameterInfo, ParameterValues, Signature
from shardcall_core.graphs.graph import Graph, Value
from shardcall_core.layouts.layout import ArrayType, MeshAxes, OperandTypes, Spec, Specs, required
from shardcall_server.kernels.core.exactness import exactness
from shardcall_server.kernels.core.kernel import Kernel, Problem, Program, Strategy
from shardcall_server.kernels.core.reproducibility import Reproducibility, all_integers
from shardcall_server.kernels.graphs.bodies import GraphBodies, all_resharded
from shardcall_server.kernels.graphs.cond import CondKernel
from shardcall_server.kernels.graphs.loop import (
    GraphLoop,
    check_carried,
    check_count,
    check_times,
    iteration_limit,
    looped,
    times_check,
)
from shardcall_server.kernels.graphs.plan import GraphPlan, check_derivatives
from shardcall_server.kernels.graphs.scan import ScanKernel
from shardcall_server.kernels.graphs.transforms import (
    TRANSFORMS,
    check_dual_operands,
    check_transform,
    transformed,
    transformed_specs,
    transformed_types,
)
from shardcall_server.kernels.graphs.vmap import VmapKernel

_WORK_OF_DERIVATIVES = 4  # times the work of the graph


@dataclass(frozen=True)
class GraphParameters:
    """The parameters of `GraphKernel`.

    Attributes:
        graph: the graph.
        kernels: name and version of the kernels in it, in alphabetical order.
        carried: for each result the input that it becomes in the next iteration, -1 for none; empty without a loop.
        condition: the result that decides on another iteration; -1 for none.
        count: the number of iterations; 0 if it is an operand.
        transform: the transformation of the graph, one of `TRANSFORMS`; empty for none.
        wrt: the inputs that a derivative is with respect to.
        exact: whether the results are those of separate calls, bit for bit.
    """

    graph: Graph
    kernels: tuple[str, ...]
    carried: tuple[int, ...] = ()
    condition: int = -1
    count: int = 0
    transform: str = ""
    wrt: tuple[int, ...] = ()
    exact: bool = False

    @property
    def loop(self) -> GraphLoop:
        """The loop."""
        return GraphLoop(self.carried, self.condition, self.count)

    @property
    def has_times(self) -> bool:
        """True if the last operand is the number of iterations."""
        return bool(self.carried) and not self.count


class GraphKernel(Kernel[GraphParameters]):
    """A graph of kernel calls, run as one program; its operands are the inputs of the graph.

    Every node is computed by its kernel's own strategy, and the compiler fuses across nodes, by the rules of `jax.jit`:
    it may round differently than in separate calls. With ``exact`` results are equal to those of separate calls:
    results that the compiler would round differently are sealed (`sealing`). Flags of all nodes refuse the call.

    With ``carried`` the graph runs several times, as a loop in the program, and the last operand is their number. A
    result that becomes an input has its spec. Operands after the graph's inputs are the first values of results that
    the graph does not read. A call of such a graph runs in slices; in another graph it is a part of that program.

    With ``transform`` the program is a transformation of the graph by JAX, such as its gradient. A node of this kernel
    is a graph in the graph.

    Sharding: each kernel's, in order: an operand has the spec of the result that it is, and a result has the default of
    its kernel, or rows over all mesh axes if the kernel leaves the spec to the compiler.

    Args:
        kernels: the kernels of nodes, by name; nodes may also be loops (``graph``), ``scan``, ``cond`` and ``vmap``.
    """

    name = "graph"
    version = 4
    summary = "A graph of kernel calls, run as one program."
    operands = (
        OperandInfo("inputs", "The inputs of the graph; of a loop also times, last.", optional=True, repeated=True),
    )
    parameters = (
        ParameterInfo("graph", "The graph, a Program in its canonical form."),
        ParameterInfo("carried", "Of a loop: for each result the input that it becomes, or -1.", ()),
        ParameterInfo("condition", "Of a loop: the bool result that is true while there is another iteration.", -1),
        ParameterInfo("count", "Of a loop in a graph: the number of iterations; 0 for the operand times.", 0),
        ParameterInfo("transform", f"A transformation of the graph: {', '.join(TRANSFORMS)}; none if empty.", ""),
        ParameterInfo("wrt", "Of a derivative: the indices of the inputs that it is with respect to.", ()),
        ParameterInfo("exact", "True for the results of separate calls, bit for bit.", default=False),
    )
    reproducibility = Reproducibility.PER_CALL

    def __init__(self, kernels: Mapping[str, Kernel]) -> None:
        every = dict(kernels)
        self._bodies = GraphBodies(every)
        within = (self, ScanKernel(self._bodies), CondKernel(self._bodies), VmapKernel(self._bodies))
        every.update({kernel.name: kernel for kernel in within})
        self.strategies = (  # type: ignore[misc]  # with this graph's kernels
            Strategy(
                "composed",
                "The strategies of the nodes' kernels, in one program. Serves every layout.",
                lambda _: None,
                self._build,
            ),
        )

    def validate(self, operands: OperandTypes, parameters: ParameterValues) -> Signature[GraphParameters]:
        """Checks a graph, node by node, and determines its results' types.

        Raises:
            CallError: for a parameter that is no graph, for inputs that it does not have, and for calls that the
                kernels of its nodes refuse.
        """
        parsed = GraphParameters(
            program(parameters, "graph"),
            (),
            integers(parameters, "carried"),
            integer(parameters, "condition"),
            integer(parameters, "count"),
            text(parameters, "transform"),
            integers(parameters, "wrt"),
            flag(parameters, "exact"),
        )
        used = parsed.graph.input_count
        check_transform(parsed.transform, parsed.wrt, used)
        check_count(parsed.loop)
        if parsed.has_times and operands:
            check_times(required(operands[-1]))
        present = _inputs(operands, parsed)
        _check_count(parsed, used, len(present))
        inputs = present[:used]
        graph_types, results = self._bodies.types(parsed.graph, inputs), self._bodies.results(parsed.graph, inputs)
        checks = list(graph_types.checks)
        if parsed.carried:
            check_carried(parsed.loop, used, present, results)
        if parsed.has_times:
            checks.append(times_check(parsed.loop, graph_types.work_bytes))
        if parsed.transform:
            operand_types, results = transformed_types(parsed.transform, parsed.wrt, inputs, results)
            check_dual_operands(operand_types, present)
        return Signature(replace(parsed, kernels=self._bodies.versions(parsed.graph)), results, tuple(checks))

    def work_bytes(self, operands: OperandTypes, signature: Signature[GraphParameters]) -> int:
        """Returns the bytes of an iteration, times their number, or the largest number if it is an operand."""
        parameters = signature.parameters
        inputs = _inputs(operands, parameters)[: parameters.graph.input_count]
        iteration_bytes = self._bodies.types(parameters.graph, inputs).work_bytes
        if parameters.transform:
            iteration_bytes *= _WORK_OF_DERIVATIVES
        return iteration_bytes * (parameters.count or (iteration_limit(iteration_bytes) if parameters.carried else 1))

    def default_in_specs(
        self, operands: OperandTypes, parameters: GraphParameters, in_specs: Specs, mesh: MeshAxes, strategy: str
    ) -> Specs:
        """Fills in unset specs: an input has the one that the first kernel that uses it fills in."""
        inputs, graph = _inputs(operands, parameters), parameters.graph
        used = graph.input_count
        plan = self._bodies.plan(parameters.graph, inputs[:used], in_specs[:used], mesh)
        if parameters.wrt:
            check_derivatives(plan, {Value(-1, i) for i in parameters.wrt})
        results = [plan.specs[value] for value in graph.results]
        defaults, _ = transformed_specs(parameters.transform, parameters.wrt, plan.in_specs, results, plan.results)
        if parameters.carried:
            first = dict(zip(parameters.carried, results, strict=True))
            defaults = (*defaults, *(first[i] for i in range(used, len(inputs))), *[()] * parameters.has_times)
        return tuple(default if spec is None else spec for spec, default in zip(in_specs, defaults, strict=True))

    def default_out_specs(self, problem: Problem[GraphParameters], strategy: str) -> Specs:
        """Shards each result as its kernel does."""
        defaults = self._computed_specs(problem)
        return tuple(
            default if spec is None else spec for default, spec in zip(defaults, problem.out_specs, strict=True)
        )

    def is_reproducible(self, problem: Problem[GraphParameters]) -> bool:
        """Returns True if the results of all nodes are reproducible, and nothing is rounded in another way.

        Derivatives are, and floating-point numbers in a program that is not exact.
        """
        parameters = problem.parameters
        return parameters.transform in ("", "checkpoint") and all(
            kernel.is_reproducible(of_node)
            and (parameters.exact or all_integers((*of_node.operands, *of_node.results)))
            for kernel, of_node in self.parts(problem)
        )

    def parts(self, problem: Problem[GraphParameters]) -> Sequence[tuple[Kernel, Problem]]:
        """Returns the kernels of the nodes, each with its problem."""
        return self._bodies.parts(*_body(problem), problem.mesh)

    def plans(self, problem: Problem[GraphParameters]) -> Sequence[GraphPlan]:
        """Returns the plan of the graph, whose calls a derivative takes one by one."""
        plan = self._bodies.plan(*_body(problem), problem.mesh)
        is_derivative = problem.parameters.transform not in ("", "checkpoint")
        return (replace(plan, joined=frozenset()) if is_derivative else plan,)

    def build_slice(self, problem: Problem[GraphParameters], mesh: jax.sharding.Mesh) -> Program | None:
        """Makes the program of a slice of a loop whose number of iterations is an operand."""
        return self._build(problem, mesh, is_sliced=True) if problem.parameters.has_times else None

    def _result_specs(self, problem: Problem[GraphParameters]) -> list[Spec]:
        """Returns the spec of each result of the graph."""
        specs = self._bodies.result_specs(*_body(problem), problem.mesh)
        carried = problem.parameters.carried or (-1,) * len(specs)
        return [spec if i < 0 else required(problem.in_specs[i]) for spec, i in zip(specs, carried, strict=True)]

    def _computed_specs(self, problem: Problem[GraphParameters]) -> tuple[Spec, ...]:
        """Returns the spec of each result of the call before it is moved to the one that the call sets."""
        (plan,), parameters = self.plans(problem), problem.parameters
        return transformed_specs(
            parameters.transform, parameters.wrt, plan.in_specs, self._result_specs(problem), plan.results
        )[1]

    def _build(self, problem: Problem[GraphParameters], mesh: jax.sharding.Mesh, *, is_sliced: bool = False) -> Program:
        specs, body = self._result_specs(problem), _body(problem)
        inner = self._bodies.program(*body, specs, problem.mesh, mesh)
        if problem.parameters.carried:
            limit = None if is_sliced else iteration_limit(self._bodies.types(*body[:2]).work_bytes)
            once = inner
            inner = looped(
                lambda *arrays: once(*arrays[: len(body[1])]),
                problem.parameters.loop,
                problem.results,
                specs,
                problem.mesh,
                mesh,
                limit,
            )

        (plan,), parameters, operands = self.plans(problem), problem.parameters, tuple(map(required, problem.operands))
        inner = transformed(inner, parameters.transform, parameters.wrt, plan.results, specs, problem.mesh)
        duals, computed_specs = transformed_specs(
            parameters.transform, parameters.wrt, plan.in_specs, specs, plan.results
        )
        in_specs = duals if parameters.transform else problem.in_specs

        def program(*arrays: jax.Array) -> tuple[jax.Array, ...]:
            with exactness(on=parameters.exact):
                return computed(*arrays)

        def computed(*arrays: jax.Array) -> tuple[jax.Array, ...]:
            placed = all_resharded(
                arrays, operands, tuple(map(required, problem.in_specs)), in_specs, problem.mesh, mesh
            )
            return all_resharded(inner(*placed), problem.results, computed_specs, problem.out_specs, problem.mesh, mesh)

        return program


def _check_count(parameters: GraphParameters, used: int, count: int) -> None:
    if count < used or (count > used and not (parameters.carried or parameters.transform)):
        raise CallError(
            Reason.OPERAND_COUNT,
            f"the graph has {used} inputs and {count} operands came; give one for each"
            f"{', and times' if parameters.has_times else ''}",
            field="operands",
        )
    if parameters.carried and parameters.transform:
        raise CallError(
            Reason.INVALID_PARAMETER,
            f"carried and transform={parameters.transform!r} were given; give one of them",
            field="carried",
        )


def _inputs(operands: OperandTypes, parameters: GraphParameters) -> tuple[ArrayType, ...]:
    """Returns the types of the operands without the number of iterations."""
    inputs = tuple(map(required, operands))
    return inputs[:-1] if parameters.has_times else inputs


def _body(problem: Problem[GraphParameters]) -> tuple[Graph, tuple[ArrayType, ...], Specs]:
    """Returns the graph of a call, the types of its inputs and their specs."""
    graph = problem.parameters.graph
    used = graph.input_count
    return graph, tuple(map(required, problem.operands[:used])), problem.in_specs[:used]
