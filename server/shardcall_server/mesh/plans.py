"""Descriptions of programs and kernels as the contract's messages."""

from __future__ import annotations

import math
from collections.abc import Mapping

from shardcall.v1 import kernel_pb2
from shardcall_core.call_error import shorten
from shardcall_core.functions.signature import REQUIRED, Signature
from shardcall_core.graphs.graph import Constant, Value
from shardcall_core.layouts.layout import ArrayType, MeshAxes, Spec, block_shape, padded_shape
from shardcall_server.compilation import analysis
from shardcall_server.compilation.keys import KernelKey
from shardcall_server.compilation.program import Placement, Program
from shardcall_server.kernels.core.element_types import held_type
from shardcall_server.kernels.core.kernel import Kernel
from shardcall_server.kernels.core.reproducibility import Reproducibility
from shardcall_server.kernels.graphs.plan import GraphPlan, PlannedNode, plans_within
from shardcall_server.link.wire import encode_array_type, encode_mesh, encode_spec
from shardcall_server.mesh.requests import encode_parameter

_REPRODUCIBILITY = {
    Reproducibility.ALWAYS: kernel_pb2.REPRODUCIBILITY_ALWAYS,
    Reproducibility.INTEGERS: kernel_pb2.REPRODUCIBILITY_INTEGERS,
    Reproducibility.PER_CALL: kernel_pb2.REPRODUCIBILITY_PER_CALL,
    Reproducibility.NOT_PROMISED: kernel_pb2.REPRODUCIBILITY_NOT_PROMISED,
}


def describe_plan(program: Program, key: KernelKey, text: str) -> kernel_pb2.Plan:
    """Returns the plan of a compiled call."""
    resolved, problem = program.resolved, program.resolved.problem
    memory, exchanged = analysis.memory(program.compiled), analysis.bytes_by_step(text)
    return kernel_pb2.Plan(
        kernel=resolved.kernel.name,
        mesh=encode_mesh(problem.mesh, resolved.device_ids),
        operands=[
            _placement(program, operand, placement, spec)
            for operand, placement, spec in zip(problem.operands, program.operands, problem.in_specs, strict=True)
        ],
        results=[
            _placement(program, result, placement, spec)
            for result, placement, spec in zip(problem.results, program.results, problem.out_specs, strict=True)
        ],
        strategy=resolved.strategy.name,
        strategy_reason=resolved.reason,
        collectives=[
            kernel_pb2.Collective(kind=c.operation, count=c.count, bytes_per_device=c.bytes_per_device)
            for c in analysis.collectives(text)
        ],
        flops_per_device=analysis.flops(program.compiled, text),
        memory=kernel_pb2.DeviceMemory(
            argument_bytes=memory.argument_bytes,
            output_bytes=memory.output_bytes,
            temp_bytes=memory.temp_bytes,
        ),
        key_digest=key.digest(),
        key=[kernel_pb2.KeyPart(label=label, value=value) for label, value in key.parts()],
        reproducible=resolved.kernel.is_reproducible(problem),
        steps=[step for graph in plans_within(resolved.kernel, problem) for step in _steps(graph, exchanged)],
        accessed_bytes_per_device=analysis.accessed_bytes(program.compiled),
        fusions=analysis.fusions(text),
    )


def _steps(
    graph: GraphPlan, exchanged: Mapping[tuple[int, ...], int], path: tuple[int, ...] = ()
) -> list[kernel_pb2.PlanStep]:
    """Returns the steps of a graph.

    Args:
        graph: the graph.
        exchanged: the bytes that the devices exchange for each step.
        path: the indices of the steps that run the graph.
    """
    return [
        _step(node, "together" if i in graph.joined else node.strategy.name, exchanged, (*path, i))
        for i, node in enumerate(graph.nodes)
    ]


