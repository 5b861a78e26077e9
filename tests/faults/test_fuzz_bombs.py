"""Requests that claim much and send little, or unfold when they are read: refused at once, at negligible cost."""

import time
from collections.abc import Iterator

import grpc
import numpy as np
import pytest
from end_to_end.messages import details, mesh, open_channel, spec, tensor
from faults.bad_input_rows import BIG, X8, call, inline_operand, send
from faults.bad_input_rows_parameters import LARGE
from faults.callers import beside_a_canary
from faults.gauges import MIB, Gauges
from servers import ServerProcess, running_server

from shardcall.v1 import kernel_service_pb2
from shardcall_server.host_memory import memory_bytes

pytestmark = [pytest.mark.fuzz, pytest.mark.long]

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
def target() -> Iterator[ServerProcess]:
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


def test_what_claims_much_is_answered_at_once_and_takes_no_memory(target, figure):
    with open_channel(target.address) as channel, beside_a_canary(target, figure):
        for name, asked, operands, expected in _BOMBS:
            data = kernel_service_pb2.PlanRequest(call=asked, operands=operands).SerializeToString()
            grown, reasons, took = _growth(target, channel, "Plan", data)
            figure(f"{name} × {_ROUNDS}: median {1e3 * took:.1f} ms, growth {grown / MIB:.2f} MiB")
            assert reasons == {expected}, name
            assert grown < _GROWTH_BYTES, name


def test_claims_in_a_stream_and_in_a_message_take_no_memory(target, figure):
    requests = [
        kernel_service_pb2.ExecuteRequest(call=call(), operands=[inline_operand(shape, bytes(8))])
        for shape in ((2**27,), (2**47,), (2**40, 2**40), (1,) * 1000)
    ]
    with open_channel(target.address) as channel:
        grown, _, took = _growth(target, channel, "Execute", *(request.SerializeToString() for request in requests))
    figure(f"claims: median {1e3 * took:.1f} ms, growth {grown / MIB:.2f} MiB")
    assert grown < _GROWTH_BYTES


def test_no_part_of_a_message_takes_longer_to_refuse_than_to_read(target, figure):
    """Two million parts are read in a tenth of a second; checking each would block all calls for half a minute."""
    best = {}
    with open_channel(target.address, [("grpc.max_send_message_length", -1)]) as channel:
        for name, data in _UNFOLDING.items():
            tries = [_timed(channel, "Plan", data) for _ in range(3)]
            best[name] = min(took for took, _ in tries)
            assert "OK" not in {reason for _, reason in tries}, name
    floor = best["specs"]  # the same number of messages, which are counted before any is looked at
    slowest = max(best, key=best.__getitem__)
    figure(f"4 MiB of parts: {1e3 * floor:.0f} ms for specs, {1e3 * best[slowest]:.0f} ms for {slowest}")
    assert best[slowest] < _RATIO * max(floor, 0.05), best
