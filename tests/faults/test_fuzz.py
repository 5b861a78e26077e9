"""Requests, frames and graphs changed at random: each is served rightly or refused by name, and others stay right."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import grpc
import numpy as np
import pytest
from end_to_end.messages import INVALID, call, details, mesh, open_channel, tensor
from faults.bad_input_rows import send
from faults.callers import beside_a_canary
from faults.gauges import MIB
from faults.graph_mutations import mutated_call
from faults.mutations import Mutations, ValidRequest
from faults.mutations_seeds import valid_requests
from faults.raw_call_stream import RawCallStream, cancel, delete, diff_of, error_info, prepare, put, read, result, run
from faults.right_answers import wrong
from faults.test_bad_input import SERVER_DETAILS
from google.rpc import status_pb2
from servers import ServerProcess, running_server

import shardcall as sc
from shardcall.v1 import call_stream_pb2

pytestmark = [pytest.mark.fuzz, pytest.mark.long]

SEED = os.environ.get("FUZZ_SEED", "2")
COUNT, GRAPHS = 10_000, 5_000
_DEADLINE_S = 30.0
_GRAPH_DEADLINE_S = 600.0  # longer than it compiles: 509 hyperbolic tangents of each other take more than 300 s
_BUSY_S = 10.0  # allowance of a busy machine beyond the promised second
_MAX_CHARACTERS = 500  # of a refusal of a graph
_FLAGS = ("--max-call-bytes", str(32 * MIB), "--max-bytes-in-flight", str(256 * MIB), "--log-level", "error")
_X = np.arange(24.0).reshape(6, 4)
_LEASE = b"lease of the fuzz"
_CHECK = 1 << 40
"""The number of a call on a stream of its own, which must stay right."""
_NEVER = {
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
}
_NEVER_IN_STREAMS = {"INTERNAL", "COMPILE_FAILED", "TOKEN_REQUIRED"}
_ENDS = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED}

Attempt = Callable[[int], tuple[list[str], str]]
"""Sends the change of a number; returns the reasons of the answers, OK for none, and a fault, empty for none."""


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> Iterator[ServerProcess]:
    """A server whose largest call is small, so that requests that are valid by chance end soon."""
    log = tmp_path_factory.mktemp("fuzz") / "log"
    with running_server(*_FLAGS, log=log, why="its calls are small") as server:
        yield server


def fuzz(
    server: ServerProcess, figure: Callable[[str], None], attempt: Attempt, count: int, threads: int, deadline_s: float
) -> Counter[str]:
    """Makes attempts, none of which may have a fault, beside a canary; returns the number of each reason."""
    met, faults, longest = Counter[str](), list[str](), (0.0, -1)

    def timed(number: int) -> tuple[list[str], str, float]:
        began = time.monotonic()
        return *attempt(number), time.monotonic() - began

    with beside_a_canary(server, figure), ThreadPoolExecutor(threads) as pool:
        for number, (reasons, fault, took) in enumerate(pool.map(timed, range(count))):
            met.update(reasons)
            longest = max(longest, (took, number))
            if fault or took > deadline_s + 1 + _BUSY_S:
                faults.append(f"seed {SEED}, number {number}, {took:.1f} s: {fault}")
        assert server.log is not None
        assert not faults, "\n".join([f"{len(faults)} faults", *faults[:20], server.log.read_text()[-6000:]])
    counts = ", ".join(f"{name} {count}" for name, count in met.most_common())
    figure(f"seed {SEED}: {counts}; longest {longest[0]:.2f} s (number {longest[1]})")
    assert met["OK"]
    return met


def classify(error: grpc.RpcError) -> tuple[str, str]:
    """Returns the reason of an error and its fault; empty for none."""
    code, text = error.code(), error.details() or ""
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in text:
        return "MESSAGE_TOO_LARGE", ""  # gRPC's own message
    parts = details(error)
    reason = parts["ErrorInfo"].reason
    if (code in _NEVER and reason != "COMPILE_LIMIT") or reason == "COMPILE_FAILED":
        return reason, f"ended with {code.name} {reason}"
    if code is INVALID and not ("BadRequest" in parts and parts["BadRequest"].field_violations[0].field):
        return reason, "names no field"
    if not text or SERVER_DETAILS.search(text):
        return reason, f"says {text!r}"
    return reason, ""


def _limited(seconds: float) -> list[tuple[str, str]]:
    return [("shardcall-timeout", str(seconds))]


def _request(channel: grpc.Channel, mutations: Mutations, number: int) -> tuple[list[str], str]:
    request, reasons = mutations[number], ["OK"]
    try:
        answers = list(send(channel, request.method, request.messages, _limited(_DEADLINE_S), 2 * _DEADLINE_S))
        fault = wrong(channel, request, answers)
        reasons += [] if fault is None else ["compared with NumPy"]
    except grpc.RpcError as error:
        reason, fault = classify(error)
        reasons = [reason]
    except Exception as error:  # noqa: BLE001  # reported with the request that led to it
        reasons, fault = ["UNREADABLE"], repr(error)
    return reasons, f"{fault}: {request}" if fault else ""


def test_mutated_requests_are_refused_by_name_or_served_rightly(target, figure):
    with (
        sc.connect(target.address) as client,
        client.put(_X, mesh=sc.Mesh(x=2)) as there,
        open_channel(target.address) as channel,
    ):
        mutations = Mutations(valid_requests(bytes.fromhex(there.handle), _LEASE), SEED)
        met = fuzz(target, figure, partial(_request, channel, mutations), COUNT, 4, _DEADLINE_S)
    assert met["compared with NumPy"]


def _graph(channel: grpc.Channel, number: int) -> tuple[list[str], str]:
    mutated = mutated_call(SEED, number)
    try:
        list(send(channel, "Execute", [mutated.execution()], _limited(_GRAPH_DEADLINE_S), 2 * _GRAPH_DEADLINE_S))
    except grpc.RpcError as error:
        reason, fault = classify(error)
        message = error.details() or ""
        fault = fault or (f"says {message!r}" if len(message) > _MAX_CHARACTERS else "")
        return [reason], fault and f"{fault}: {mutated}"
    return ["OK"], ""


def test_mutated_graphs_are_refused_by_name_or_run(target, figure):
    with open_channel(target.address) as channel:
        fuzz(target, figure, partial(_graph, channel), GRAPHS, 2, _GRAPH_DEADLINE_S)


def valid_streams(handle: bytes) -> list[ValidRequest]:
    """Streams of every item; ``handle`` is that of an array on the mesh, of the shape of ``_X``."""
    limit = {"timeout_seconds": _DEADLINE_S}
    sharded = call("diff", {"axis": 0}, mesh=mesh(x=2))
    kept = {"keep_results": True, "lease_id": _LEASE}
    handles = [bytes([i]) * 16 for i in range(1, 4)]
    streams = [
        [[diff_of(8), run(1, np.arange(8.0), **limit)], [run(2, np.ones(8), **limit)]],
        [[prepare(3, sharded, (6, 4)), run(1, _X, slot=3, request_id="fuzz", **limit)], [cancel(1)]],
        [[prepare(255, call("add"), (6, 4), (6, 4)), run(7, _X, _X, slot=255, **limit)]],
        [[prepare(0, sharded, (6, 4))], [run(1, handle, **limit), read(2, handle, **limit)]],
        [
            [prepare(0, call("add"), (6, 4), (6, 4), **kept), run(1, _X, handle, result_handles=handles[:1], **limit)],
            [run(2, handles[0], handles[0], result_handles=handles[1:2], **limit), read(4, handles[0], **limit)],
            [put(5, _X, handles[2], type=tensor(6, 4), mesh=mesh(x=2), lease_id=_LEASE, **limit)],
            [read(6, handles[2], **limit), delete(*handles)],
            [prepare(0, call("diff"), (6, 4)), run(3, handles[1], **limit)],
        ],
    ]
    return [
        ValidRequest(tuple(call_stream_pb2.CallStreamRequest(items=items) for items in frames)) for frames in streams
    ]


def _frames(channel: grpc.Channel, mutations: Mutations, number: int) -> tuple[list[str], str]:
    request, reasons, fault = mutations[number], list[str](), ""
    try:
        for data in send(channel, "CallStream", request.messages, timeout=120):
            for answer in call_stream_pb2.CallStreamResponse.FromString(data).answers:
                reasons.append(error_info(answer).reason if answer.status else "OK")
                text = status_pb2.Status.FromString(answer.status).message
                if answer.status and (reasons[-1] in _NEVER_IN_STREAMS or not text or SERVER_DETAILS.search(text)):
                    fault = f"{reasons[-1]}: {text!r}: {request}"
    except grpc.RpcError as error:
        text = error.details() or ""
        if error.code() not in _ENDS or SERVER_DETAILS.search(text):
            fault = f"the stream ended with {error.code().name}: {text}: {request}"
        elif "larger than max" not in text:
            reasons.append(f"stream: {details(error)['ErrorInfo'].reason}")
    return reasons, fault


def test_mutated_frames_are_refused_by_name_or_served_rightly(target, figure):
    """An undisturbed stream of the same client and connection stays right all the while."""
    handle = bytes(range(16))
    with open_channel(target.address) as channel, RawCallStream(channel) as undisturbed:
        prepared = prepare(1, call("add"), (6, 4), (6, 4), keep_results=True, lease_id=_LEASE)
        undisturbed.send(prepared, run(0, _X, _X, slot=1, result_handles=[handle]), diff_of(8))
        undisturbed.answer(0)
        mutations = Mutations(valid_streams(handle), SEED)

        def attempt(number: int) -> tuple[list[str], str]:
            outcome = _frames(channel, mutations, number)
            undisturbed.send(run(_CHECK + number, np.arange(8.0)))
            assert result(undisturbed.answer(_CHECK + number)).tolist() == [1.0] * 7
            return outcome

        fuzz(target, figure, attempt, COUNT, 4, 120.0)