def _step(
    node: PlannedNode, strategy: str, exchanged: Mapping[tuple[int, ...], int], path: tuple[int, ...]
) -> kernel_pb2.PlanStep:
    problem, count = node.problem, len(node.operands)
    types = [array_type for array_type in (*problem.operands, *problem.results) if array_type is not None]
    specs = [spec for spec in (*problem.in_specs, *node.out_specs) if spec is not None]
    arrays = [
        describe_placement(array_type, padded_shape(array_type.shape, spec, problem.mesh), spec, problem.mesh)
        for array_type, spec in zip(types, specs, strict=True)
    ]
    block_bytes = (
        math.prod(placed.block_shape) * held_type(array_type.dtype).itemsize
        for placed, array_type in zip(arrays, types, strict=True)
    )
    signature = Signature(problem.parameters, problem.results, problem.checks)
    return kernel_pb2.PlanStep(
        kernel=node.kernel.name,
        strategy=strategy,
        operands=arrays[:count],
        sources=list(map(_source, node.operands)),
        results=arrays[count:],
        bytes_per_device=sum(block_bytes),
        flops_per_device=2 * node.kernel.product_count(problem.operands, signature) / problem.mesh.device_count,
        bodies=[
            kernel_pb2.PlanSteps(steps=_steps(graph, exchanged, path)) for graph in plans_within(node.kernel, problem)
        ],
        exchanged_bytes_per_device=sum(n for steps, n in exchanged.items() if steps[: len(path)] == path),
    )


def _source(item: Value | Constant) -> kernel_pb2.PlanSource:
    if isinstance(item, Constant):
        return kernel_pb2.PlanSource(constant=shorten(str(item.array)))
    return kernel_pb2.PlanSource(step=None if item.node < 0 else item.node, index=item.number)


def _placement(
    program: Program, array: ArrayType | None, placement: Placement | None, spec: Spec | None
) -> kernel_pb2.ArrayPlacement:
    if array is None or placement is None:
        return kernel_pb2.ArrayPlacement()
    if spec is None:
        spec = chosen_spec(placement, array.ndim)
    return describe_placement(array, placement.padded, spec, program.resolved.problem.mesh)


def describe_placement(
    array: ArrayType, padded: tuple[int, ...], spec: Spec, mesh: MeshAxes
) -> kernel_pb2.ArrayPlacement:
    """Returns the placement of an array on a mesh.

    Args:
        array: the type of the array.
        padded: the shape on the devices.
        spec: the spec.
        mesh: the mesh.
    """
    return kernel_pb2.ArrayPlacement(
        type=encode_array_type(array),
        spec=encode_spec(spec),
        padded_shape=padded,
        block_shape=block_shape(padded, spec, mesh),
    )


def chosen_spec(placement: Placement, ndim: int) -> Spec:
    """Returns the spec that the compiler chose for an array whose spec was unset."""
    entries = tuple(getattr(placement.sharding, "spec", ()))
    names = tuple(() if e is None else (e,) if isinstance(e, str) else tuple(e) for e in entries)
    return names + ((),) * (ndim - len(names))


def describe_kernel(kernel: Kernel) -> kernel_pb2.KernelDescription:
    """Returns the description of a kernel."""
    return kernel_pb2.KernelDescription(
        name=kernel.name,
        version=kernel.version,
        summary=kernel.summary,
        operands=[
            kernel_pb2.OperandDescription(
                name=info.name, documentation=info.documentation, optional=info.optional, repeated=info.repeated
            )
            for info in kernel.operands
        ],
        parameters=[
            kernel_pb2.ParameterDescription(
                name=info.name,
                documentation=info.documentation,
                required=info.default is REQUIRED,
                default_value=None if info.default is REQUIRED else encode_parameter(info.default),
            )
            for info in kernel.parameters
        ],
        strategies=[
            kernel_pb2.StrategyDescription(name=strategy.name, documentation=strategy.documentation)
            for strategy in kernel.strategies
        ],
        reproducibility=_REPRODUCIBILITY[kernel.reproducibility],
    )
