"""Requests changed at random are served rightly or refused by name; those that claim much, at little cost."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import grpc
import numpy as np
import pytest
from end_to_end.messages import INVALID, details, mesh, open_channel, spec, tensor
from faults.bad_input_rows import BIG, X8, call, inline_operand, send
from faults.bad_input_rows_parameters import LARGE
from faults.callers import beside_a_canary
from faults.gauges import MIB, Gauges
from faults.graph_mutations import mutated_call
from faults.mutations import MutatedRequest, Mutations, ValidRequest, valid_requests
from faults.raw_call_stream import RawCallStream, cancel, delete, diff_of, error_info, prepare, put, read, result, run
from faults.test_bad_input import SERVER_DETAILS
from google.rpc import status_pb2
from servers import ServerProcess, running_server

import shardcall as sc
from shardcall.v1 import array_service_pb2, array_service_pb2_grpc, call_stream_pb2, kernel_service_pb2
from shardcall_core.types.element_types import to_dtype
from shardcall_server.host_memory import memory_bytes

pytestmark = [pytest.mark.fuzz, pytest.mark.long]


def wrong(channel: grpc.Channel, request: MutatedRequest, answers: list[bytes]) -> str | None:
    """Describes the fault of an answer; empty for none, None where the right answer is not known.

    Known are differences of arrays in the message, which NumPy takes too, and arrays that were put: they come back.
    """
    if request.method == "PutArray":
        return _put(channel, request, array_service_pb2.PutArrayResponse.FromString(answers[0]))
    if request.method == "Execute":
        sent = kernel_service_pb2.ExecuteRequest.FromString(request.messages[0])
        result = kernel_service_pb2.ExecuteResponse.FromString(answers[0]).results[0]
        return _difference(sent, result.type, result.inline.data, result.WhichOneof("source"))
    return None


def _put(channel: grpc.Channel, request: MutatedRequest, answer: array_service_pb2.PutArrayResponse) -> str:
    messages = [array_service_pb2.PutArrayRequest.FromString(data) for data in request.messages]
    sent = messages[0].header.array.inline.data + b"".join(message.chunk.data for message in messages[1:])
    stub = array_service_pb2_grpc.ArrayServiceStub(channel)
    handle = answer.array.handle
    got = list(stub.GetArray(array_service_pb2.GetArrayRequest(handle=handle), timeout=60))
    stub.DeleteArrays(array_service_pb2.DeleteArraysRequest(handles=[handle]), timeout=60)
    source = got[0].header.array
    data = source.inline.data + b"".join(message.chunk.data for message in got)
    return "" if data == sent else f"put {sent[:100]!r} and got {data[:100]!r}"


def _difference(sent: kernel_service_pb2.ExecuteRequest, array_type, data: bytes, source: str) -> str | None:
    if sent.call.kernel != "diff" or source != "inline":
        return None
    arrays = [_array(operand) for operand in sent.operands]
    options = {name: value.int_value for name, value in sent.call.parameters.items()}
    if not arrays or any(array is None or not array.size for array in arrays) or len(arrays) > 3:
        return None
    if any(value.WhichOneof("kind") != "int_value" for value in sent.call.parameters.values()):
        return None
    edges = dict(zip(("prepend", "append"), arrays[1:], strict=False))
    if "n" in options:  # NumPy continues when no row is left
        options["n"] = min(options["n"], 1 + sum(array.size for array in arrays))
    with np.errstate(all="ignore"):
        expected = np.diff(arrays[0], **options, **edges)
    result = np.frombuffer(data, to_dtype(array_type.element_type)).reshape(array_type.shape)
    return "" if _equal(result, expected) else f"answered {result.tolist()} where NumPy has {expected.tolist()}"


def _array(operand: kernel_service_pb2.Operand) -> np.ndarray | None:
    """An operand as NumPy has it; None for one that is elsewhere, and for types that NumPy itself lacks."""
    if operand.WhichOneof("source") != "inline":
        return None
    dtype = to_dtype(operand.type.element_type)
    if dtype.kind not in "biufc" or not dtype.isbuiltin:
        return None
    return np.frombuffer(operand.inline.data, dtype).reshape(operand.type.shape)


def _equal(result: np.ndarray, expected: np.ndarray) -> bool:
    """True if results are the same, except for numbers so small that the platform flushes them to zero."""
    if result.shape != expected.shape or result.dtype != expected.dtype:
        return False
    if result.dtype.kind in "biu":
        return bool(np.array_equal(result, expected))
    tiny = float(np.finfo(result.dtype).tiny)
    return bool(np.allclose(result, expected, rtol=1e-6, atol=16 * tiny, equal_nan=True))


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
_ENDS = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNIMPLEMENTED}

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


_WARM_UP = 5
_ROUNDS = 50
_GROWTH_BYTES = 16 * MIB  # steps of the allocators, over all rounds; a claim that took a MiB would take one a round
_MESSAGE_BYTES = (4 << 20) - 64
_RATIO = 20.0
_BOMBS = [
    ("2^40 twice", call(), [tensor(2**40, 2**40)], "INVALID_SHAPE"),
    ("1000 axes", call(), [tensor(*[1] * 1000)], "INVALID_SHAPE"),
    ("32 axes of 2^60", call(), [tensor(*[2**60] * 32)], "INVALID_SHAPE"),
    *((*claim, "CALL_TOO_LARGE") for claim in LARGE),
    ("an axis of 2^63 - 1", call(parameters={"axis": BIG}), [tensor(8, 4)], "AXIS_OUT_OF_RANGE"),
    ("order 10^9 of a GiB", call(parameters={"n": 10**9}), [tensor(10**9 + 2, 0)], "OK"),
    ("order 10^9", call(parameters={"n": 10**9}), [tensor(8, 4)], "OK"),
    ("a mesh of 2^1008", call(mesh=mesh(**{f"x{i}": BIG for i in range(16)})), [tensor(8)], "NOT_ENOUGH_DEVICES"),
    ("16,384 devices", call(mesh=mesh(*range(1 << 14), x=8)), [tensor(8)], "MALFORMED_REQUEST"),
    ("copies on all devices", call(mesh=X8, in_specs=[spec()]), [tensor(memory_bytes() // 72)], "OUT_OF_DEVICE_MEMORY"),
]


def _length(n: int) -> bytes:
    more = []
    while n > 127:
        more.append(n & 127 | 128)
        n >>= 7
    return bytes([*more, n])


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _length(len(data)) + data


def _full_of(unit: bytes) -> bytes:
    return unit * (_MESSAGE_BYTES // len(unit))


_DIFF = _field(1, b"diff")
_PARAMETER = _field(2, _field(1, b"%06d" % 0))[:-6] + b"%06d"
_CALL, _OPERAND = _field(1, _DIFF), _field(2, tensor(8).SerializeToString())
_INTEGERS = _field(5, _field(1, _full_of(b"\1")))
_UNFOLDING = {
    "operands": _CALL + _full_of(_field(2, b"")),
    "specs": _field(1, _DIFF + _full_of(_field(4, b""))) + _OPERAND,
    "entries of a spec": _field(1, _DIFF + _field(4, _field(1, _full_of(_field(1, b""))))) + _OPERAND,
    "axes of an entry": _field(1, _DIFF + _field(4, _field(1, _field(1, _full_of(_field(1, b"")))))) + _OPERAND,
    "mesh axes": _field(1, _DIFF + _field(3, _full_of(_field(1, b"")))) + _OPERAND,
    "device ids": _field(1, _DIFF + _field(3, _field(2, _full_of(b"\1")))) + _OPERAND,
    "sizes of a shape": _CALL + _field(2, b"\x08\x0f" + _field(2, _full_of(b"\1"))),
    "integers of a list": _field(1, _DIFF + _field(2, _field(1, b"axis") + _field(2, _INTEGERS))) + _OPERAND,
    "parameters": _field(1, _DIFF + b"".join(_PARAMETER % i for i in range(200_000))) + _OPERAND,
    "a kernel's name": _field(1, _field(1, _full_of(b"d"))) + _OPERAND,
    "a strategy's name": _field(1, _DIFF + _field(6, _full_of(b"d"))) + _OPERAND,
}
"""Plans of 4 MiB, most of it one part that takes next to nothing on the wire."""


@pytest.fixture(scope="module")
def watched() -> Iterator[ServerProcess]:
    with running_server("--no-spare-worker", why="its memory is watched") as server:  # a spare grows while it imports
        yield server


def _timed(channel: grpc.Channel, method: str, data: bytes) -> tuple[float, str]:
    """Returns the seconds until an answer and its reason, or OK."""
    began, reason = time.monotonic(), "OK"
    try:
        list(send(channel, method, [data], timeout=120))
    except grpc.RpcError as error:
        reason = details(error)["ErrorInfo"].reason
    return time.monotonic() - began, reason


def _growth(server: ServerProcess, channel: grpc.Channel, method: str, *datas: bytes) -> tuple[int, set[str], float]:
    """Sends claims many times; returns the growth of the server's memory, the reasons and the median seconds."""

    def memory() -> int:
        return sum(Gauges.of(pid, 0.0).memory_bytes for pid in (server.process.pid, *server.worker_pids()))

    for data in datas * _WARM_UP:
        _timed(channel, method, data)
    before = memory()
    outcomes = [_timed(channel, method, data) for data in datas * _ROUNDS]
    grown = memory() - before
    return grown, {reason for _, reason in outcomes}, float(np.median([took for took, _ in outcomes]))


