"""Rows about streams: messages out of order, chunks that do not fit, and bytes that are not a message."""

import random

import numpy as np
from end_to_end.messages import operand, tensor
from faults.bad_input_rows import BOOL, INT4, LEASE, METHODS, Row, call

from shardcall.v1 import array_pb2, array_service_pb2, kernel_service_pb2

_MAX_CHUNK_BYTES = 1 << 20
_REQUESTS = {"ExecuteStream": kernel_service_pb2.ExecuteStreamRequest, "PutArray": array_service_pb2.PutArrayRequest}


def _header(method, *types):
    operands = [kernel_service_pb2.Operand(type=array_type, streamed={}) for array_type in types]
    if method == "PutArray":
        return _REQUESTS[method](header=array_service_pb2.PutArrayHeader(array=operands[0], lease_id=LEASE))
    return _REQUESTS[method](header=kernel_service_pb2.ExecuteRequest(call=call(), operands=operands))


def _chunk(method, index=0, offset=0, data=bytes(8)):
    return _REQUESTS[method](chunk=array_pb2.TensorChunk(index=index, offset=offset, data=data))


_EIGHT = tensor(8)
_STREAMS = [
    # name, type of the header's operand (None: no header), then the chunks (index, offset, data)
    ("nothing", None, [], "MALFORMED_REQUEST", "header"),
    ("a chunk first", None, [(0, 0, bytes(64))], "MALFORMED_REQUEST", "header"),
    ("no chunk", _EIGHT, [], "SIZE_MISMATCH", "operand 0"),
    *((f"{n} bytes", _EIGHT, [(0, 0, bytes(n))], "SIZE_MISMATCH", "operand 0") for n in (32, 63)),
    *((f"{n} bytes", _EIGHT, [(0, 0, bytes(n))], "SIZE_MISMATCH", "chunk") for n in (65, 0)),
    ("an empty chunk between", _EIGHT, [(0, 0, bytes(32)), (0, 32, b""), (0, 32, bytes(32))], "SIZE_MISMATCH", "chunk"),
    ("a thousand empty chunks", _EIGHT, [(0, 0, b"")] * 1000, "SIZE_MISMATCH", "chunk"),
    *(
        (f"{n} bytes after the end", _EIGHT, [(0, 0, bytes(64)), (0, 64, bytes(n))], "SIZE_MISMATCH", "chunk")
        for n in (0, 8)
    ),
    ("all of it again", _EIGHT, [(0, 0, bytes(64))] * 2, "SIZE_MISMATCH", "chunk"),
    ("a chunk of no bytes' array", tensor(0), [(0, 0, bytes(8))], "SIZE_MISMATCH", "chunk"),
    ("a chunk over the limit", tensor(1 << 18), [(0, 0, bytes(_MAX_CHUNK_BYTES + 1))], "SIZE_MISMATCH", "chunk"),
    ("a claim of a GiB", tensor(1 << 27), [(0, 0, bytes(8))], "SIZE_MISMATCH", "operand 0"),
    ("a bool of 2", tensor(4, element_type=BOOL), [(0, 0, b"\1\0\2\1")], "INVALID_OPERAND", "operand 0"),
    (
        "int4 of 0x10",
        tensor(4, element_type=INT4),
        [(0, 0, b"\1\2"), (0, 2, b"\3\x10")],
        "INVALID_OPERAND",
        "operand 0",
    ),
]


_MISPLACED = [
    # chunks of an operand of 64 bytes: index, offset, size
    [(0, 8, 56)],
    [(0, 0, 32), (0, 33, 31)],
    [(0, 0, 32), (0, 31, 33)],
    [(0, 0, 32), (0, 0, 32)],
    [(0, 32, 32), (0, 0, 32)],
    [(0, 2**64 - 8, 64)],
    [(0, 2**63, 64)],
    [(1, 0, 64)],
    [(2**32 - 1, 0, 64)],
]


def _streams(method):
    for spans in _MISPLACED:
        chunks = [_chunk(method, index, offset, bytes(size)) for index, offset, size in spans]
        messages = [_header(method, _EIGHT), *chunks]
        yield Row(f"{method}: chunks {spans}", method, messages, "MALFORMED_REQUEST", "chunk")
    for name, array_type, chunks, reason, field in _STREAMS:
        opening = [] if array_type is None else [_header(method, array_type)]
        yield Row(f"{method}: {name}", method, [*opening, *(_chunk(method, *c) for c in chunks)], reason, field)
    complete = _chunk(method, data=bytes(64))
    for name, messages, field in (
        ("a message of nothing first", [_REQUESTS[method]()], "header"),
        ("a message of nothing", [_header(method, _EIGHT), _REQUESTS[method]()], "header"),
        ("two headers", [_header(method, _EIGHT)] * 2, "header"),
        ("a header between", [_header(method, _EIGHT), _chunk(method), _header(method, _EIGHT)], "header"),
    ):
        yield Row(f"{method}: {name}", method, messages, "MALFORMED_REQUEST", field)
    after = [_header(method, _EIGHT), complete, _header(method, _EIGHT)]
    yield Row(f"{method}: a header after the end", method, after, "SIZE_MISMATCH", "chunk")


def _of_two():
    """Streams of two operands, which come one after the other."""
    pair, half = [_header("ExecuteStream", _EIGHT, _EIGHT)], bytes(64)
    first, second = _chunk("ExecuteStream", data=half), _chunk("ExecuteStream", 1, data=half)
    inline = kernel_service_pb2.ExecuteRequest(call=call(), operands=[operand(np.arange(8.0))])
    for name, messages, reason, field in (
        ("the second first", [*pair, second, first], "MALFORMED_REQUEST", "chunk"),
        ("no second", [*pair, first], "SIZE_MISMATCH", "operand 1"),
        ("the first goes on", [*pair, first, _chunk("ExecuteStream", 0, 64)], "MALFORMED_REQUEST", "chunk"),
        ("a third", [*pair, first, second, _chunk("ExecuteStream", 2)], "SIZE_MISMATCH", "chunk"),
        ("a chunk of an inline operand", [_REQUESTS["ExecuteStream"](header=inline), first], "SIZE_MISMATCH", "chunk"),
    ):
        yield Row(f"two operands: {name}", "ExecuteStream", messages, reason, field)


def _noise():
    """Bytes that are not a message of any method, and truncated messages."""
    chosen = random.Random(5)
    pieces = [
        ("a tag without a value", b"\x0a"),
        ("a length beyond the end", b"\x0a\xff\xff\xff\xff\x0f"),
        ("a varint without an end", b"\xff" * 20),
        ("a group without an end", b"\x0b"),
        ("field number 0", b"\x00\x00"),
        ("wire type 7", b"\x0f\x01"),
        ("noise", chosen.randbytes(100) + b"\x0a\xff\xff\xff\x7f"),
    ]
    for method in METHODS:
        for name, data in pieces[:: 1 if method in {"Plan", "ExecuteStream"} else 3]:
            yield Row(f"{method}: {name}", method, [data], "MALFORMED_REQUEST", "request")
    for method in ("DescribeKernel", "Plan", "Compile", "Execute", "ExecuteStream"):
        yield Row(f"{method}: no Unicode", method, [b"\x0a\x03\x0a\x01\xff"], "MALFORMED_REQUEST", "request")


ROWS = [*_streams("ExecuteStream"), *_streams("PutArray"), *_of_two(), *_noise()]
