"""Graphs as the bodies of kernels: their types, plans and programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding

from shardcall_core.graphs.graph import Constant, Graph, Value, bodies_of
from shardcall_core.layouts.layout import ArrayType, MeshAxes, Spec, Specs, padded_shape, required
from shardcall_server.kernels.core.bits import moved
from shardcall_server.kernels.core.blocks import fit, partition_spec
from shardcall_server.kernels.core.differentiation import is_differentiated
from shardcall_server.kernels.core.exactness import is_exact
from shardcall_server.kernels.core.kernel import Kernel, Problem, Program
from shardcall_server.kernels.graphs.derivatives import differentiable
from shardcall_server.kernels.graphs.plan import (
    GraphPlan,
    GraphTypes,
    Kernels,
    PlannedNode,
    plan_of,
    types_of,
)
from shardcall_server.kernels.graphs.region_programs import region_program
from shardcall_server.kernels.graphs.regions import FusedRegion, Placed, RegionPlanner, Step
from shardcall_server.kernels.graphs.sealing import is_sealed, sealed
from shardcall_server.kernels.graphs.step_scopes import scope_of

_MAX_PLANS = 64


class GraphBodies:
    """The types and plans of graphs of a set of kernels.

    Args:
        kernels: the kernels of nodes, by name.
    """

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self.types = lru_cache(maxsize=_MAX_PLANS)(self._types)
        self._planned = lru_cache(maxsize=_MAX_PLANS)(self._plan_and_steps)

    def plan(self, graph: Graph, inputs: tuple[ArrayType, ...], in_specs: Specs, mesh: MeshAxes) -> GraphPlan:
        """Returns the plan of a graph.

        Raises:
            CallError: as `plan_of`.
        """
        return self._planned(graph, inputs, in_specs, mesh)[0]

    def results(self, graph: Graph, inputs: tuple[ArrayType, ...]) -> tuple[ArrayType, ...]:
        """Returns the types of a graph's results.

        Raises:
            CallError: as `types_of`.
        """
        types = self.types(graph, inputs).types
        return tuple(types[value] for value in graph.results)

    def versions(self, graph: Graph) -> tuple[str, ...]:
        """Returns name and version of the kernels in a graph, in alphabetical order."""
        names = sorted(set(_names(graph)))
        return tuple(f"{name} {self._kernels[name].version}" for name in names)

    def result_specs(self, graph: Graph, inputs: tuple[ArrayType, ...], in_specs: Specs, mesh: MeshAxes) -> list[Spec]:
        """Returns the spec that each result of a graph has where it is computed."""
        plan = self.plan(graph, inputs, in_specs, mesh)
        return [plan.specs[value] for value in graph.results]

    def parts(
        self, graph: Graph, inputs: tuple[ArrayType, ...], in_specs: Specs, mesh: MeshAxes
    ) -> list[tuple[Kernel, Problem]]:
        """Returns the kernels of a graph, those of the graphs in it included, each with its problem."""
        nodes = self.plan(graph, inputs, in_specs, mesh).nodes
        return [part for node in nodes for part in node.kernel.parts(node.problem)]

    def program(
        self,
        graph: Graph,
        inputs: tuple[ArrayType, ...],
        in_specs: Specs,
        specs: Sequence[Spec],
        axes: MeshAxes,
        mesh: jax.sharding.Mesh,
    ) -> Program:
        """Makes the program of a graph.

        Args:
            graph: the graph.
            inputs: the types of its inputs.
            in_specs: the specs of its inputs.
            specs: the specs of its results.
            axes: the axes of the mesh.
            mesh: the mesh.
        """
        (plan, steps), results = self._planned(graph, inputs, in_specs, axes), graph.results
        result_types, types = self.results(graph, inputs), self.types(graph, inputs).types
        one_by_one: Sequence[Step] = range(len(plan.nodes))
        used = {value for node in plan.nodes for value in node.operands}
        programs: dict[Hashable, Program] = {}
        keys: list[Hashable] = []
        for i, node in enumerate(plan.nodes):
            is_used = tuple(Value(i, k) in used for k in range(len(node.problem.results)))
            key = node.kernel, node.strategy, node.problem, node.out_specs, is_used
            keys.append(key)
            if key not in programs:
                programs[key] = _program(node, is_used, mesh)

        regions = {step.first_step: step.form(plan, types) for step in steps if isinstance(step, FusedRegion)}
        counts = Counter([*keys, *regions.values()])

        def program(*arrays: jax.Array) -> tuple[jax.Array, ...]:
            values = {Value(-1, i): array for i, array in enumerate(arrays)}
            flags: dict[int, Sequence[jax.Array]] = {}
            # JAX traces and lowers equal nodes and equal regions once: a program of 200 calls of 4 kernels takes 0.2 s
            # from disk, and about 1 s without this. What equals no other is traced in less time without a function of
            # its own. Not across traces, since a program may be differentiated in one of them.
            jitted = {key: jax.jit(run) if counts[key] > 1 else run for key, run in programs.items()}
            for i in one_by_one if is_differentiated() else steps:
                if isinstance(i, FusedRegion):
                    inputs = [_placed(i, item, values, types, plan, axes, mesh) for item in i.inputs]
                    key = regions[i.first_step]
                    if key not in jitted:
                        run = region_program(i, plan, types, axes, mesh)
                        jitted[key] = jax.jit(run) if counts[key] > 1 else run
                    with jax.named_scope(scope_of(i.first_step)):
                        values.update(zip(i.outputs, jitted[key](*inputs), strict=True))
                    continue
                node = plan.nodes[i]
                with jax.named_scope(scope_of(i)):
                    computed = jitted[keys[i]](*_operands(node, plan, values, mesh))
                count = len(node.problem.results)
                flags[i] = computed[count:]
                values.update((Value(i, k), array) for k, array in enumerate(computed[:count]))
            moved_results = (
                resharded(values[value], array_type, plan.specs[value], spec, axes, mesh)
                for value, array_type, spec in zip(results, result_types, specs, strict=True)
            )
            # In the sequence of the nodes, as the checks are, which that of the steps may differ from.
            return (*moved_results, *(flag for i in sorted(flags) for flag in flags[i]))

        return program

    def _types(self, graph: Graph, inputs: tuple[ArrayType, ...]) -> GraphTypes:
        return types_of(graph, self._kernels, inputs)

    def _plan_and_steps(
        self, graph: Graph, inputs: tuple[ArrayType, ...], in_specs: Specs, mesh: MeshAxes
    ) -> tuple[GraphPlan, Sequence[Step]]:
        plan = plan_of(graph, self._kernels, inputs, in_specs, mesh)
        if mesh.device_count == 1:  # nothing is exchanged
            return plan, range(len(plan.nodes))
        steps = RegionPlanner(plan, self.types(graph, inputs).types, graph.results, mesh).steps()
        joined = (i for step in steps if isinstance(step, FusedRegion) for i in step.calls)
        return replace(plan, joined=frozenset(joined)), steps


def resharded(
    array: jax.Array, array_type: ArrayType, has: Spec, needs: Spec, axes: MeshAxes, mesh: jax.sharding.Mesh
) -> jax.Array:
    """Returns an array in another spec, padded as that needs."""
    if has == needs:
        return array
    shape = padded_shape(array_type.shape, needs, axes)
    return moved(lambda bits: fit(fit(bits, array_type.shape), shape), array, mesh=mesh, specs=(has, needs))


def _placed(
    region: FusedRegion,
    item: Placed,
    values: Mapping[Value, jax.Array],
    types: Mapping[Value, ArrayType],
    plan: GraphPlan,
    axes: MeshAxes,
    mesh: jax.sharding.Mesh,
) -> jax.Array:
    """Returns an input of a region in the layout that it needs."""
    value, spec = item
    with jax.named_scope(scope_of(region.first_taker(plan, item))):
        return resharded(values[value], types[value], plan.specs[value], spec, axes, mesh)


def all_resharded(
    arrays: Sequence[jax.Array],
    types: Sequence[ArrayType],
    has: Sequence[Spec],
    needs: Specs,
    axes: MeshAxes,
    mesh: jax.sharding.Mesh,
) -> tuple[jax.Array, ...]:
    """Returns arrays in other specs, and the arrays after them unchanged."""
    entries = zip(arrays[: len(types)], types, has, needs, strict=True)
    changed = (
        resharded(array, array_type, current, required(spec), axes, mesh)
        for array, array_type, current, spec in entries
    )
    return (*changed, *arrays[len(types) :])


def _names(graph: Graph) -> Iterator[str]:
    for node in graph.nodes:
        yield node.kernel
        for body in bodies_of(node):
            yield from _names(body)


def _program(node: PlannedNode, is_used: Sequence[bool], mesh: jax.sharding.Mesh) -> Program:
    """Makes the program of a node, whose results have the specs that they are moved to.

    Args:
        node: the node.
        is_used: for each result, True if other nodes take it.
        mesh: the mesh.
    """
    problem = node.problem
    compute = (
        node.strategy.build(problem, mesh) if any(result.nbytes for result in problem.results) else _nothing(problem)
    )
    result_specs = [required(spec) for spec in problem.out_specs]

    def program(*operands: jax.Array) -> tuple[jax.Array, ...]:
        run = differentiable(node.kernel, problem, compute, mesh) if is_differentiated() else compute
        computed = all_resharded(run(*operands), problem.results, result_specs, node.out_specs, problem.mesh, mesh)
        results = (
            _kept(node, k, array, mesh) if is_taken else array
            for k, (array, is_taken) in enumerate(zip(computed, is_used, strict=False))
        )
        return (*results, *computed[len(is_used) :])

    program.__name__ = node.kernel.name
    return program


def _nothing(problem: Problem) -> Program:
    """Makes the program of a call whose results have no elements.

    XLA refuses some collectives of empty arrays, and iterates over their sizes other than 0.
    """

    def program(*_: jax.Array) -> tuple[jax.Array, ...]:
        results = (jnp.zeros(problem.padded_result(i), result.dtype) for i, result in enumerate(problem.results))
        return (*results, *(jnp.zeros((), bool) for _ in problem.checks))

    return program


def _operands(
    node: PlannedNode, plan: GraphPlan, values: Mapping[Value, jax.Array], mesh: jax.sharding.Mesh
) -> list[jax.Array]:
    operand_types = [operand for operand in node.problem.operands if operand is not None]
    specs = [spec for spec in node.problem.in_specs if spec is not None]
    axes = node.problem.mesh
    return [
        jnp.asarray(_padded(value, spec, axes))
        if isinstance(value, Constant)
        else resharded(values[value], operand, plan.specs[value], spec, axes, mesh)
        for value, operand, spec in zip(node.operands, operand_types, specs, strict=True)
    ]


def _padded(constant: Constant, spec: Spec, axes: MeshAxes) -> np.ndarray:
    """Returns the array that a constant is, padded as a spec needs."""
    array = constant.array
    widths = [(0, n - m) for n, m in zip(padded_shape(array.shape, spec, axes), array.shape, strict=True)]
    return np.pad(array, widths) if any(n for _, n in widths) else array


def _kept(node: PlannedNode, index: int, array: jax.Array, mesh: jax.sharding.Mesh) -> jax.Array:
    """Returns a result of a node in the form that other nodes use."""
    if is_exact() and is_sealed(node.kernel.name, array.dtype):
        array = sealed(array)
    if mesh.size == 1:
        return array
    spec = partition_spec(node.out_specs[index])
    kept: jax.Array = lax.with_sharding_constraint(array, NamedSharding(mesh, spec))
    return kept
