"""Between the contract's messages and plain values, for both processes.

Nothing is trusted: what is odd is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shardcall.element_types import to_dtype, to_element_type
from shardcall.errors import ProtocolError
from shardcall.v1 import array_pb2, mesh_pb2
from shardcall_server.errors import CallError, Reason, shorten
from shardcall_server.kernels.layout import ArrayType, MeshAxes, Spec

MAX_RANK = 32
_MAX_BYTES = 2**63 - 1


def decode_array_type(message: array_pb2.ArrayType, field: str) -> ArrayType:
    """The type of an array that is there.

    Args:
        message: the type as sent.
        field: what it is the type of, for the error message.

    Raises:
        CallError: an unknown element type, a negative size, too many axes, or a shape whose bytes cannot
            be counted in 63 bits.
    """
    try:
        dtype = to_dtype(message.element_type)
    except ProtocolError:
        raise CallError(
            Reason.UNSUPPORTED_ELEMENT_TYPE,
            f"{field} has element type {message.element_type}, which is none of this contract's; "
            "use a value of ElementType",
            field=field,
        ) from None
    shape = tuple(message.shape)
    if len(shape) > MAX_RANK:
        raise CallError(
            Reason.INVALID_SHAPE,
            f"{field} has {len(shape)} axes; at most {MAX_RANK} are allowed",
            field=field,
        )
    if any(n < 0 for n in shape):
        raise CallError(
            Reason.INVALID_SHAPE, f"{field} has shape {shorten(str(shape))}; a size is 0 or more", field=field
        )
    # Sizes beside a 0 must be countable too: the padded shape may have none.
    if math.prod(max(n, 1) for n in shape) * dtype.itemsize > _MAX_BYTES:
        raise CallError(
            Reason.INVALID_SHAPE,
            f"{field} of shape {shorten(str(shape))} and type {dtype.name} has more bytes than 63 bits can "
            "count; make it smaller",
            field=field,
        )
    return ArrayType(shape, dtype)


def decode_operand_types(messages: Sequence[array_pb2.ArrayType]) -> tuple[ArrayType | None, ...]:
    """The operands' types; None for one left out, whose element type is unspecified."""
    return tuple(
        None
        if m.element_type == array_pb2.ELEMENT_TYPE_UNSPECIFIED and not m.shape
        else decode_array_type(m, f"operand {i}")
        for i, m in enumerate(messages)
    )


def encode_array_type(array: ArrayType | None) -> array_pb2.ArrayType:
    """The message for a type; an empty one for None."""
    if array is None:
        return array_pb2.ArrayType()
    return array_pb2.ArrayType(element_type=to_element_type(array.dtype), shape=array.shape)


def decode_mesh(message: mesh_pb2.Mesh) -> MeshAxes:
    """The axes of a mesh, unchecked."""
    return MeshAxes(tuple((axis.name, axis.size) for axis in message.axes))


def encode_mesh(mesh: MeshAxes, device_ids: tuple[int, ...] = ()) -> mesh_pb2.Mesh:
    """The message for a mesh."""
    axes = [mesh_pb2.MeshAxis(name=name, size=size) for name, size in mesh.axes]
    return mesh_pb2.Mesh(axes=axes, device_ids=device_ids)


def encode_spec(spec: Spec) -> mesh_pb2.PartitionSpec:
    """The message for a spec."""
    return mesh_pb2.PartitionSpec(entries=[mesh_pb2.PartitionSpecEntry(axis_names=names) for names in spec])
