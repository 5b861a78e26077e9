"""Resharding of an array by an all-gather of blocks and a slice of the gathered block."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import numpy as np
from jax import lax

from shardcall_core.layouts.layout import MeshAxes, Spec, block_shape
from shardcall_server.kernels.core.bits import as_integers, from_integers
from shardcall_server.kernels.core.blocks import fit, gather, index_type, partition_spec, rows


class _Axis:
    """The gather and the slice along one axis of a block.

    The leading mesh axes that both specs have in common stay. The blocks over the other ones are gathered, and the
    needed block is sliced from them.
    """

    def __init__(self, size: int, has: tuple[str, ...], needs: tuple[str, ...], mesh: MeshAxes) -> None:
        # XLA:CPU copies what it gathers from a single device, so mesh axes of size 1 are left out.
        has, needs = (tuple(name for name in names if mesh.size((name,)) > 1) for names in (has, needs))
        alike = next((i for i, pair in enumerate(zip(has, needs, strict=False)) if len({*pair}) > 1), None)
        alike = min(len(has), len(needs)) if alike is None else alike
        self.block = -(-size // mesh.size(needs))
        outer = -(-size // mesh.size(has[:alike]))
        if any(-(-size // mesh.size(names)) * mesh.size(names[alike:]) != outer for names in (has, needs)):
            alike = 0  # padding moves the edges of the blocks
        self.gathered, self.cut = has[alike:], needs[alike:]
        self.length = self.block * mesh.size(self.cut)


@dataclass(frozen=True)
class AllGatherPlan:
    """The steps that make the blocks of one sharding from the blocks of another.

    Attributes:
        has: the present spec of the array.
        needs: the spec that is needed; a mesh axis may occur in it more than once.
        axes: the gather and slice of each array axis.
    """

    has: Spec
    needs: Spec
    axes: tuple[_Axis, ...]

    @staticmethod
    def of(shape: Sequence[int], has: Spec, needs: Spec, mesh: MeshAxes) -> AllGatherPlan:
        """Plans the resharding of an array."""
        return AllGatherPlan(has, needs, tuple(_Axis(*axis, mesh) for axis in zip(shape, has, needs, strict=True)))

    @property
    def gathers(self) -> bool:
        """True if a device lacks data that it needs."""
        return any(axis.gathered for axis in self.axes)

    @property
    def cuts(self) -> bool:
        """True if a device may gather more than it needs."""
        return any(axis.cut for axis in self.axes)

    @property
    def only_gathers(self) -> bool:
        """True if the plan gathers and never slices."""
        return self.gathers and not self.cuts

    def received_elements(self, shape: Sequence[int], mesh: MeshAxes) -> int:
        """Returns how many elements of other devices a device gathers, of an array of a shape."""
        held = math.prod(block_shape(shape, self.has, mesh))
        return held * (mesh.size([name for axis in self.axes for name in axis.gathered]) - 1)

    def of_arrays(self, mesh: jax.sharding.Mesh) -> Callable[[jax.Array], jax.Array]:
        """Returns the resharding of a global array; operand and result are padded as their specs require."""
        return jax.shard_map(
            self.block,
            mesh=mesh,
            in_specs=partition_spec(self.has),
            out_specs=partition_spec(self.needs),
            check_vma=False,  # gathered blocks are equal on all devices, which JAX cannot infer
        )

    def block(self, array: jax.Array) -> jax.Array:
        """Returns the needed block, bit for bit and padded as its spec requires; for the body of a `jax.shard_map`."""
        dtype = np.dtype(array.dtype)
        array = movable(array)
        # All gathers precede the slices: devices gather from others, which need other rows. The last axis is gathered
        # first, while the block is small; a gather along the first axis needs no transposition.
        for i, axis in reversed(list(enumerate(self.axes))):
            if axis.gathered:
                array = gather(array, axis.gathered, i)
        for i, axis in enumerate(self.axes):
            array = fit(array, (*array.shape[:i], axis.length, *array.shape[i + 1 :]))
            if axis.cut:
                device = lax.axis_index(axis.cut).astype(index_type(axis.length))
                array = rows(array, device * axis.block, axis.block, i)
        return moved(array, dtype)


def movable(array: jax.Array) -> jax.Array:
    """Returns the array in a type that collectives move, and add to zeros, without changing it.

    XLA has no collectives for 4-bit types and does not add bool. XLA:CPU converts narrow floats to float32 to move
    them.
    """
    if array.dtype == np.bool_:
        return array.astype(np.uint8)
    return as_integers(array) if array.dtype.itemsize < np.dtype(np.float32).itemsize else array


def moved(array: jax.Array, dtype: np.dtype) -> jax.Array:
    """Reverses `movable` for an array of type ``dtype``."""
    return array.astype(dtype) if dtype == np.bool_ else from_integers(array, dtype)
