"""Programs of regions: one function of blocks for many calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardcall_core.graphs.graph import Constant, Value
from shardcall_core.layouts.layout import ArrayType, MeshAxes, Spec
from shardcall_server.kernels.core.bits import moved_in_block
from shardcall_server.kernels.core.blocks import index_type, partition_spec, rows
from shardcall_server.kernels.core.exactness import is_exact
from shardcall_server.kernels.core.kernel import Program
from shardcall_server.kernels.graphs.plan import GraphPlan, PlannedNode
from shardcall_server.kernels.graphs.regions import (
    FusedRegion,
    Margins,
    Names,
    Placed,
    RegionPart,
    extended_axes,
    pieces_of,
)
from shardcall_server.kernels.graphs.sealing import is_sealed, sealed
from shardcall_server.kernels.graphs.step_scopes import scope_behind
from shardcall_server.kernels.stencils.exchange import ShardedAxis, neighboring_rows


def region_program(
    region: FusedRegion, plan: GraphPlan, types: Mapping[Value, ArrayType], axes: MeshAxes, mesh: jax.sharding.Mesh
) -> Program:
    """Returns the function that computes the outputs of a region from its inputs, both padded global arrays.

    It is called in the scope of the region's first step.

    Args:
        region: the region.
        plan: the plan of the graph.
        types: the types of its values.
        axes: the axes of the mesh.
        mesh: the mesh.
    """
    blocks = _RegionBlocks(region, plan, types, axes)
    program: Program = jax.shard_map(
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

    def __init__(self, region: FusedRegion, plan: GraphPlan, types: Mapping[Value, ArrayType], axes: MeshAxes) -> None:
        self._region = region
        self._plan = plan
        self._types = types
        self._axes = axes
        self._steps: dict[Hashable, Callable[..., jax.Array]] = {}
        self._counts: Mapping[Hashable, int] = {}
        self._firsts: dict[tuple[Names, np.dtype], jax.Array] = {}

    def __call__(self, *blocks: jax.Array) -> tuple[jax.Array, ...]:
        region, specs = self._region, self._plan.specs
        pieces = pieces_of(region, self._types, specs, self._axes)
        self._steps.clear()  # not across traces
        self._firsts.clear()
        self._counts = Counter(self._key(i, self._shape(i, piece)) for piece in pieces for i in region.calls)
        if len(pieces) == 1:
            inputs = dict(zip(region.inputs, map(self._extended, region.inputs, blocks), strict=True))
            return self._outputs(inputs, pieces[0])
        pairs, names = zip(region.inputs, blocks, strict=True), pieces[0].names
        rows_of = {placed: self._with_neighbors(placed, block, names) for placed, block in pairs}
        outputs = [
            self._outputs({placed: self._part(placed, arrays, piece) for placed, arrays in rows_of.items()}, piece)
            for piece in pieces
        ]
        return tuple(
            jnp.concatenate(arrays, specs[value].index(pieces[0].names))
            for value, arrays in zip(region.outputs, zip(*outputs, strict=True), strict=True)
        )

    def _outputs(self, inputs: Mapping[Placed, jax.Array], piece: RegionPart) -> tuple[jax.Array, ...]:
        """Returns a piece of the outputs from the rows of the inputs that it needs."""
        region, plan = self._region, self._plan
        values = dict(inputs)
        for i, call in region.calls.items():
            node, value, shape = plan.nodes[i], Value(i, 0), self._shape(i, piece)
            (spec,) = node.out_specs
            margins = region.margins[Placed(value, spec)]
            arrays = []
            for operand, needs, aligned in zip(node.operands, call.in_specs, call.aligned, strict=True):
                if isinstance(operand, Constant):
                    arrays.append(jnp.asarray(operand.array))
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
            key = self._key(i, shape)
            if key not in self._steps:
                step = _named(node, call.body, shape)
                self._steps[key] = jax.jit(step) if self._counts[key] > 1 else step
            with jax.named_scope(self._scope(i)):
                offsets = self._offsets(value, spec, margins, piece) if call.takes_offsets else {}
                values[Placed(value, spec)] = self._steps[key](offsets, *arrays)
        return tuple(self._output(value, values[Placed(value, plan.specs[value])], piece) for value in region.outputs)

    def _shape(self, index: int, piece: RegionPart) -> tuple[int, ...]:
        """Returns the shape of a piece of the result of a call."""
        value, (spec,) = Value(index, 0), self._plan.nodes[index].out_specs
        margins = self._region.margins[Placed(value, spec)]
        return tuple(
            self._rows(names, margins, piece) if names else size
            for names, size in zip(spec, self._types[value].shape, strict=True)
        )

    def _key(self, index: int, shape: tuple[int, ...]) -> Hashable:
        node = self._plan.nodes[index]
        return node.kernel, node.problem, shape

    def _scope(self, index: int) -> str:
        return scope_behind(index - self._region.first_step)

    def _length(self, names: Names, piece: RegionPart) -> int:
        return piece.stop - piece.start if names == piece.names else self._region.blocks[names]

    def _rows(self, names: Names, margins: Mapping[Names, Margins], piece: RegionPart) -> int:
        return self._length(names, piece) + margins[names].behind - margins[names].before

    def _extended(self, placed: Placed, block: jax.Array) -> jax.Array:
        """Returns the block of an input with the rows around it that the region needs."""
        region = self._region
        margins = region.margins[placed]
        exchanges = extended_axes(self._types[placed.value], placed.spec, margins, region.blocks, self._axes)
        with jax.named_scope(self._scope(region.first_taker(self._plan, placed))):
            for moved_rows in exchanges:
                block = moved_in_block(moved_rows, block)
        # The compiler would choose between the block and its margins for each element that a call takes.
        return lax.optimization_barrier(block) if exchanges else block

    def _with_neighbors(self, placed: Placed, block: jax.Array, names: Names) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Returns the rows before the block of an input, the block, and the rows behind it, along one axis."""
        if names not in placed.spec:
            return block, block, block
        margins = self._region.margins[placed][names]
        along = ShardedAxis.of(self._types[placed.value], placed.spec, placed.spec.index(names), self._axes)
        along = replace(along, rows=along.block * along.devices)
        with jax.named_scope(self._scope(self._region.first_taker(self._plan, placed))):
            before, behind = neighboring_rows(along, max(0, -margins.before), max(0, margins.behind))
            return before(block), block, behind(block)

    def _part(self, placed: Placed, rows_of: tuple[jax.Array, jax.Array, jax.Array], piece: RegionPart) -> jax.Array:
        """Returns the rows of an input that a piece needs."""
        if piece.names not in placed.spec:
            return rows_of[1]
        axis, margins = placed.spec.index(piece.names), self._region.margins[placed][piece.names]
        before, block, behind = rows_of
        count = block.shape[axis]
        start, stop = piece.start + margins.before, piece.stop + margins.behind
        parts = [
            rows(before, before.shape[axis] + start, min(stop, 0) - start, axis) if start < 0 else None,
            rows(block, max(start, 0), min(stop, count) - max(start, 0), axis) if start < count and stop > 0 else None,
            rows(behind, max(start - count, 0), stop - max(start, count), axis) if stop > count else None,
        ]
        present = [part for part in parts if part is not None]
        return present[0] if len(present) == 1 else jnp.concatenate(present, axis)

    def _offsets(
        self, value: Value, spec: Spec, margins: Mapping[Names, Margins], piece: RegionPart
    ) -> dict[int, jax.Array]:
        """Returns the index of the first element of the running device's rows along each sharded axis."""
        offsets: dict[int, jax.Array] = {}
        for axis, names in enumerate(spec):
            if names:
                dtype = index_type(4 * self._types[value].shape[axis])
                if (names, dtype) not in self._firsts:
                    self._firsts[names, dtype] = lax.axis_index(names).astype(dtype) * self._region.blocks[names]
                distance = margins[names].before + (piece.start if names == piece.names else 0)
                offsets[axis] = lax.add(self._firsts[names, dtype], dtype.type(distance))
        return offsets

    def _output(self, value: Value, array: jax.Array, piece: RegionPart) -> jax.Array:
        """Returns an output in the blocks of its layout, or a piece of it."""
        spec, array_type = self._plan.specs[value], self._types[value]
        margins = self._region.margins[Placed(value, spec)]
        for axis, names in enumerate(spec):
            if names:
                along = ShardedAxis.of(array_type, spec, axis, self._axes)
                drift = along.block - self._region.blocks[names]
                first = along.pick([device * drift - margins[names].before for device in range(along.devices)])
                array = rows(array, first, along.block if drift else self._length(names, piece), axis)
        return array


def _named(node: PlannedNode, body: Callable[..., jax.Array], shape: tuple[int, ...]) -> Callable[..., jax.Array]:
    def step(offsets: Mapping[int, jax.Array], *arrays: jax.Array) -> jax.Array:
        result = body(shape, tuple(offsets.get(axis, 0) for axis in range(len(shape))), arrays)
        return sealed(result) if is_exact() and is_sealed(node.kernel.name, result.dtype) else result

    step.__name__ = node.kernel.name
    return step
