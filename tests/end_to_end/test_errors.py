"""Invalid requests: each row gets one clear error, and the server keeps working.

The rows use the protocol directly, so that the client's own checks do not reject them first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import grpc
import numpy as np
import pytest
from end_to_end.messages import (
    EXHAUSTED,
    INVALID,
    NOT_FOUND,
    call,
    check,
    details,
    execute,
    mesh,
    operand,
    spec,
    tensor,
)

from shardcall.v1 import array_pb2, kernel_pb2, kernel_service_pb2, mesh_pb2, timing_pb2
from shardcall_server.host_memory import memory_bytes


@dataclass
class Row:
    """A call that cannot be, and how it is answered."""

    name: str
    reason: str
    field: str
    says: str
    call: kernel_pb2.KernelCall = field(default_factory=call)
    operands: list = field(default_factory=lambda: [tensor(8, 4)])
    status: grpc.StatusCode = INVALID


X8 = {"mesh": mesh(x=8)}
MANY = {f"x{i}": 1 for i in range(99)}
PLANNED = [
    Row("unknown kernel", "KERNEL_NOT_FOUND", "kernel", "did you mean 'diff'?", call("dif"), status=NOT_FOUND),
    Row("no kernel", "KERNEL_NOT_FOUND", "kernel", "shardcall kernels, lists all", call(""), status=NOT_FOUND),
    Row("unknown parameter", "UNKNOWN_PARAMETER", "axes", "did you mean 'axis'?", call(parameters={"axes": 0})),
    Row("parameter of another kind", "PARAMETER_TYPE", "n", "n", call(parameters={"n": "two"})),
    Row("fractional order", "PARAMETER_TYPE", "n", "1.5", call(parameters={"n": 1.5})),
    Row("negative order", "INVALID_PARAMETER", "n", "-1", call(parameters={"n": -1})),
    Row("axis out of range", "AXIS_OUT_OF_RANGE", "axis", "-2 to 1", call(parameters={"axis": 2})),
    Row("scalar", "INVALID_OPERAND", "x", "one axis or more", operands=[tensor()]),
    Row("wrong rank of prepend", "INVALID_OPERAND", "prepend", "give a scalar", operands=[tensor(8, 4), tensor(4)]),
    Row("no operand", "OPERAND_COUNT", "x", "needs operand 'x'", operands=[]),
    Row("too many operands", "OPERAND_COUNT", "operands", "takes 3 operands", operands=[tensor(8)] * 4),
    Row("inner dimensions", "INVALID_OPERAND", "rhs", "4", call("matmul"), operands=[tensor(8, 4), tensor(5, 2)]),
    Row("unknown mesh axis", "UNKNOWN_MESH_AXIS", "in_specs[0]", "'x'", call(**X8, in_specs=[spec("y", None)])),
    Row("mesh axis twice", "MESH_AXIS_REUSED", "in_specs[0]", "twice", call(**X8, in_specs=[spec("x", "x")])),
    Row(
        "mesh axis twice in one entry",
        "MESH_AXIS_REUSED",
        "in_specs[0]",
        "twice",
        call(**X8, in_specs=[spec(("x", "x"))]),
    ),
    Row("spec too long", "SPEC_TOO_LONG", "in_specs[0]", "at most 2", call(**X8, in_specs=[spec("x", None, None)])),
    Row(
        "out spec too long", "SPEC_TOO_LONG", "out_specs[0]", "at most 2", call(**X8, out_specs=[spec(None, None, "x")])
    ),
    Row("more specs than operands", "INVALID_OPERAND", "in_specs", "at most one", call(**X8, in_specs=[spec()] * 9)),
    Row("more devices than exist", "NOT_ENOUGH_DEVICES", "mesh", "16", call(mesh=mesh(x=16))),
    Row("overflowing mesh", "NOT_ENOUGH_DEVICES", "mesh", "asks for", call(mesh=mesh(x=2**62, y=2**62))),
    Row("unknown device", "NOT_ENOUGH_DEVICES", "mesh.device_ids", "99", call(mesh=mesh(99, x=1))),
    Row("a device twice", "INVALID_MESH", "mesh.device_ids", "twice", call(mesh=mesh(0, 0, x=2))),
    Row("too few device ids", "INVALID_MESH", "mesh.device_ids", "names 1", call(mesh=mesh(0, x=2))),
    Row("empty mesh", "INVALID_MESH", "mesh", "no axes", call(mesh=mesh_pb2.Mesh())),
    Row("mesh axis of size 0", "INVALID_MESH", "mesh", "size 0", call(mesh=mesh(x=0))),
    Row("mesh axis of negative size", "INVALID_MESH", "mesh", "size -8", call(mesh=mesh(x=-8))),
    Row("mesh axis without a name", "INVALID_MESH", "mesh", "name", call(mesh=mesh(**{"": 8}))),
    Row("odd mesh axis name", "INVALID_MESH", "mesh", "letter", call(mesh=mesh(**{"x y\n": 8}))),
    Row("unknown strategy", "UNKNOWN_STRATEGY", "strategy", "did you mean 'halo'?", call(strategy="hallo")),
    Row(
        "strategy that cannot serve",
        "STRATEGY_UNSUPPORTED",
        "strategy",
        "these can: gspmd",
        call(**X8, strategy="halo", parameters={"n": 7, "axis": 0}, in_specs=[spec("x", None)]),
    ),
    Row("negative size", "INVALID_SHAPE", "operand 0", "0 or more", operands=[tensor(-1, 4)]),
    Row("overflowing shape", "INVALID_SHAPE", "operand 0", "spans", operands=[tensor(2**40, 2**40)]),
    Row("overflowing shape beside a zero", "INVALID_SHAPE", "operand 0", "spans", operands=[tensor(0, 2**62, 2**62)]),
    Row("huge sizes beside a zero", "INVALID_SHAPE", "operand 0", "spans", operands=[tensor(2**59, 0), tensor(0, 0)]),
    Row(
        "too many operands to look at",
        "MALFORMED_REQUEST",
        "operands",
        "100000 operands",
        operands=[tensor()] * 100_000,
    ),
    Row("too many specs", "MALFORMED_REQUEST", "in_specs", "at most 64", call(in_specs=[spec()] * 100_000)),
    Row("too many entries", "MALFORMED_REQUEST", "specs", "at most 32", call(in_specs=[spec(*[None] * 100_000)])),
    Row("too many names", "MALFORMED_REQUEST", "specs", "at most 16", call(in_specs=[spec(("x",) * 100_000)])),
    Row(
        "too many mesh axes",
        "MALFORMED_REQUEST",
        "mesh",
        "at most 16",
        call(mesh=mesh(**MANY)),
    ),
    Row(
        "too many parameters",
        "MALFORMED_REQUEST",
        "parameters",
        "at most 64",
        call(parameters=MANY),
    ),
    Row("a long parameter", "MALFORMED_REQUEST", "parameters", "characters", call(parameters={"n": "y" * 5000})),
    Row("too many axes", "INVALID_SHAPE", "operand 0", "at most 32", operands=[tensor(*[1] * 33)]),
    Row("unknown element type", "UNSUPPORTED_ELEMENT_TYPE", "operand 0", "77", operands=[tensor(8, element_type=77)]),
    Row(
        "element types without a common type",
        "UNSUPPORTED_ELEMENT_TYPE",
        "rhs",
        "float8",
        call("matmul"),
        operands=[
            tensor(4, 4, element_type=array_pb2.ELEMENT_TYPE_FLOAT8_E4M3FN),
            tensor(4, 4, element_type=array_pb2.ELEMENT_TYPE_FLOAT8_E5M2),
        ],
    ),
    Row(
        "operands over the limit",
        "CALL_TOO_LARGE",
        "operands",
        "one call may have",
        operands=[tensor(2**34)],
        status=EXHAUSTED,
    ),
    Row(
        "results over the limit",
        "CALL_TOO_LARGE",
        "operands",
        "results: float64",
        call("matmul"),
        operands=[tensor(2**20, 1), tensor(1, 2**20)],
        status=EXHAUSTED,
    ),
    Row(
        "no such collective axis",
        "INVALID_PARAMETER",
        "axis_name",
        "there are: x",
        call("collective_matmul", {"axis_name": "z"}, **X8),
        operands=[tensor(8, 8), tensor(8, 8)],
    ),
    Row(
        "no collective axis",
        "INVALID_PARAMETER",
        "axis_name",
        "needs parameter",
        call("collective_matmul", **X8),
        operands=[tensor(8, 8), tensor(8, 8)],
    ),
]


@pytest.mark.parametrize("row", PLANNED, ids=lambda row: row.name)
def test_an_invalid_call_is_refused_with_the_reason(stub, row):
    for method, request_class in (
        (stub.Plan, kernel_service_pb2.PlanRequest),
        (stub.Compile, kernel_service_pb2.CompileRequest),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            method(request_class(call=row.call, operands=row.operands), timeout=30)
        check(caught.value, row.status, row.reason, row.field, row.says)


X = np.arange(6.0)
EXECUTED = [
    ("too few bytes", "SIZE_MISMATCH", "operand 0", "48 bytes", execute(operand(X, inline={"data": b"123"})), INVALID),
    (
        "too many bytes",
        "SIZE_MISMATCH",
        "operand 0",
        "49 came",
        execute(operand(X, inline={"data": bytes(49)})),
        INVALID,
    ),
    (
        "huge claim",
        "SIZE_MISMATCH",
        "operand 0",
        "and 0 came",
        execute(kernel_service_pb2.Operand(type=tensor(2**30), inline={})),
        INVALID,
    ),
    (
        "odd bool",
        "INVALID_OPERAND",
        "operand 0",
        "0x02",
        execute(operand(np.zeros(3, bool), inline={"data": b"\0\1\2"})),
        INVALID,
    ),
    ("odd int4", "INVALID_OPERAND", "operand 0", "0xff", execute(operand(np.array([-1], np.int8))), INVALID),
    (
        "type without data",
        "MALFORMED_REQUEST",
        "operand 0",
        "no data",
        execute(kernel_service_pb2.Operand(type=tensor(6))),
        INVALID,
    ),
    (
        "data without type",
        "MALFORMED_REQUEST",
        "operand 0",
        "no type",
        execute(kernel_service_pb2.Operand(inline={"data": b""})),
        INVALID,
    ),
    (
        "stream in a unary call",
        "MALFORMED_REQUEST",
        "operand 0",
        "ExecuteStream",
        execute(operand(X, streamed={})),
        INVALID,
    ),
    (
        "segment",
        "SEGMENT_NOT_FOUND",
        "",
        "send the arrays as a stream",
        execute(operand(X, segment={"segment_id": bytes(16)})),
        NOT_FOUND,
    ),
    (
        "segment id",
        "MALFORMED_REQUEST",
        "operand 0",
        "16 bytes",
        execute(operand(X, segment={"segment_id": b"?"})),
        INVALID,
    ),
    (
        "checked bytes in a segment",
        "INVALID_OPERAND",
        "operand 0",
        "inline or as a stream",
        execute(operand(X > 0, segment={"segment_id": bytes(16)})),
        INVALID,
    ),
    (
        "resident",
        "ARRAY_LOST",
        "",
        "no array",
        execute(operand(X, resident={"handle": bytes(16)})),
        NOT_FOUND,
    ),
    ("kept", "MALFORMED_REQUEST", "lease_id", "16 to 64 random bytes", execute(operand(X), keep_results=True), INVALID),
]


@pytest.mark.parametrize(
    ("name", "reason", "field", "says", "request_", "status"), EXECUTED, ids=lambda v: v if isinstance(v, str) else ""
)
def test_invalid_operands_are_refused_with_the_reason(stub, name, reason, field, says, request_, status):
    with pytest.raises(grpc.RpcError) as caught:
        stub.Execute(request_, timeout=30)
    check(caught.value, status, reason, field, says)


@pytest.mark.parametrize("method", ["DescribeKernel", "Plan", "Compile", "Execute", "ExecuteStream"])
@pytest.mark.parametrize("data", [b"\xff" * 20, b"\x0a\x03\x0a\x01\xff"], ids=["garbage", "no UTF-8"])
def test_bytes_that_are_no_message_are_malformed(stub, channel, method, data):
    path = f"/shardcall.v1.KernelService/{method}"
    streams = method == "ExecuteStream"
    rpc = channel.stream_stream(path) if streams else channel.unary_unary(path)
    with pytest.raises(grpc.RpcError) as caught:
        list(rpc(iter([data]) if streams else data, timeout=60))
    assert caught.value.code() is INVALID
    assert details(caught.value)["ErrorInfo"].reason == "MALFORMED_REQUEST"


def test_unary_operands_beyond_their_limit_belong_in_a_stream(stub):
    with pytest.raises(grpc.RpcError) as caught:
        stub.Execute(execute(operand(np.zeros((1 << 17) + 1))), timeout=30)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert details(caught.value)["ErrorInfo"].reason == "STREAM_REQUIRED"


def test_an_array_on_more_devices_than_the_host_can_hold_is_refused(stub):
    # The result is within the limit of a call, a quarter of the memory; its 8 copies are not within all of it.
    n = math.isqrt(memory_bytes() // 5)
    boolean = array_pb2.ELEMENT_TYPE_BOOL
    operands = [tensor(n, 1, element_type=boolean), tensor(1, n, element_type=boolean)]
    replicated = call("matmul", **X8, in_specs=[spec(), spec()], out_specs=[spec()])
    request = kernel_service_pb2.PlanRequest(call=replicated, operands=operands)
    with pytest.raises(grpc.RpcError) as caught:
        stub.Plan(request, timeout=60)
    check(caught.value, EXHAUSTED, "OUT_OF_DEVICE_MEMORY", "mesh", "copies on several devices")


def test_a_message_beyond_the_limit_is_resource_exhausted(stub):
    with pytest.raises(grpc.RpcError) as caught:
        stub.Execute(execute(operand(np.zeros(1 << 20))), timeout=30)
    assert caught.value.code() is EXHAUSTED


@pytest.mark.parametrize("timeout", ["soon", "-1", "nan", ""])
def test_an_odd_timeout_is_refused(stub, timeout):
    with pytest.raises(grpc.RpcError) as caught:
        stub.Execute(execute(operand(X)), timeout=30, metadata=[("shardcall-timeout", timeout)])
    assert caught.value.code() is INVALID
    assert details(caught.value)["ErrorInfo"].reason == "MALFORMED_REQUEST"


def test_a_deadline_passed_while_compiling_names_the_compilation_and_its_time(stub):
    request = kernel_service_pb2.PlanRequest(call=call(**X8, in_specs=[spec("x")]), operands=[tensor(7777)])
    with pytest.raises(grpc.RpcError) as caught:
        stub.Plan(request, timeout=30, metadata=[("shardcall-timeout", "0.01")])
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert details(caught.value)["ErrorInfo"].reason == "DEADLINE_EXCEEDED"
    assert "compiling" in caught.value.details()
    timing = timing_pb2.Timing.FromString(dict(caught.value.trailing_metadata())["shardcall-timing-bin"])
    assert 0 < timing.compile_seconds <= timing.total_seconds
    # The compilation went on: the same call finds its program, or waits for that same one.
    assert stub.Plan(request, timeout=30).plan.kernel == "diff"


def test_values_of_any_length_come_back_short(stub):
    long = "y" * 100_000
    for request in (
        kernel_service_pb2.PlanRequest(call=call(long), operands=[tensor(8)]),
        kernel_service_pb2.PlanRequest(call=call(strategy=long), operands=[tensor(8)]),
        kernel_service_pb2.PlanRequest(call=call(parameters={long: 1}), operands=[tensor(8)]),
        kernel_service_pb2.PlanRequest(call=call(parameters={"n": long}), operands=[tensor(8)]),
        kernel_service_pb2.PlanRequest(call=call(mesh=mesh(**{long: 1})), operands=[tensor(8)]),
        kernel_service_pb2.PlanRequest(call=call(**X8, in_specs=[spec(long)]), operands=[tensor(8)]),
        kernel_service_pb2.PlanRequest(call=call(mesh=mesh(*range(1000), x=1)), operands=[tensor(8)]),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            stub.Plan(request, timeout=30)
        entries = details(caught.value)
        field = entries["BadRequest"].field_violations[0].field if "BadRequest" in entries else ""
        check(caught.value, caught.value.code(), entries["ErrorInfo"].reason, field, "")
