"""How a device comes to the block that it needs of an array from blocks that others have: by gathering and cutting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import numpy as np
from jax import lax

from shardcall_server.kernels.bits import as_integers, from_integers
from shardcall_server.kernels.blocks import fit, gather, index_type, partition_spec, rows
from shardcall_server.kernels.layout import MeshAxes, Spec


class _Axis:
    """How one axis of a block becomes that of the block that is needed.

    Of the mesh axes that split it as it lies and as it is needed, those in front that agree stay; the blocks over the
    others are gathered, and the block that is needed is cut from them.
    """

    def __init__(self, size: int, has: tuple[str, ...], needs: tuple[str, ...], mesh: MeshAxes) -> None:
        # XLA:CPU would copy what it gathers of one device.
        has, needs = (tuple(name for name in names if mesh.size((name,)) > 1) for names in (has, needs))
        alike = next((i for i, pair in enumerate(zip(has, needs, strict=False)) if len({*pair}) > 1), None)
        alike = min(len(has), len(needs)) if alike is None else alike
        self.block = -(-size // mesh.size(needs))
        outer = -(-size // mesh.size(has[:alike]))
        if any(-(-size // mesh.size(names)) * mesh.size(names[alike:]) != outer for names in (has, needs)):
            alike = 0  # padding puts the blocks' edges elsewhere
        self.gathered, self.cut = has[alike:], needs[alike:]
        self.length = self.block * mesh.size(self.cut)


@dataclass(frozen=True)
class AllGatherPlan:
    """How a block of an array as it is split becomes one as it is needed.

    Attributes:
        has: the array's spec.
        needs: the one that is needed, whose mesh axes may come more than once.
        axes: the moves, one for each axis.
    """

    has: Spec
    needs: Spec
    axes: tuple[_Axis, ...]

    @staticmethod
    def of(shape: Sequence[int], has: Spec, needs: Spec, mesh: MeshAxes) -> AllGatherPlan:
        """For an array of a shape."""
        return AllGatherPlan(has, needs, tuple(_Axis(*axis, mesh) for axis in zip(shape, has, needs, strict=True)))

    @property
    def gathers(self) -> bool:
        """Whether a device lacks something that it needs."""
        return any(axis.gathered for axis in self.axes)

    @property
    def cuts(self) -> bool:
        """Whether a device may gather more than it needs."""
        return any(axis.cut for axis in self.axes)

    @property
    def only_gathers(self) -> bool:
        """Whether gathering is all there is to do, and there is some."""
        return self.gathers and not self.cuts

    def of_arrays(self, mesh: jax.sharding.Mesh) -> Callable[[jax.Array], jax.Array]:
        """The move of a whole array, padded as its spec pads it before and afterwards."""
        return jax.shard_map(
            self.block,
            mesh=mesh,
            in_specs=partition_spec(self.has),
            out_specs=partition_spec(self.needs),
            check_vma=False,  # what devices hold alike they hold because they gathered it; JAX cannot know it
        )

    def block(self, array: jax.Array) -> jax.Array:
        """The block that is needed, bit for bit, padded as its spec pads; for the body of a `jax.shard_map`."""
        dtype = np.dtype(array.dtype)
        array = movable(array)
        # All is gathered before anything is cut: devices gather from others, which need other rows. The last axis
        # first, while there is little to put in place: along the first axis gathered blocks lie where they belong.
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
    """The array in a type that collectives move, and sum up with zeros, unchanged.

    XLA has none for 4 bits and adds no bool; narrow floats XLA:CPU moves as float32.
    """
    if array.dtype == np.bool_:
        return array.astype(np.uint8)
    return as_integers(array) if array.dtype.itemsize < np.dtype(np.float32).itemsize else array


def moved(array: jax.Array, dtype: np.dtype) -> jax.Array:
    """What `movable` made of an array of a type, as it was."""
    return array.astype(dtype) if dtype == np.bool_ else from_integers(array, dtype)
