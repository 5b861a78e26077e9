"""Streams that break the contract's order, or claim what they do not send."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from end_to_end.messages import INVALID, NOT_FOUND, check, chunk, details, header

from shardcall.v1 import kernel_service_pb2

STREAMS = [
    ("nothing", "MALFORMED_REQUEST", "header", "begins with its header", []),
    ("a chunk first", "MALFORMED_REQUEST", "header", "begins with its header", [chunk(0, 0, 8)]),
    ("two headers", "MALFORMED_REQUEST", "header", "one header", [header([8]), header([8])]),
    ("an end too soon", "SIZE_MISMATCH", "operand 0", "after 32 of the 64", [header([8]), chunk(0, 0, 32)]),
    ("a gap", "MALFORMED_REQUEST", "chunk", "without gaps", [header([8]), chunk(0, 8, 32)]),
    ("another operand", "MALFORMED_REQUEST", "chunk", "operand 1", [header([8]), chunk(1, 0, 64)]),
    ("too many bytes", "SIZE_MISMATCH", "chunk", "72 bytes", [header([8]), chunk(0, 0, 72)]),
    ("a large chunk", "SIZE_MISMATCH", "chunk", "at most 1048576", [header([1 << 20]), chunk(0, 0, (1 << 20) + 8)]),
    ("a chunk more", "SIZE_MISMATCH", "chunk", "last byte", [header([8]), chunk(0, 0, 64), chunk(0, 64, 8)]),
    ("an empty chunk", "SIZE_MISMATCH", "chunk", "at least one byte", [header([8]), chunk(0, 0, 0)]),
    ("a shape bomb", "INVALID_SHAPE", "operand 0", "spans", [header([2**40, 2**40])]),
    ("unknown kernel", "KERNEL_NOT_FOUND", "kernel", "did you mean", [header([8], kernel="dif")]),
]


@pytest.mark.parametrize(
    ("name", "reason", "field", "says", "messages"), STREAMS, ids=lambda v: v if isinstance(v, str) else ""
)
def test_a_stream_out_of_order_is_refused_with_the_reason(stub, name, reason, field, says, messages):
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