def test_what_claims_much_is_answered_at_once_and_takes_no_memory(watched, figure):
    with open_channel(watched.address) as channel, beside_a_canary(watched, figure):
        for name, asked, operands, expected in _BOMBS:
            data = kernel_service_pb2.PlanRequest(call=asked, operands=operands).SerializeToString()
            grown, reasons, took = _growth(watched, channel, "Plan", data)
            figure(f"{name} × {_ROUNDS}: median {1e3 * took:.1f} ms, growth {grown / MIB:.2f} MiB")
            assert reasons == {expected}, name
            assert grown < _GROWTH_BYTES, name


def test_claims_in_a_stream_and_in_a_message_take_no_memory(watched, figure):
    requests = [
        kernel_service_pb2.ExecuteRequest(call=call(), operands=[inline_operand(shape, bytes(8))])
        for shape in ((2**27,), (2**47,), (2**40, 2**40), (1,) * 1000)
    ]
    with open_channel(watched.address) as channel:
        grown, _, took = _growth(watched, channel, "Execute", *(request.SerializeToString() for request in requests))
    figure(f"claims: median {1e3 * took:.1f} ms, growth {grown / MIB:.2f} MiB")
    assert grown < _GROWTH_BYTES


def test_no_part_of_a_message_takes_longer_to_refuse_than_to_read(watched, figure):
    """Two million parts are read in a tenth of a second; checking each would block all calls for half a minute."""
    best = {}
    with open_channel(watched.address, [("grpc.max_send_message_length", -1)]) as channel:
        for name, data in _UNFOLDING.items():
            tries = [_timed(channel, "Plan", data) for _ in range(3)]
            best[name] = min(took for took, _ in tries)
            assert "OK" not in {reason for _, reason in tries}, name
    floor = best["specs"]  # the same number of messages, which are counted before any is looked at
    slowest = max(best, key=best.__getitem__)
    figure(f"4 MiB of parts: {1e3 * floor:.0f} ms for specs, {1e3 * best[slowest]:.0f} ms for {slowest}")
    assert best[slowest] < _RATIO * max(floor, 0.05), best
