"""Operands on the mesh that a call moves between devices before its kernel runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from shardcall.v1 import kernel_pb2
from shardcall_core.placements.placement import ArrayPlacement
from shardcall_core.types import mesh, specs
from shardcall_core.types.arrays import Array
from shardcall_core.types.blocks import block_grid
from shardcall_core.types.mesh import Mesh
from shardcall_core.types.specs import PartitionSpec

_Block: TypeAlias = tuple[tuple[int, int], ...]
"""The [begin, end) of a block along each axis of the padded array."""


@dataclass(frozen=True)
class Transfer:
    """An operand on the mesh that is moved before the program runs, to the placement that the program takes.

    Attributes:
        operand: the index of the operand in the kernel's order.
        type: the shape and element type.
        from_mesh: the mesh that it is placed on, with its device ids.
        from_spec: the sharding over that mesh.
        to_mesh: the mesh of the program, with its device ids.
        to_spec: the sharding that the program takes.
        received_bytes: the bytes that all devices receive: the parts of their blocks that they do not hold yet; with
            ``through_host`` complete blocks.
        through_host: True if it moves through the memory of the server's host, as between placements with different
            padding.
    """

    operand: int
    type: Array
    from_mesh: Mesh
    from_spec: PartitionSpec
    to_mesh: Mesh
    to_spec: PartitionSpec
    received_bytes: int
    through_host: bool = False

    @property
    def origin(self) -> str:
        """The former placement, the bytes and the path: ``from P('x') on Mesh(x=8), 64 bytes between devices``."""
        there = "" if self.from_mesh == self.to_mesh else f" on {self.from_mesh.short}"
        path = "through the host" if self.through_host else "between devices"
        return f"from {self.from_spec}{there}, {self.received_bytes:,} bytes {path}"

    def __str__(self) -> str:
        return f"operand {self.operand} {self.origin}"


def find_transfer(
    operand: int,
    from_mesh: Mesh,
    placed: ArrayPlacement,
    to_mesh: Mesh,
    taken: ArrayPlacement,
    *,
    between_hosts: bool = False,
) -> Transfer | None:
    """Returns the transfer that an operand needs; None if its placement is the one that the program takes.

    As for ``jax.sharding.Sharding.is_equivalent_to``, two placements are the same if their devices are the same, in
    the same order, and each device has the same block. The names of mesh axes do not matter.

    Args:
        operand: the index of the operand in the kernel's order.
        from_mesh: the mesh that it is placed on.
        placed: the placement on that mesh.
        to_mesh: the mesh of the program.
        taken: the placement that the program takes.
        between_hosts: True for devices of several hosts, which are then reached through the hosts.
    """
    if from_mesh == to_mesh and placed == taken:
        return None
    held, needed = _blocks(from_mesh, placed), _blocks(to_mesh, taken)
    padded_alike = placed.padded_shape == taken.padded_shape
    if padded_alike and list(held.items()) == list(needed.items()):
        return None
    through_host = not padded_alike or (between_hosts and held.keys() != needed.keys())
    elements = sum(
        _size(block, taken.type.shape) - (0 if through_host else _shared(block, held.get(device), taken.type.shape))
        for device, block in needed.items()
    )
    nbytes = elements * taken.type.dtype.itemsize
    return Transfer(operand, taken.type, from_mesh, placed.spec, to_mesh, taken.spec, nbytes, through_host)


def _blocks(mesh: Mesh, placement: ArrayPlacement) -> Mapping[int, _Block]:
    """Returns the block of each device, in the mesh's order of devices."""
    grid = block_grid(placement.type.shape, placement.spec, mesh)
    blocks = {
        device: tuple((i * width, (i + 1) * width) for i, width in zip(index, placement.block_shape, strict=True))
        for index, devices in grid.holders.items()
        for device in devices
    }
    return {device: blocks[device] for device in mesh.device_ids or range(mesh.size)}


def _size(block: _Block, shape: tuple[int, ...]) -> int:
    """Returns the number of elements of a block without padding."""
    return math.prod(max(0, min(end, n) - begin) for (begin, end), n in zip(block, shape, strict=True))


def _shared(block: _Block, other: _Block | None, shape: tuple[int, ...]) -> int:
    """Returns the number of elements, without padding, that are in both blocks."""
    if other is None:
        return 0
    both = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(block, other, strict=True))
    return _size(both, shape)


def transfer_to_proto(transfer: Transfer) -> kernel_pb2.Transfer:
    """Returns the message for a transfer; its destination is in the plan."""
    return kernel_pb2.Transfer(
        operand=transfer.operand,
        mesh=mesh.to_proto(transfer.from_mesh),
        spec=specs.to_proto(transfer.from_spec).spec,
        received_bytes=transfer.received_bytes,
        through_host=transfer.through_host,
    )
