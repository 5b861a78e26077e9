"""Programs of regions: one function of blocks for many calls."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

import jax
from jax import lax

from shardcall_core.graphs.graph import Constant, Value
from shardcall_core.layouts.layout import ArrayType, MeshAxes, Spec, block_shape
from shardcall_server.kernels.core.bits import moved_in_block
from shardcall_server.kernels.core.blocks import index_type, partition_spec, rows
from shardcall_server.kernels.core.exactness import is_exact
from shardcall_server.kernels.graphs.plan import GraphPlan, PlannedNode
from shardcall_server.kernels.graphs.regions import Margins, Names, Placed, Region, extended_axes
from shardcall_server.kernels.graphs.sealing import is_sealed, sealed
from shardcall_server.kernels.graphs.step_scopes import scope_of
from shardcall_server.kernels.stencils.exchange import ShardedAxis


def region_program(
    region: Region, plan: GraphPlan, types: Mapping[Value, ArrayType], axes: MeshAxes, mesh: jax.sharding.Mesh
) -> Callable[..., Sequence[jax.Array]]:
    """Returns the function that computes the outputs of a region from its inputs, both padded global arrays.

    Args:
        region: the region.
        plan: the plan of the graph.
        types: the types of its values.
        axes: the axes of the mesh.
        mesh: the mesh.
    """
    blocks = _RegionBlocks(region, plan, types, axes)
    program: Callable[..., Sequence[jax.Array]] = jax.shard_map(
        blocks,
        mesh=mesh,
        in_specs=tuple(partition_spec(placed.spec) for placed in region.inputs),
        out_specs=tuple(partition_spec(plan.specs[value]) for value in region.outputs),
        check_vma=False,
    )
    return program


class _RegionBlocks:
    """Computes the blocks of a region's outputs; a function of the blocks of its inputs.

    Args:
        region: the region.
        plan: the plan of the graph.
        types: the types of its values.
        axes: the axes of the mesh.
    """

    def __init__(self, region: Region, plan: GraphPlan, types: Mapping[Value, ArrayType], axes: MeshAxes) -> None:
        self._region = region
        self._plan = plan
        self._types = types
        self._axes = axes

    def __call__(self, *blocks: jax.Array) -> tuple[jax.Array, ...]:
        region, plan = self._region, self._plan
        values = dict(zip(region.inputs, map(self._extended, region.inputs, blocks), strict=True))
        steps: dict[Hashable, Callable[..., jax.Array]] = {}
        for i, call in region.calls.items():
            node, value = plan.nodes[i], Value(i, 0)
            (spec,) = node.out_specs
            margins = region.margins[Placed(value, spec)]
            shape = tuple(
                self._rows(names, margins) if names else size
                for names, size in zip(spec, self._types[value].shape, strict=True)
            )
            arrays = []
            for operand, needs, aligned in zip(node.operands, call.in_specs, call.aligned, strict=True):
                if isinstance(operand, Constant):
                    arrays.append(jax.numpy.asarray(operand.array))
                    continue
                array = values[Placed(operand, needs)]
                for axis, alignment in enumerate(aligned):
                    if alignment is not None:
                        names = spec[alignment.axis]
                        has = region.margins[Placed(operand, needs)][names]
                        first = margins[names].before + alignment.distance - has.before
                        array = rows(array, first, shape[alignment.axis], axis)
                arrays.append(array)
            # As in `GraphBodies.program`, equal calls are traced once.
            key = node.kernel, node.problem, shape
            if key not in steps:
                steps[key] = jax.jit(_named(node, call.body, shape))
            with jax.named_scope(scope_of(i)):
                values[Placed(value, spec)] = steps[key](self._offsets(value, spec, margins), *arrays)
        return tuple(self._output(value, values[Placed(value, plan.specs[value])]) for value in region.outputs)

    def _rows(self, names: Names, margins: Mapping[Names, Margins]) -> int:
        return self._region.blocks[names] + margins[names].behind - margins[names].before

    def _extended(self, placed: Placed, block: jax.Array) -> jax.Array:
        """Returns the block of an input with the rows around it that the region needs."""
        region = self._region
        margins = region.margins[placed]
        with jax.named_scope(scope_of(region.first_taker(self._plan, placed))):
            for moved_rows in extended_axes(self._types[placed.value], placed.spec, margins, region.blocks, self._axes):
                block = moved_in_block(moved_rows, block)
        return block

    def _offsets(self, value: Value, spec: Spec, margins: Mapping[Names, Margins]) -> dict[int, jax.Array]:
        """Returns the index of the first element of the running device's block along each sharded axis."""
        sizes = self._types[value].shape
        return {
            axis: lax.axis_index(names).astype(index_type(4 * sizes[axis])) * self._region.blocks[names]
            + margins[names].before
            for axis, names in enumerate(spec)
            if names
        }

    def _output(self, value: Value, array: jax.Array) -> jax.Array:
        """Returns the block of an output in its layout."""
        spec, array_type = self._plan.specs[value], self._types[value]
        margins = self._region.margins[Placed(value, spec)]
        for axis, names in enumerate(spec):
            if names:
                along = ShardedAxis.of(array_type, spec, axis, self._axes)
                drift = along.block - self._region.blocks[names]
                first = along.pick([device * drift - margins[names].before for device in range(along.devices)])
                array = rows(array, first, block_shape(array_type.shape, spec, self._axes)[axis], axis)
        return array


def _named(node: PlannedNode, body: Callable[..., jax.Array], shape: tuple[int, ...]) -> Callable[..., jax.Array]:
    def step(offsets: Mapping[int, jax.Array], *arrays: jax.Array) -> jax.Array:
        result = body(shape, tuple(offsets.get(axis, 0) for axis in range(len(shape))), arrays)
        return sealed(result) if is_exact() and is_sealed(node.kernel.name, result.dtype) else result

    step.__name__ = node.kernel.name
    return step
