"""Encodes the items of call streams."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TypeAlias

from shardcall._src.device_arrays.array_version import ArrayVersion
from shardcall._src.transfer.upload import Value
from shardcall.v1 import array_pb2, call_stream_pb2, kernel_pb2
from shardcall_core.element_types import DType
from shardcall_core.types import arrays
from shardcall_core.types.arrays import NDArray
from shardcall_core.types.element_types import to_element_type

OperandKey: TypeAlias = tuple[tuple[int, ...], DType] | bool | None
"""Shape and element type of an operand; True for one on the mesh, None for one left out."""

PreparedKey: TypeAlias = tuple[bytes, tuple[OperandKey, ...], bytes, bool]
"""The parts of a call that a prepared call has: its serialized message, operands, lease, refusal of transfers."""

_NATIVE = sys.byteorder == "little"


def add_operands(item: call_stream_pb2.StreamedCall, operands: Sequence[Value]) -> tuple[tuple[OperandKey, ...], int]:
    """Adds operands of any memory layout to a call; returns their keys and the number of their bytes."""
    operand_keys: list[OperandKey] = []
    operand_bytes = 0
    for operand in operands:
        if operand is None:
            item.operands.add()
            operand_keys.append(None)
        elif isinstance(operand, ArrayVersion):
            item.operands.add(handle=operand.handle)
            operand_keys.append(True)
        else:
            data = bytes_of(operand)
            item.operands.add(inline=data)
            operand_keys.append((operand.shape, operand.dtype))
            operand_bytes += len(data)
    return tuple(operand_keys), operand_bytes


def bytes_of(array: NDArray) -> bytes:
    """Returns the bytes of an array of any memory layout, row-major and little-endian."""
    # `tobytes` is row-major for every layout.
    return array.tobytes() if _NATIVE and array.dtype.isnative else arrays.row_major(array).tobytes()


def prepare(slot: int, key: PreparedKey) -> bytes:
    """Returns a serialized frame that assigns a slot."""
    call, operands, lease_id, refuse_transfers = key
    prepare = call_stream_pb2.PrepareCall(
        slot=slot,
        call=kernel_pb2.KernelCall.FromString(call),
        operands=map(_operand_type, operands),
        keep_results=bool(lease_id),
        lease_id=lease_id,
        refuse_transfers=refuse_transfers,
    )
    item = call_stream_pb2.CallStreamItem(prepare=prepare)
    return call_stream_pb2.CallStreamRequest(items=[item]).SerializeToString()


def _operand_type(operand_key: OperandKey) -> array_pb2.ArrayType:
    if not isinstance(operand_key, tuple):
        return array_pb2.ArrayType()
    shape, dtype = operand_key
    return array_pb2.ArrayType(element_type=to_element_type(dtype), shape=shape)
