"""What a client may get wrong: each row one clear error, and a server that works on.

The rows speak the contract itself, so that nothing our own client checks first stands between.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import numpy as np
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from shardcall.v1 import (
    array_pb2,
    error_pb2,
    kernel_pb2,
    kernel_service_pb2,
    kernel_service_pb2_grpc,
    mesh_pb2,
    timing_pb2,
)

F64 = array_pb2.ELEMENT_TYPE_FLOAT64
INVALID, NOT_FOUND = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
EXHAUSTED, UNIMPLEMENTED = grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNIMPLEMENTED


def tensor(*shape, element_type=F64):
    return array_pb2.ArrayType(element_type=element_type, shape=shape)


def mesh(*device_ids, **axes):
    return mesh_pb2.Mesh(
        axes=[mesh_pb2.MeshAxis(name=name, size=size) for name, size in axes.items()], device_ids=device_ids
    )


def spec(*entries):
    names = [() if e is None else (e,) if isinstance(e, str) else e for e in entries]
    entries = [mesh_pb2.PartitionSpecEntry(axis_names=n) for n in names]
    return mesh_pb2.OptionalPartitionSpec(spec=mesh_pb2.PartitionSpec(entries=entries))


def parameter(value):
    match value:
        case bool():
            return kernel_pb2.ParameterValue(bool_value=value)
        case int():
            return kernel_pb2.ParameterValue(int_value=value)
        case float():
            return kernel_pb2.ParameterValue(float_value=value)
        case str():
            return kernel_pb2.ParameterValue(string_value=value)
        case _:
            return kernel_pb2.ParameterValue()


def call(kernel="diff", parameters=None, **fields):
    values = {name: parameter(value) for name, value in (parameters or {}).items()}
    return kernel_pb2.KernelCall(kernel=kernel, parameters=values, **fields)


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
PLANNED = [
    Row("unknown kernel", "KERNEL_NOT_FOUND", "kernel", "did you mean 'diff'?", call("dif"), status=NOT_FOUND),
    Row("no kernel", "KERNEL_NOT_FOUND", "kernel", "there are: ", call(""), status=NOT_FOUND),
    Row("unknown parameter", "UNKNOWN_PARAMETER", "axes", "did you mean 'axis'?", call(parameters={"axes": 0})),
    Row("parameter of another kind", "INVALID_PARAMETER", "n", "n", call(parameters={"n": "two"})),
    Row("fractional order", "INVALID_PARAMETER", "n", "1.5", call(parameters={"n": 1.5})),
    Row("negative order", "INVALID_PARAMETER", "n", "-1", call(parameters={"n": -1})),
    Row("axis out of range", "AXIS_OUT_OF_RANGE", "axis", "-2 to 1", call(parameters={"axis": 2})),
    Row("scalar", "INVALID_OPERAND", "x", "one axis or more", operands=[tensor()]),
    Row("wrong rank of prepend", "INVALID_OPERAND", "prepend", "give a scalar", operands=[tensor(8, 4), tensor(4)]),
    Row("no operand", "INVALID_OPERAND", "x", "needs operand 'x'", operands=[]),
    Row("too many operands", "INVALID_OPERAND", "operands", "takes 3 operands", operands=[tensor(8)] * 4),
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
        call(**X8, strategy="halo", parameters={"n": 3, "axis": 0}, in_specs=[spec("x", None)]),
    ),
    Row("negative size", "INVALID_SHAPE", "operand 0", "0 or more", operands=[tensor(-1, 4)]),
    Row("overflowing shape", "INVALID_SHAPE", "operand 0", "63 bits", operands=[tensor(2**40, 2**40)]),
    Row("overflowing shape beside a zero", "INVALID_SHAPE", "operand 0", "63 bits", operands=[tensor(0, 2**62, 2**62)]),
    Row("too many axes", "INVALID_SHAPE", "operand 0", "at most 32", operands=[tensor(*[1] * 33)]),
    Row("unknown element type", "UNSUPPORTED_ELEMENT_TYPE", "operand 0", "77", operands=[tensor(8, element_type=77)]),
    Row(
        "element types that do not meet",
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


@pytest.fixture(scope="module")
def stub(server) -> Iterator[kernel_service_pb2_grpc.KernelServiceStub]:
    with grpc.insecure_channel(server.address) as channel:
        yield kernel_service_pb2_grpc.KernelServiceStub(channel)


@pytest.fixture(autouse=True)
def _server_works_on(server, stub):
    before = server.worker_pids()
    yield
    assert server.process.poll() is None
    assert server.worker_pids() == before
    request = execute(operand(np.arange(6.0)))
    answer = stub.Execute(request, timeout=30)
    assert np.frombuffer(answer.results[0].inline.data).tolist() == [1.0] * 5


def operand(array, **fields):
    codes = {"float64": F64, "bool": array_pb2.ELEMENT_TYPE_BOOL, "int8": array_pb2.ELEMENT_TYPE_INT4}
    fields = fields or {"inline": kernel_service_pb2.InlineTensor(data=array.tobytes())}
    return kernel_service_pb2.Operand(type=tensor(*array.shape, element_type=codes[array.dtype.name]), **fields)


def execute(*operands, **fields):
    return kernel_service_pb2.ExecuteRequest(call=call(), operands=operands, **fields)


def details(error: grpc.RpcError) -> dict:
    status = rpc_status.from_call(error)
    assert status is not None, f"an error without details: {error}"
    found = {}
    for detail in status.details:
        for kind in (
            error_details_pb2.ErrorInfo,
            error_details_pb2.BadRequest,
            error_details_pb2.QuotaFailure,
            error_details_pb2.RetryInfo,
        ):
            if detail.Is(kind.DESCRIPTOR):
                message = kind()
                detail.Unpack(message)
                found[kind.__name__] = message
    return found


def check(error: grpc.RpcError, status, reason: str, field: str, says: str) -> None:
    assert error.code() is status, error
    found = details(error)
    assert found["ErrorInfo"].reason == reason
    assert found["ErrorInfo"].domain == "shardcall"
    assert f"ERROR_REASON_{reason}" in error_pb2.ErrorReason.keys()  # noqa: SIM118  # an enum is no dictionary
    assert says in error.details()
    if status is INVALID:
        assert found["BadRequest"].field_violations[0].field == field
    if status is EXHAUSTED:
        assert found["QuotaFailure"].violations
    metadata = dict(error.trailing_metadata())
    timing = timing_pb2.Timing.FromString(metadata["shardcall-timing-bin"])
    assert timing.total_seconds > 0
    assert sum(len(k) + len(v) for k, v in metadata.items()) + len(error.details()) < 4096


@pytest.mark.parametrize("row", PLANNED, ids=lambda row: row.name)
@pytest.mark.parametrize("method", ["Plan", "Compile"])
def test_a_call_that_cannot_be_is_told_why(stub, row, method):
    kind = {"Plan": kernel_service_pb2.PlanRequest, "Compile": kernel_service_pb2.CompileRequest}[method]
    with pytest.raises(grpc.RpcError) as caught:
        getattr(stub, method)(kind(call=row.call, operands=row.operands), timeout=30)
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
    ("segment", "NOT_SUPPORTED", "operand 0", "segments", execute(operand(X, segment={})), UNIMPLEMENTED),
    ("resident", "NOT_SUPPORTED", "operand 0", "resident", execute(operand(X, resident={})), UNIMPLEMENTED),
    ("kept", "NOT_SUPPORTED", "keep_results", "keep_results", execute(operand(X), keep_results=True), UNIMPLEMENTED),
]


@pytest.mark.parametrize(
    ("name", "reason", "field", "says", "request_", "status"), EXECUTED, ids=lambda v: v if isinstance(v, str) else ""
)
def test_operands_that_cannot_be_are_told_why(stub, name, reason, field, says, request_, status):
    with pytest.raises(grpc.RpcError) as caught:
        stub.Execute(request_, timeout=30)
    check(caught.value, status, reason, field, says)


def header(*shapes, **fields):
    operands = [kernel_service_pb2.Operand(type=tensor(*shape), streamed={}) for shape in shapes]
    return kernel_service_pb2.ExecuteStreamRequest(
        header=kernel_service_pb2.ExecuteRequest(call=call(**fields), operands=operands)
    )


def chunk(index, offset, size):
    return kernel_service_pb2.ExecuteStreamRequest(
        chunk=array_pb2.TensorChunk(index=index, offset=offset, data=bytes(size))
    )


STREAMS = [
    ("nothing", "MALFORMED_REQUEST", "header", "begins with its header", []),
    ("a chunk first", "MALFORMED_REQUEST", "header", "begins with its header", [chunk(0, 0, 8)]),
    ("two headers", "MALFORMED_REQUEST", "header", "one header", [header([8]), header([8])]),
    ("an end too soon", "SIZE_MISMATCH", "operand 0", "after 32 of the 64", [header([8]), chunk(0, 0, 32)]),
    ("a gap", "MALFORMED_REQUEST", "chunk", "without gaps", [header([8]), chunk(0, 8, 32)]),
    ("another operand", "MALFORMED_REQUEST", "chunk", "operand 1", [header([8]), chunk(1, 0, 64)]),
    ("too many bytes", "SIZE_MISMATCH", "chunk", "72 bytes", [header([8]), chunk(0, 0, 72)]),
    ("a chunk more", "SIZE_MISMATCH", "chunk", "last byte", [header([8]), chunk(0, 0, 64), chunk(0, 64, 8)]),
    ("an empty chunk", "SIZE_MISMATCH", "chunk", "at least one byte", [header([8]), chunk(0, 0, 0)]),
    ("a shape bomb", "INVALID_SHAPE", "operand 0", "63 bits", [header([2**40, 2**40])]),
    ("unknown kernel", "KERNEL_NOT_FOUND", "kernel", "did you mean", [header([8], kernel="dif")]),
]


@pytest.mark.parametrize(
    ("name", "reason", "field", "says", "messages"), STREAMS, ids=lambda v: v if isinstance(v, str) else ""
)
def test_a_stream_out_of_order_is_told_why(stub, name, reason, field, says, messages):
    with pytest.raises(grpc.RpcError) as caught:
        list(stub.ExecuteStream(iter(messages), timeout=30))
    status = NOT_FOUND if reason == "KERNEL_NOT_FOUND" else INVALID
    check(caught.value, status, reason, field, says)


def test_a_call_refused_for_its_header_is_answered_before_its_chunks_are_read(stub):
    def messages() -> Iterator[kernel_service_pb2.ExecuteStreamRequest]:
        yield header([2**20], kernel="dif")
        answered.wait(30)  # the server has nothing more to read until it has answered

    answered = threading.Event()
    stream = stub.ExecuteStream(messages(), timeout=30)
    with pytest.raises(grpc.RpcError) as caught:
        next(stream)
    answered.set()
    assert caught.value.code() is NOT_FOUND


def test_a_claim_allocates_nothing(server, stub):
    def resident_kib() -> int:
        pids = [server.process.pid, *server.worker_pids()]
        lines = [line for pid in pids for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
        return sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssShmem")))

    def claims(size: int) -> Callable[[], None]:
        return lambda: list(stub.ExecuteStream(iter([header([size]), chunk(0, 0, 8)]), timeout=30))

    with pytest.raises(grpc.RpcError):
        claims(2**26)()  # warms up
    before = resident_kib()
    for _ in range(10):
        with pytest.raises(grpc.RpcError) as caught:
            claims(2**26)()  # 512 MiB said, 8 bytes sent
        assert details(caught.value)["ErrorInfo"].reason == "SIZE_MISMATCH"
    assert resident_kib() - before < 64 << 10


def test_a_message_over_the_limit_is_resource_exhausted(stub):
    with pytest.raises(grpc.RpcError) as caught:
        stub.Execute(execute(operand(np.zeros(1 << 20))), timeout=30)
    assert caught.value.code() is EXHAUSTED


@pytest.mark.parametrize("given", ["soon", "-1", "nan", ""])
def test_an_odd_timeout_is_refused(stub, given):
    with pytest.raises(grpc.RpcError) as caught:
        stub.Execute(execute(operand(X)), timeout=30, metadata=[("shardcall-timeout", given)])
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
    assert timing.compile_seconds >= 0.009
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
        found = details(caught.value)
        field = found["BadRequest"].field_violations[0].field if "BadRequest" in found else ""
        check(caught.value, caught.value.code(), found["ErrorInfo"].reason, field, "")
