"""Invalid requests in the protocol's own words: what their errors say, and that the server keeps working.

The reason and the field of every invalid request, of operands too, are in the tables of `faults/test_bad_input.py`.
"""

import math
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import grpc
import numpy as np
import pytest
from end_to_end.messages import (
    EXHAUSTED,
    INVALID,
    NOT_FOUND,
    call,
    check,
    chunk,
    details,
    execute,
    header,
    mesh,
    operand,
    spec,
    tensor,
)

from shardcall.v1 import array_pb2, kernel_service_pb2, timing_pb2
from shardcall_server.host_memory import memory_bytes

X = np.arange(6.0)
X8 = {"mesh": mesh(x=8)}
SAYS = {
    "did you mean 'diff'?": (call("dif"), NOT_FOUND, "KERNEL_NOT_FOUND", "kernel"),
    "shardcall kernels, lists all": (call(""), NOT_FOUND, "KERNEL_NOT_FOUND", "kernel"),
    "did you mean 'axis'?": (call(parameters={"axes": 0}), INVALID, "UNKNOWN_PARAMETER", "axes"),
    "no axis of the mesh (x=8)": (call(**X8, in_specs=[spec("y", None)]), INVALID, "UNKNOWN_MESH_AXIS", "in_specs[0]"),
    "twice": (call(**X8, in_specs=[spec("x", "x")]), INVALID, "MESH_AXIS_REUSED", "in_specs[0]"),
    "at most 2": (call(**X8, out_specs=[spec(None, None, "x")]), INVALID, "SPEC_TOO_LONG", "out_specs[0]"),
    "at most one": (call(**X8, in_specs=[spec()] * 9), INVALID, "INVALID_OPERAND", "in_specs"),
    "16": (call(mesh=mesh(x=16)), INVALID, "NOT_ENOUGH_DEVICES", "mesh"),
    "99": (call(mesh=mesh(99, x=1)), INVALID, "NOT_ENOUGH_DEVICES", "mesh.device_ids"),
    "names 1": (call(mesh=mesh(0, x=2)), INVALID, "INVALID_MESH", "mesh.device_ids"),
    "size -8": (call(mesh=mesh(x=-8)), INVALID, "INVALID_MESH", "mesh"),
    "did you mean 'halo'?": (call(strategy="hallo"), INVALID, "UNKNOWN_STRATEGY", "strategy"),
}


def refusal(attempt: Callable[[], object]) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as caught:
        attempt()
    return caught.value


@pytest.mark.parametrize("says", SAYS)
def test_an_invalid_call_is_refused_with_a_remedy(stub, says):
    asked, status, reason, field = SAYS[says]
    for method, request_class in (
        (stub.Plan, kernel_service_pb2.PlanRequest),
        (stub.Compile, kernel_service_pb2.CompileRequest),
    ):
        error = refusal(partial(method, request_class(call=asked, operands=[tensor(8, 4)]), timeout=30))
        check(error, status, reason, field, says)


def test_an_array_on_more_devices_than_the_host_can_hold_is_refused(stub):
    # The result is within the limit of a call, a quarter of the memory; its 8 copies are not within all of it.
    n = math.isqrt(memory_bytes() // 5)
    boolean = array_pb2.ELEMENT_TYPE_BOOL
    operands = [tensor(n, 1, element_type=boolean), tensor(1, n, element_type=boolean)]
    replicated = call("matmul", **X8, in_specs=[spec(), spec()], out_specs=[spec()])
    request = kernel_service_pb2.PlanRequest(call=replicated, operands=operands)
    error = refusal(lambda: stub.Plan(request, timeout=60))
    check(error, EXHAUSTED, "OUT_OF_DEVICE_MEMORY", "mesh", "copies on several devices")


def test_a_message_beyond_the_limit_is_resource_exhausted(stub):
    assert refusal(lambda: stub.Execute(execute(operand(np.zeros(1 << 20))), timeout=30)).code() is EXHAUSTED


def test_a_deadline_passed_while_compiling_names_the_compilation_and_its_time(stub):
    diff = call(**X8, in_specs=[spec("x")])
    for size, timeout in ((7777, "0.01"), (7778, "0.02"), (7779, "0.04"), (7780, "0.06")):
        request = kernel_service_pb2.PlanRequest(call=diff, operands=[tensor(size)])
        error = refusal(partial(stub.Plan, request, timeout=30, metadata=[("shardcall-timeout", timeout)]))
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert details(error)["ErrorInfo"].reason == "DEADLINE_EXCEEDED"
        if "looking" not in error.details():  # a busy machine may not have begun to compile by then
            break
    assert "compiling" in error.details()
    timing = timing_pb2.Timing.FromString(dict(error.trailing_metadata())["shardcall-timing-bin"])
    assert 0 < timing.compile_seconds <= timing.total_seconds
    # The compilation went on: the same call finds its program, or waits for that same one.
    assert stub.Plan(request, timeout=30).plan.kernel == "diff"


def test_a_call_refused_for_its_header_is_answered_before_its_chunks_are_read(stub):
    def messages() -> Iterator[kernel_service_pb2.ExecuteStreamRequest]:
        yield header([2**20], kernel="dif")
        answered.wait(30)  # the server has nothing more to read until it has answered

    answered = threading.Event()
    stream = stub.ExecuteStream(messages(), timeout=30)
    error = refusal(lambda: next(stream))
    answered.set()
    check(error, NOT_FOUND, "KERNEL_NOT_FOUND", "kernel", "did you mean")


def test_a_claim_of_many_bytes_allocates_nothing(server, stub):
    def resident_kib() -> int:
        pids = [server.process.pid, *server.worker_pids()]
        lines = [line for pid in pids for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
        return sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssShmem")))

    def claim() -> None:
        sent = [header([2**26]), chunk(0, 0, 8)]  # 512 MiB said, 8 bytes sent
        error = refusal(lambda: list(stub.ExecuteStream(iter(sent), timeout=30)))
        assert details(error)["ErrorInfo"].reason == "SIZE_MISMATCH"

    claim()  # warms up
    before = resident_kib()
    for _ in range(10):
        claim()
    assert resident_kib() - before < 64 << 10
