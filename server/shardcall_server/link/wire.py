"""Conversion between the contract's messages and plain values, for both processes, and the limits of messages.

Messages are not trusted: invalid fields are refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from shardcall.v1 import array_pb2, kernel_pb2, mesh_pb2
from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.graphs.graph import MAX_BYTES, MAX_VALUES
from shardcall_core.layouts.layout import MAX_RANK, ArrayType, MeshAxes, Spec
from shardcall_core.types.element_types import to_dtype, to_element_type
from shardcall_core.types.errors import ProtocolError
from shardcall_core.versions import build_version

MAX_SPAN_BYTES = 1 << 50
MAX_OPERANDS = MAX_VALUES
"""The maximum number of operands and of results of a call: those of a program, with the number of its iterations."""

_MAX_OPERANDS_OF_A_KERNEL = 64
_MAX_PARAMETERS = 64
_MAX_NAMES = 16
_MAX_MESH_AXES = 16
_MAX_DEVICE_IDS = 1 << 14
_MAX_TEXT = 4096


def check_counts(call: kernel_pb2.KernelCall, operand_count: int) -> None:
    """Refuses a call with absurdly many parts before any work is done for each of them.

    Raises:
        CallError: names the part.
    """
    max_operands = MAX_OPERANDS if call.kernel == "graph" else _MAX_OPERANDS_OF_A_KERNEL
    specs = [*call.in_specs[: max_operands + 1], *call.out_specs[: max_operands + 1]]
    entries = [entry for s in specs for entry in s.spec.entries[: MAX_RANK + 1]]
    values = call.parameters.values() if len(call.parameters) <= _MAX_PARAMETERS else ()
    max_devices = max(64, min(_MAX_DEVICE_IDS, math.prod(axis.size for axis in call.mesh.axes[:_MAX_MESH_AXES])))
    for field, noun, count, limit in (
        ("operands", "operands", operand_count, max_operands),
        ("in_specs", "specs", len(call.in_specs), max_operands),
        ("out_specs", "specs", len(call.out_specs), max_operands),
        ("specs", "entries in a spec", max((len(s.spec.entries) for s in specs), default=0), MAX_RANK),
        ("specs", "mesh axes in an entry", max((len(e.axis_names) for e in entries), default=0), _MAX_NAMES),
        ("mesh", "axes", len(call.mesh.axes), _MAX_MESH_AXES),
        ("mesh.device_ids", "devices", len(call.mesh.device_ids), max_devices),
        ("parameters", "parameters", len(call.parameters), _MAX_PARAMETERS),
        ("parameters", "integers in a list", max((len(v.int_list.values) for v in values), default=0), _MAX_PARAMETERS),
        ("parameters", "characters in a value", max((len(v.string_value) for v in values), default=0), _MAX_TEXT),
        ("parameters", "bytes of a program", max((v.program.ByteSize() for v in values), default=0), MAX_BYTES),
    ):
        _check_count(field, noun, count, limit)


def check_operand_count(count: int) -> None:
    """Refuses more operands than any call has, before any work is done for each of them.

    Raises:
        CallError: MALFORMED_REQUEST.
    """
    _check_count("operands", "operands", count, MAX_OPERANDS)


def _check_count(field: str, noun: str, count: int, limit: int) -> None:
    if count > limit:
        raise CallError(
            Reason.MALFORMED_REQUEST, f"{field}: {count} {noun} came; at most {limit} are allowed", field=field
        )


def about(nbytes: int) -> str:
    """Formats a number of bytes in a few digits; 32 axes of 2⁶³ span more than a float can represent."""
    return f"{nbytes:.3g}" if nbytes < 10**300 else "more than 1e+300"


def decode_array_type(message: array_pb2.ArrayType, field: str) -> ArrayType:
    """Returns the type of a present array.

    Args:
        message: the type as sent.
        field: the field that it describes, for the error message.

    Raises:
        CallError: an unknown element type, a negative size, too many axes, or a shape that spans too many bytes.
    """
    if (
        len(message.shape) <= MAX_RANK
        and (valid := _valid_type(message.element_type, tuple(message.shape))) is not None
    ):
        return valid
    try:
        dtype = to_dtype(message.element_type)
    except ProtocolError:
        raise CallError(
            Reason.UNSUPPORTED_ELEMENT_TYPE,
            f"{field} has element type {message.element_type}, which this server, shardcall {build_version()}, does "
            "not know; use one of its ElementType, or a newer server",
            field=field,
        ) from None
    if len(message.shape) > MAX_RANK:
        raise CallError(
            Reason.INVALID_SHAPE,
            f"{field} has {len(message.shape)} axes; at most {MAX_RANK} are allowed",
            field=field,
        )
    shape = tuple(message.shape)
    if any(n < 0 for n in shape):
        raise CallError(
            Reason.INVALID_SHAPE, f"{field} has shape {shorten(str(shape))}; a size is 0 or more", field=field
        )
    array = ArrayType(shape, dtype)
    raise CallError(
        Reason.INVALID_SHAPE,
        f"{field} of shape {shorten(str(shape))} and type {dtype.name} spans {about(array.span_bytes)} bytes, sizes "
        f"of 0 counted as 1; at most {about(MAX_SPAN_BYTES)} are allowed",
        field=field,
    )


@lru_cache(maxsize=4096)
def _valid_type(code: array_pb2.ElementType, shape: tuple[int, ...]) -> ArrayType | None:
    """Returns the type, or None if it is to be refused."""
    try:
        array = ArrayType(shape, to_dtype(code))  # type: ignore[arg-type]
    except ProtocolError:
        return None
    # Sizes beside a 0 count too: strides are made of them, and the padded shape may have no 0.
    return array if all(n >= 0 for n in shape) and array.span_bytes <= MAX_SPAN_BYTES else None


def decode_operand_types(messages: Sequence[array_pb2.ArrayType]) -> tuple[ArrayType | None, ...]:
    """Returns the types of operands; None for an omitted one, whose element type is unspecified.

    Raises:
        CallError: there are too many types, or as `decode_array_type`.
    """
    check_operand_count(len(messages))  # a message of 4 MiB holds two million, and each takes ten microseconds
    return tuple(
        None
        if m.element_type == array_pb2.ELEMENT_TYPE_UNSPECIFIED and not m.shape
        else decode_array_type(m, f"operand {i}")
        for i, m in enumerate(messages)
    )


@lru_cache(maxsize=4096)
def encode_array_type(array: ArrayType | None) -> array_pb2.ArrayType:
    """Returns the message for a type, which must not be modified; an empty one for None."""
    if array is None:
        return array_pb2.ArrayType()
    return array_pb2.ArrayType(element_type=to_element_type(array.dtype), shape=array.shape)


def decode_mesh(message: mesh_pb2.Mesh) -> MeshAxes:
    """Returns the axes of a mesh, unchecked."""
    return MeshAxes(tuple((axis.name, axis.size) for axis in message.axes))


def encode_mesh(mesh: MeshAxes, device_ids: tuple[int, ...] = ()) -> mesh_pb2.Mesh:
    """Returns the message for a mesh."""
    axes = [mesh_pb2.MeshAxis(name=name, size=size) for name, size in mesh.axes]
    return mesh_pb2.Mesh(axes=axes, device_ids=device_ids)


def decode_spec(message: mesh_pb2.OptionalPartitionSpec) -> Spec | None:
    """Returns a spec, unchecked; None if it is unset."""
    if not message.HasField("spec"):
        return None
    return tuple(tuple(entry.axis_names) for entry in message.spec.entries)


def encode_spec(spec: Spec) -> mesh_pb2.PartitionSpec:
    """Returns the message for a spec."""
    return mesh_pb2.PartitionSpec(entries=[mesh_pb2.PartitionSpecEntry(axis_names=names) for names in spec])
