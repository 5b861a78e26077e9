"""The attacks of attacks.py: what each repeats, by the client or by frames of a call stream that no client sends."""

from __future__ import annotations

import http.client
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import grpc
import numpy as np

import shardcall as sc
from shardcall.v1 import array_pb2, call_stream_pb2, kernel_pb2, mesh_pb2, server_info_service_pb2

_SMALL = 8
_SLOT_BYTES = 900 << 10  # of a slot that is refused
_CANCELS_BYTES = 3800 << 10
_SLOT_ITEMS = 20_000  # of a slot that is assigned


@dataclass(frozen=True)
class Target:
    """A server that is attacked.

    Attributes:
        client: a client of the attacker.
        address: the address of the server.
        token: the attacker's token.
        metrics: the address of the metrics.
        held: the arrays that the attack holds.
        lock: guards them.
    """

    client: sc.Client
    address: str
    token: str
    metrics: str
    held: list[sc.RemoteArray] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata of a call."""
        return (("authorization", f"Bearer {self.token}"),)


def attack(name: str, address: str, metrics: str, token: str) -> None:
    """Attacks until this process is killed."""
    threads, work = ATTACKS[name]
    with sc.connect(address, token=token, retries=False) as client:
        target = Target(client, address, token, metrics)

        def repeat(number: int) -> None:
            for step in count():
                with suppress(sc.ShardcallError, grpc.RpcError, OSError, http.client.HTTPException, StopIteration):
                    work(target, number * 100_000 + step)

        for number in range(threads):
            threading.Thread(target=partial(repeat, number), daemon=True).start()
        threading.Event().wait()


def spin(_target: Target, number: int) -> None:
    """Uses a processor and no server."""
    x = np.full(1 << 16, float(number))
    for _ in range(100):
        np.sin(x)  # without the lock of the interpreter


def large_values(target: Target, number: int) -> None:
    """Has a program refused that has a value of 8 TiB squared."""
    function = target.client.jit(
        lambda x: target.client.xp.linalg.svdvals(target.client.xp.broadcast_to(x[number % 7], (1, 2**40)))
    )
    function(np.arange(8.0)).get()


def new_programs(target: Target, number: int) -> None:
    """Compiles a program of fifty functions."""

    def function(x: sc.RemoteArray) -> sc.RemoteArray:
        for step in range(50):
            x = target.client.xp.sin(x) * (step + 1.5) + target.client.xp.roll(x, 1)
        return x

    target.client.jit(function)(np.arange(2.0 + number % 90_000)).get()


def abandoned_programs(target: Target, number: int) -> None:
    """Begins a program that takes half a second to compile and gives up."""
    target.client.call("svd", np.ones((3 + number % 300, 3 + number // 300 % 300)), timeout=0.05)


def crashes(target: Target, number: int) -> None:
    """Has the compiler crash."""
    target.client.call("crashing", np.arange(float(number + 1)))


def waiting_operands(target: Target, _number: int) -> None:
    """Submits calls with 4 MiB of operands, which are forgotten."""
    x = np.ones(1 << 19)
    for _ in range(64):
        target.client.submit("diff", x)


def long_programs(target: Target, _number: int) -> None:
    """Runs a product that takes a second or so."""
    with target.lock:
        if not target.held:
            target.held.append(target.client.put(np.ones((1500, 1500))))
    target.client.matmul(target.held[0], target.held[0], keep=True)


def loops(target: Target, _number: int) -> None:
    """Runs a loop of many iterations."""
    xp = target.client.xp
    target.client.jit(lambda x: xp.fori_loop(0, 50_000, lambda _, y: y * 0.5 + 1.0, x))(np.arange(_SMALL * 1.0)).get()


def arrays(target: Target, _number: int) -> None:
    """Puts small arrays, and drops the oldest of ten thousand."""
    target.held.append(target.client.put(np.arange(_SMALL * 1.0)))
    if len(target.held) > 10_000:
        del target.held[0]


def names(target: Target, number: int) -> None:
    """Names arrays, and replaces those of earlier names."""
    target.client.put(np.arange(_SMALL * 1.0), name=f"name{number % 500}", replace=True)


def disk(target: Target, number: int) -> None:
    """Saves an array of 4 MiB in a file."""
    with target.lock:
        if not target.held:
            target.held.append(target.client.put(np.ones(1 << 19)))
    target.client.save(target.held[0], f"{number % 64}.npy")


def metrics(target: Target, _number: int) -> None:
    """Asks for the metrics, which needs no token."""
    host, _, port = target.metrics.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    try:
        connection.request("GET", "/metrics")
        connection.getresponse().read()
    finally:
        connection.close()


def cheap_rpcs(target: Target, _number: int) -> None:
    """Asks for the server's description a thousand times."""
    with grpc.insecure_channel(target.address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        method: Any = channel.unary_unary("/shardcall.v1.ServerInfoService/GetServerInfo")
        request = server_info_service_pb2.GetServerInfoRequest().SerializeToString()
        for _ in range(1000):
            method(request, metadata=target.metadata, timeout=30)


def streamed(target: Target, frames: Iterable[bytes], *, reads: bool = True) -> None:
    """Sends frames by a call stream of its own; reads the answers, or leaves them there until the server ends it."""
    ended = threading.Event()

    def requests() -> Iterator[bytes]:
        yield from frames
        if not reads:
            ended.wait()

    with grpc.insecure_channel(target.address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        method: Any = channel.stream_stream("/shardcall.v1.KernelService/CallStream")
        stream = method(requests(), metadata=target.metadata)
        try:
            if reads:
                deque(stream, 0)
            while stream.is_active():
                time.sleep(0.1)
        finally:
            ended.set()


def _frame(*items: call_stream_pb2.CallStreamItem) -> bytes:
    return call_stream_pb2.CallStreamRequest(items=items).SerializeToString()


def _prepared(kernel: str, *shape: int, slot: int = 0) -> call_stream_pb2.CallStreamItem:
    of_type = array_pb2.ArrayType(shape=shape, element_type=array_pb2.ELEMENT_TYPE_FLOAT64)
    call = kernel_pb2.KernelCall(kernel=kernel)
    return call_stream_pb2.CallStreamItem(prepare=call_stream_pb2.PrepareCall(slot=slot, call=call, operands=[of_type]))


def _call(number: int, data: bytes, slot: int = 0) -> call_stream_pb2.CallStreamItem:
    operand = call_stream_pb2.StreamedOperand(inline=data)
    return call_stream_pb2.CallStreamItem(
        call=call_stream_pb2.StreamedCall(number=number, slot=slot, operands=[operand])
    )


def floods(target: Target, _number: int) -> None:
    """Sends a thousand trivial calls at once."""
    x = np.arange(_SMALL * 1.0).tobytes()
    streamed(target, [_frame(_prepared("diff", _SMALL), *(_call(number, x) for number in range(1000)))])


def read_streams(target: Target, _number: int) -> None:
    """Reads a small array again and again, by frames of a thousand reads."""
    with target.lock:
        if not target.held:
            target.held.append(target.client.put(np.arange(_SMALL * 1.0)))
    handle = bytes.fromhex(target.held[0].handle)
    numbers = count(1)

    def frame() -> bytes:
        return _frame(
            *(
                call_stream_pb2.CallStreamItem(read=call_stream_pb2.ReadArray(number=next(numbers), handle=handle))
                for _ in range(1000)
            )
        )

    streamed(target, (frame() for _ in range(20)))


def unread_streams(target: Target, _number: int) -> None:
    """Has results of 1 MiB computed, and reads none."""
    x = np.arange(float(1 << 17)).tobytes()
    prepared = _frame(_prepared("exp", 1 << 17))
    streamed(target, iter([prepared, *(_frame(_call(number, x)) for number in range(1, 60))]), reads=False)


def refused_items(target: Target, _number: int) -> None:
    """Sends calls of a slot that has none."""
    numbers = count(1)
    frames = (_frame(*(_call(next(numbers), b"", slot=7) for _ in range(1000))) for _ in range(50))
    streamed(target, frames)


def cancels(target: Target, _number: int) -> None:
    """Cancels calls that do not exist."""
    many = call_stream_pb2.CallStreamItem(
        cancel=call_stream_pb2.CancelCalls(numbers=range(1 << 30, (1 << 30) + _CANCELS_BYTES // 5))
    )
    frame = _frame(many)
    streamed(target, (frame for _ in range(100)))


def refused_slots(target: Target, _number: int) -> None:
    """Assigns calls to slots that are refused, with messages of almost 1 MiB."""
    call = kernel_pb2.KernelCall(kernel="x" * _SLOT_BYTES)
    items = (
        call_stream_pb2.CallStreamItem(prepare=call_stream_pb2.PrepareCall(slot=slot, call=call)) for slot in range(250)
    )
    streamed(target, map(_frame, items), reads=False)


def prepared_slots(target: Target, _number: int) -> None:
    """Prepares calls of 60 KiB in all slots."""

    def frame(slot: int) -> bytes:
        item = _prepared("diff", _SMALL, slot=slot)
        item.prepare.call.in_specs.extend([mesh_pb2.OptionalPartitionSpec()] * _SLOT_ITEMS)
        return _frame(item)

    streamed(target, map(frame, range(250)), reads=False)


def failed_calls(target: Target, _number: int) -> None:
    """Makes calls with operands of 1 MiB that fail, with handles for their results."""
    x = np.arange(float(1 << 17))
    pending = [target.client.submit("einsum", x, subscripts="ij->i", keep=True) for _ in range(16)]
    for call in pending:
        with suppress(sc.ShardcallError):
            assert isinstance(call, sc.RemoteArray)
            call.get()


ATTACKS: dict[str, tuple[int, Callable[[Target, int], None]]] = {
    "two loops": (2, spin),
    "large values": (4, large_values),
    "new programs": (6, new_programs),
    "abandoned programs": (16, abandoned_programs),
    "crashes of the compiler": (4, crashes),
    "waiting operands": (4, waiting_operands),
    "long programs": (12, long_programs),
    "loops": (4, loops),
    "arrays": (4, arrays),
    "names": (4, names),
    "disk": (4, disk),
    "metrics": (16, metrics),
    "cheap RPCs": (16, cheap_rpcs),
    "floods": (40, floods),
    "read streams": (4, read_streams),
    "unread streams": (46, unread_streams),
    "refused items": (4, refused_items),
    "cancels": (4, cancels),
    "refused slots": (4, refused_slots),
    "prepared slots": (4, prepared_slots),
    "failed calls": (4, failed_calls),
}
"""The threads of an attack, and what each repeats."""
