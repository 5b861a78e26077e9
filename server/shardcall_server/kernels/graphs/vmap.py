"""Batched graphs, which are computed for every index of an axis at once, in one program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import jax
import jax.numpy as jnp

from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.functions.checks import integer, integers, program
from shardcall_core.functions.signature import OperandInfo, ParameterInfo, ParameterValues, Signature
from shardcall_core.graphs.graph import Graph
from shardcall_core.layouts.layout import ArrayType, MeshAxes, OperandTypes, Spec, Specs, required, row_sharding
from shardcall_server.kernels.core.kernel import Kernel, Problem, Program, Strategy
from shardcall_server.kernels.core.reproducibility import Reproducibility
from shardcall_server.kernels.graphs.bodies import GraphBodies, all_resharded, resharded
from shardcall_server.kernels.graphs.plan import GraphPlan, nodes_of
from shardcall_server.kernels.stencils.stencil import StencilKernel

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class VmapParameters:
    """The parameters of `VmapKernel`.

    Attributes:
        graph: the graph of one index.
        in_axes: for each operand the axis that is mapped, -1 for an operand that every index uses completely.
        out_axes: for each result the axis that the results of all indices are stacked along.
        size: the length of the mapped axes.
    """

    graph: Graph
    in_axes: tuple[int, ...]
    out_axes: tuple[int, ...]
    size: int


class VmapKernel(Kernel[VmapParameters]):
    """A graph that is computed for every index of an axis at once, as ``jax.vmap``; only a node of graphs.

    The programs of the kernels in the graph are batched by JAX. A check of values refuses the call if it refuses
    any index.

    Sharding: the mapped axes are not sharded, the others as the kernels in the graph shard them.

    Args:
        bodies: graphs of the kernels of nodes.
    """

    name = "vmap"
    version = 3
    summary = "A graph that is computed for every index of an axis at once."
    operands = (OperandInfo("inputs", "The inputs of the graph, complete ones.", optional=True, repeated=True),)
    parameters = (
        ParameterInfo("graph", "The graph of one index."),
        ParameterInfo("in_axes", "For each operand the axis that is mapped, or -1."),
        ParameterInfo("out_axes", "For each result the axis that is made of the mapped one."),
        ParameterInfo("size", "The length of the mapped axes."),
    )
    reproducibility = Reproducibility.PER_CALL

    def __init__(self, bodies: GraphBodies) -> None:
        self._bodies = bodies
        self.strategies = (  # type: ignore[misc]  # with these graphs
            Strategy(
                "composed",
                "The batched programs of the nodes' kernels. Serves every layout.",
                self._refusal,
                self._build,
            ),
        )

    def validate(self, operands: OperandTypes, parameters: ParameterValues) -> Signature[VmapParameters]:
        """Checks the graph, and determines the results' types.

        Raises:
            CallError: for what a graph refuses, for axes that an operand or a result does not have, and for operands
                whose mapped axes do not have the size.
        """
        parsed = VmapParameters(
            program(parameters, "graph"),
            integers(parameters, "in_axes"),
            integers(parameters, "out_axes"),
            integer(parameters, "size"),
        )
        used = parsed.graph.input_count
        if len(operands) != used:
            raise CallError(
                Reason.OPERAND_COUNT,
                f"the graph has {used} inputs and {len(operands)} operands came; give one for each",
                field="operands",
            )
        rows = _rows(operands, parsed)
        results = self._bodies.results(parsed.graph, rows)
        axes = parsed.out_axes
        if len(axes) != len(results) or not all(
            0 <= axis <= result.ndim for axis, result in zip(axes, results, strict=True)
        ):
            raise CallError(
                Reason.INVALID_PARAMETER,
                f"out_axes is {shorten(str(axes))} and the results of one index are "
                f"{shorten(', '.join(map(str, results)))}; give one axis for each, from 0 to its number of axes",
                field="out_axes",
            )
        stacked = tuple(
            replace(result, shape=_inserted(result.shape, axis, parsed.size))
            for result, axis in zip(results, axes, strict=True)
        )
        return Signature(parsed, stacked, tuple(self._bodies.types(parsed.graph, rows).checks))

    def work_bytes(self, operands: OperandTypes, signature: Signature[VmapParameters]) -> int:
        """Returns the bytes of one index, times their number."""
        parameters = signature.parameters
        return self._bodies.types(parameters.graph, _rows(operands, parameters)).work_bytes * max(1, parameters.size)

    def default_in_specs(
        self, operands: OperandTypes, parameters: VmapParameters, in_specs: Specs, mesh: MeshAxes, strategy: str
    ) -> Specs:
        """Fills in unset specs as the kernels in the graph do; mapped axes are not sharded."""
        rows = _rows(operands, parameters)
        specs = tuple(without_axis(spec, axis, mesh) for spec, axis in zip(in_specs, parameters.in_axes, strict=True))
        plan = self._bodies.plan(parameters.graph, rows, specs, mesh)
        entries = zip(in_specs, plan.in_specs, parameters.in_axes, strict=True)
        return tuple(spec or with_axis(row_spec, axis) for spec, row_spec, axis in entries)

    def default_out_specs(self, problem: Problem[VmapParameters], strategy: str) -> Specs:
        """Shards each result as one index does, and not along the axis of indices."""
        entries = zip(self._computed_specs(problem), problem.out_specs, strict=True)
        return tuple(default if spec is None else spec for default, spec in entries)

    def is_reproducible(self, problem: Problem[VmapParameters]) -> bool:
        """Returns True if the results of all nodes are reproducible."""
        return all(kernel.is_reproducible(of_node) for kernel, of_node in self.parts(problem))

    def parts(self, problem: Problem[VmapParameters]) -> Sequence[tuple[Kernel, Problem]]:
        """Returns the kernels of the nodes, each with its problem for one index."""
        return self._bodies.parts(problem.parameters.graph, *_one(problem), problem.mesh)

    def plans(self, problem: Problem[VmapParameters]) -> Sequence[GraphPlan]:
        """Returns the plan of the graph of one index."""
        return (self._bodies.plan(problem.parameters.graph, *_one(problem), problem.mesh),)

    def _refusal(self, problem: Problem[VmapParameters]) -> str | None:
        """Returns why a graph cannot be batched; None if it can.

        XLA partitions some batched stencils incorrectly, with zeros in place of rows of another device (jaxlib 0.10.1).
        Only stencils that exchange their halos are batched.
        """
        for node in nodes_of(self.plans(problem)[0]):
            if not isinstance(node.kernel, StencilKernel) or node.strategy.name == "halo":
                continue
            free = replace(node.problem, out_specs=(None,) * len(node.problem.results))
            if node.kernel.choose(free)[0] == "halo":
                return (
                    f"strategy {node.strategy.name!r} of {node.kernel.name} cannot be batched; leave the strategy out"
                )
        return None

    def _result_specs(self, problem: Problem[VmapParameters]) -> list[Spec]:
        return self._bodies.result_specs(problem.parameters.graph, *_one(problem), problem.mesh)

    def _computed_specs(self, problem: Problem[VmapParameters]) -> list[Spec]:
        """Returns the spec of each result before it is moved to the one that the call sets."""
        entries = zip(self._result_specs(problem), problem.parameters.out_axes, strict=True)
        return [with_axis(spec, axis) for spec, axis in entries]

    def _build(self, problem: Problem[VmapParameters], mesh: jax.sharding.Mesh) -> Program:
        parameters, axes = problem.parameters, problem.mesh
        rows, specs = _one(problem)
        placed = [with_axis(required(spec), axis) for spec, axis in zip(specs, parameters.in_axes, strict=True)]
        one = self._bodies.program(parameters.graph, rows, specs, self._result_specs(problem), axes, mesh)
        computed_specs = self._computed_specs(problem)
        in_axes = [None if axis < 0 else axis for axis in parameters.in_axes]
        batched: Program = jax.vmap(
            lambda _, operands: one(*operands),  # the first argument has the size if no operand is mapped
            in_axes=(0, in_axes),
            out_axes=(*parameters.out_axes, *[0] * len(problem.checks)),
            spmd_axis_name=(),  # constraints leave the mapped axis unsharded, where None lets the compiler shard it
        )

        def program(*arrays: jax.Array) -> tuple[jax.Array, ...]:
            entries = zip(arrays, problem.operands, problem.in_specs, placed, strict=True)
            operands = [
                resharded(array, required(array_type), required(has), needs, axes, mesh)
                for array, array_type, has, needs in entries
            ]
            computed = batched(jnp.zeros(parameters.size), operands)
            count = len(problem.results)
            moved = all_resharded(computed[:count], problem.results, computed_specs, problem.out_specs, axes, mesh)
            return (*moved, *(jnp.any(flag) for flag in computed[count:]))

        return program


def without_axis(spec: Spec | None, axis: int, mesh: MeshAxes) -> Spec | None:
    """Returns the spec of the part of an array at one index of an axis; its rows are sharded if that axis was.

    Args:
        spec: the spec of the array; None for none.
        axis: the axis; negative for none.
        mesh: the mesh.
    """
    if spec is None or axis < 0:
        return spec
    return row_sharding(len(spec) - 1, mesh) if spec[axis] else (*spec[:axis], *spec[axis + 1 :])


def with_axis(spec: Spec, axis: int) -> Spec:
    """Returns the spec of an array whose part at each index of an axis has a spec; a negative axis stands for none."""
    return spec if axis < 0 else _inserted(spec, axis, ())


def _inserted(items: tuple[_Item, ...], axis: int, item: _Item) -> tuple[_Item, ...]:
    return (*items[:axis], item, *items[axis:])


def _rows(operands: OperandTypes, parameters: VmapParameters) -> tuple[ArrayType, ...]:
    """Returns the types of the operands at one index.

    Raises:
        CallError: for an operand without the mapped axis, or whose axis has another length.
    """
    inputs, axes, size = [required(operand) for operand in operands], parameters.in_axes, parameters.size
    if size < 0:
        raise CallError(Reason.INVALID_PARAMETER, f"size={size}; give 0 or more", field="size")
    if len(axes) != len(inputs) or not all(
        axis == -1 or (0 <= axis < array_type.ndim and array_type.shape[axis] == size)
        for axis, array_type in zip(axes, inputs, strict=True)
    ):
        raise CallError(
            Reason.INVALID_PARAMETER,
            f"in_axes is {shorten(str(axes))} and the operands are {shorten(', '.join(map(str, inputs)))}; give for "
            f"each an axis of length {size}, the size, or -1",
            field="in_axes",
        )
    return tuple(
        array_type if axis < 0 else replace(array_type, shape=(*array_type.shape[:axis], *array_type.shape[axis + 1 :]))
        for array_type, axis in zip(inputs, axes, strict=True)
    )


def _one(problem: Problem[VmapParameters]) -> tuple[tuple[ArrayType, ...], Specs]:
    """Returns the types of the operands at one index, and their specs."""
    entries = zip(problem.in_specs, problem.parameters.in_axes, strict=True)
    specs = tuple(without_axis(spec, axis, problem.mesh) for spec, axis in entries)
    return _rows(problem.operands, problem.parameters), specs
