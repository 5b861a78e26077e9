"""Rows about arrays: their shapes, element types and bytes, wherever a request has one."""

from __future__ import annotations

from end_to_end.messages import tensor
from faults.bad_input_rows import BIG, BOOL, C64, I32, INT4, LEASE, MIN, UINT4, Row, call, inline_operand, planned

from shardcall.v1 import array_pb2, array_service_pb2, kernel_service_pb2

_SHAPES = [
    ("a size of -1", (-1,)),
    ("a size of -1 behind others", (8, 4, -1)),
    ("the least size", (MIN, 2)),
    ("the largest size", (BIG,)),
    ("2^31 twice", (2**31, 2**31)),
    ("2^16 four times", (2**16,) * 4),
    ("a product of 2^64", (2**32, 2**32)),
    ("a product of 2^128 beside a 0", (0, BIG, BIG)),
    ("2^62 beside a 0", (2**62, 0)),
    ("32 axes of 2^63 - 1", (BIG,) * 32),
    ("33 axes", (1,) * 33),
    ("33 axes of nothing", (0,) * 33),
    ("1000 axes", (1,) * 1000),
    ("1000 axes of 2", (2,) * 1000),
    ("32 axes of 3", (3,) * 32),
]
_CODES = [
    ("element type 20", 20),
    ("element type 2^31 - 1", 2**31 - 1),
    ("element type -1", -1),
    ("element type -2^31", -(2**31)),
    ("no element type, with a shape", 0),
]
_BYTES = [
    ("no bytes", (8,), b""),
    ("a byte too few", (8,), bytes(63)),
    ("a byte too many", (8,), bytes(65)),
    ("half the bytes", (8, 2), bytes(64)),
    ("bytes for a scalar of nothing", (0,), bytes(8)),
    ("no bytes for a scalar", (), b""),
    ("two scalars", (), bytes(16)),
    ("bytes of 32 bits", (16,), bytes(64)),
    ("a claim of a TiB", (2**37,), bytes(8)),
    ("a claim of 2^50", (2**47,), bytes(8)),
]
_VALUES = [
    ("a bool of 2", BOOL, b"\0\1\2\1"),
    ("a bool of 255", BOOL, b"\xff\1\0\1"),
    ("a bool of 0x80", BOOL, b"\1\1\0\x80"),
    ("an int4 of 0x10", INT4, b"\0\1\x10\1"),
    ("an int4 of 0xff", INT4, b"\0\1\2\xff"),
    ("an int4 of 0x80", INT4, b"\x80\0\0\0"),
    ("a uint4 of 16", UINT4, b"\0\1\x10\1"),
    ("a uint4 of 0xf0", UINT4, b"\xf0\1\0\1"),
]


def _executed(name, operand, reason, field="operand 0"):
    return Row(name, "Execute", [kernel_service_pb2.ExecuteRequest(call=call(), operands=[operand])], reason, field)


def _put(name, operand, reason, field="operand 0"):
    header = array_service_pb2.PutArrayHeader(array=operand, lease_id=LEASE)
    return Row(f"put: {name}", "PutArray", [array_service_pb2.PutArrayRequest(header=header)], reason, field)


def _opening(name, operand, reason, field="operand 0"):
    header = kernel_service_pb2.ExecuteRequest(call=call(), operands=[operand])
    request = kernel_service_pb2.ExecuteStreamRequest(header=header)
    return Row(f"stream: {name}", "ExecuteStream", [request], reason, field)


def _sources():
    """Operands whose type and bytes do not match."""
    array_type, inline = tensor(8), kernel_service_pb2.InlineTensor(data=bytes(64))
    operand = kernel_service_pb2.Operand
    return [
        ("nothing but an unset type's bytes", operand(inline=inline), "MALFORMED_REQUEST"),
        ("streamed without a type", operand(streamed={}), "MALFORMED_REQUEST"),
        ("a segment without a type", operand(segment={"segment_id": bytes(16)}), "MALFORMED_REQUEST"),
        ("a type without a source", operand(type=array_type), "MALFORMED_REQUEST"),
        ("an empty type with bytes", operand(type={}, inline=inline), "UNSUPPORTED_ELEMENT_TYPE"),
        ("an empty segment", operand(type=array_type, segment={}), "MALFORMED_REQUEST"),
        ("a segment id of 15 bytes", operand(type=array_type, segment={"segment_id": bytes(15)}), "MALFORMED_REQUEST"),
        (
            "a segment id of 1 MiB",
            operand(type=array_type, segment={"segment_id": bytes(1 << 20)}),
            "MALFORMED_REQUEST",
        ),
        ("int4 in a segment", operand(type=tensor(8, element_type=INT4), segment={}), "INVALID_OPERAND"),
        ("an empty handle", operand(resident={}), "MALFORMED_REQUEST"),
        ("a handle of 15 bytes", operand(resident={"handle": bytes(15)}), "MALFORMED_REQUEST"),
        ("a handle of 17 bytes", operand(resident={"handle": bytes(17)}), "MALFORMED_REQUEST"),
        ("a handle of 100 KiB", operand(resident={"handle": bytes(100 << 10)}), "MALFORMED_REQUEST"),
        ("an unknown handle with a type", operand(type=array_type, resident={"handle": b"x" * 16}), "ARRAY_LOST"),
    ]


def _field(name, reason):
    return "" if reason == "ARRAY_LOST" else "operand 0"


ROWS = [
    *(planned(name, "INVALID_SHAPE", "operand 0", operands=[tensor(*shape)]) for name, shape in _SHAPES),
    *(
        planned(f"second operand: {name}", "INVALID_SHAPE", "operand 1", operands=[tensor(8), tensor(*shape)])
        for name, shape in _SHAPES
    ),
    *(
        planned(
            name, "UNSUPPORTED_ELEMENT_TYPE", "operand 0", operands=[array_pb2.ArrayType(element_type=c, shape=[8])]
        )
        for name, c in _CODES
    ),
    *(_put(name, inline_operand(shape, b""), "INVALID_SHAPE") for name, shape in _SHAPES[::2]),
    *(_opening(name, inline_operand(shape, b""), "INVALID_SHAPE") for name, shape in _SHAPES[1::2]),
    *(_put(name, inline_operand((8,), bytes(64), code), "UNSUPPORTED_ELEMENT_TYPE") for name, code in _CODES),
    *(_executed(name, inline_operand(shape, data), "SIZE_MISMATCH") for name, shape, data in _BYTES),
    _executed("bytes of 64 bits", inline_operand((8,), bytes(64), I32), "SIZE_MISMATCH"),
    _executed("complex halves", inline_operand((8,), bytes(64), C64 + 1), "SIZE_MISMATCH"),
    *(_put(name, inline_operand(shape, data), "SIZE_MISMATCH") for name, shape, data in _BYTES[::2]),
    *(_executed(name, inline_operand((4,), data, code), "INVALID_OPERAND") for name, code, data in _VALUES),
    *(_put(name, inline_operand((4,), data, code), "INVALID_OPERAND") for name, code, data in _VALUES),
    *(_executed(name, operand, reason, _field(name, reason)) for name, operand, reason in _sources()),
    *(
        _opening(name, operand, reason, _field(name, reason))
        for name, operand, reason in _sources()
        if not name.startswith("streamed")
    ),
]
