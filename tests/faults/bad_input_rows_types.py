"""Rows about arrays: their shapes, element types and bytes, wherever a request has one."""

from end_to_end.messages import tensor
from faults.bad_input_rows import BIG, BOOL, C64, I32, INT4, MIN, UINT4, call, inline_operand, planned, put, row

from shardcall.v1 import array_pb2, kernel_service_pb2

_SHAPES = [
    *((-1,), (8, 4, -1), (MIN, 2), (BIG,), (2**31, 2**31), (2**16,) * 4, (2**32, 2**32)),
    *((0, BIG, BIG), (2**62, 0), (BIG,) * 32, (1,) * 33, (0,) * 33, (1,) * 1000, (2,) * 1000, (3,) * 32),
]
_CODES = [20, 2**31 - 1, -1, -(2**31), 0]
_BYTES = [
    *(((8,), 0), ((8,), 63), ((8,), 65), ((8, 2), 64), ((0,), 8), ((), 0), ((), 16), ((16,), 64)),
    *(((2**37,), 8), ((2**47,), 8)),
]
_VALUES = [
    *((BOOL, b"\0\1\2\1"), (BOOL, b"\xff\1\0\1"), (BOOL, b"\1\1\0\x80"), (INT4, b"\0\1\x10\1"), (INT4, b"\0\1\2\xff")),
    *((INT4, b"\x80\0\0\0"), (UINT4, b"\0\1\x10\1"), (UINT4, b"\xf0\1\0\1")),
]


def _shape(shape):
    return f"{len(shape)} axes, {shape[:4]}"


def _executed(name, operand, reason, field="operand 0"):
    return row(name, kernel_service_pb2.ExecuteRequest(call=call(), operands=[operand]), reason, field)


def _opening(name, operand, reason, field="operand 0"):
    header = kernel_service_pb2.ExecuteRequest(call=call(), operands=[operand])
    return row(name, kernel_service_pb2.ExecuteStreamRequest(header=header), reason, field)


def _sources():
    """Operands whose type and bytes do not match."""
    array_type, inline = tensor(8), kernel_service_pb2.InlineTensor(data=bytes(64))
    operand = kernel_service_pb2.Operand
    yield "an empty type with bytes", operand(type={}, inline=inline), "UNSUPPORTED_ELEMENT_TYPE"
    yield "int4 in a segment", operand(type=tensor(8, element_type=INT4), segment={}), "INVALID_OPERAND"
    yield "an unknown handle with a type", operand(type=array_type, resident={"handle": b"x" * 16}), "ARRAY_LOST"
    malformed = {
        "nothing but an unset type's bytes": operand(inline=inline),
        "streamed without a type": operand(streamed={}),
        "a segment without a type": operand(segment={"segment_id": bytes(16)}),
        "a type without a source": operand(type=array_type),
        "an empty segment": operand(type=array_type, segment={}),
        "a segment id of 15 bytes": operand(type=array_type, segment={"segment_id": bytes(15)}),
        "a segment id of 1 MiB": operand(type=array_type, segment={"segment_id": bytes(1 << 20)}),
        **{f"a handle of {size} bytes": operand(resident={"handle": bytes(size)}) for size in (0, 15, 17, 100 << 10)},
    }
    for name, source in malformed.items():
        yield name, source, "MALFORMED_REQUEST"


def _field(reason):
    return "" if reason == "ARRAY_LOST" else "operand 0"


ROWS = [
    *(planned(_shape(shape), "INVALID_SHAPE", "operand 0", operands=[tensor(*shape)]) for shape in _SHAPES),
    *(
        planned(f"second operand: {_shape(shape)}", "INVALID_SHAPE", "operand 1", operands=[tensor(8), tensor(*shape)])
        for shape in _SHAPES
    ),
    *(
        planned(
            f"type {c}", "UNSUPPORTED_ELEMENT_TYPE", "operand 0", None, [array_pb2.ArrayType(element_type=c, shape=[8])]
        )
        for c in _CODES
    ),
    *(put(_shape(shape), "INVALID_SHAPE", "operand 0", array=inline_operand(shape, b"")) for shape in _SHAPES[::2]),
    *(_opening(_shape(shape), inline_operand(shape, b""), "INVALID_SHAPE") for shape in _SHAPES[1::2]),
    *(
        put(f"type {c}", "UNSUPPORTED_ELEMENT_TYPE", "operand 0", array=inline_operand((8,), bytes(64), c))
        for c in _CODES
    ),
    *(_executed(f"{n} bytes of {shape}", inline_operand(shape, bytes(n)), "SIZE_MISMATCH") for shape, n in _BYTES),
    _executed("bytes of 64 bits", inline_operand((8,), bytes(64), I32), "SIZE_MISMATCH"),
    _executed("complex halves", inline_operand((8,), bytes(64), C64 + 1), "SIZE_MISMATCH"),
    *(
        put(f"{n} bytes of {shape}", "SIZE_MISMATCH", "operand 0", array=inline_operand(shape, bytes(n)))
        for shape, n in _BYTES[::2]
    ),
    *(_executed(f"{data} of {code}", inline_operand((4,), data, code), "INVALID_OPERAND") for code, data in _VALUES),
    *(
        put(f"{data} of {code}", "INVALID_OPERAND", "operand 0", array=inline_operand((4,), data, code))
        for code, data in _VALUES
    ),
    *(_executed(name, operand, reason, _field(reason)) for name, operand, reason in _sources()),
    *(
        _opening(name, operand, reason, _field(reason))
        for name, operand, reason in _sources()
        if not name.startswith("streamed")
    ),
]
