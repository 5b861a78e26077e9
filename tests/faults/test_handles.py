"""No handle ever shows other data, whatever is done with arrays; and those of one principal do not exist for others."""

import copy
import gc
import os
import random
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial

import grpc
import numpy as np
import pytest
from end_to_end.messages import NOT_FOUND, call, details, mesh, open_channel, operand, tensor, token_of
from end_to_end.segments_by_hand import MIB, held_segment
from servers import ServerProcess

import shardcall as sc
from shardcall.v1 import (
    array_service_pb2,
    array_service_pb2_grpc,
    kernel_service_pb2,
    kernel_service_pb2_grpc,
    segment_service_pb2_grpc,
)

MESH = sc.Mesh(x=8)
SHAPE = (13, 4)  # which the mesh does not divide
SPECS = (sc.P("x", None), sc.P(None, "x"))
TRANSPORTS = (
    {},
    {"shared_memory": False},
    {"call_stream": False, "fuse": False},
    {"shared_memory": False, "call_stream": False},
)


class Arrays:
    """Objects of several clients, and the values that each must show for as long as it shows any.

    Attributes:
        there: the objects with their values, and whether the mesh has lost them.
        handles: the handle of every array that there was, with its values.
    """

    def __init__(self, clients: list[sc.Client], seed: int) -> None:
        self.clients = clients
        self.random = random.Random(seed)
        self.there: list[tuple[sc.RemoteArray, np.ndarray, bool]] = []
        self.handles: dict[str, np.ndarray] = {}
        self.done: Counter[str] = Counter()

    def add(self, array: sc.RemoteArray, values: np.ndarray, lost: bool = False) -> None:
        self.there.append((array, values, lost))

    def do(self, what: str) -> None:
        self.done[what] += 1
        if what == "put" or not self.there:
            values = np.full(SHAPE, self.random.getrandbits(40)) + np.arange(4)
            spec = self.random.choice(SPECS)
            self.add(self.random.choice(self.clients).put(values, mesh=MESH, spec=spec), values)
            return
        index = self.random.randrange(len(self.there))
        array, values, lost = self.there[index]
        if lost:  # with a program that needs it fail those of its results that need a dropped array
            self.settle()
        try:
            getattr(self, what)(index, array, values, lost)
        except (sc.ArrayLostError, sc.MeshRestartedError):
            assert lost
        if lost:  # the errors of calls that nobody waits for would be raised by the next read
            self.settle()

    def settle(self) -> None:
        for client in self.clients:
            with suppress(sc.ArrayLostError, sc.MeshRestartedError):
                client.synchronize()

    def share(self, _: int, array: sc.RemoteArray, values: np.ndarray, lost: bool) -> None:
        self.add(
            self.random.choice([copy.copy, lambda h: copy.copy(h[...]), lambda h: copy.copy(h[0:13])])(array),
            values,
            lost,
        )

    def compute(self, _: int, array: sc.RemoteArray, values: np.ndarray, lost: bool) -> None:
        number = self.random.getrandbits(20)
        self.add(array + number, values + number, lost)

    def call(self, _: int, array: sc.RemoteArray, values: np.ndarray, lost: bool) -> None:
        """Any client calls with arrays of any two."""
        self.settle()  # no other client may use an array before it is there
        other, other_values, other_lost = self.random.choice(self.there)
        try:
            kept = self.random.choice(self.clients).add(array, other, mesh=MESH, keep=True).array
        except sc.ArrayLostError:
            assert lost or other_lost
        else:
            assert not lost
            assert not other_lost
            self.add(kept, values + other_values)

    def assign(self, index: int, array: sc.RemoteArray, values: np.ndarray, lost: bool) -> None:
        row, number = self.random.randrange(13), self.random.getrandbits(20)
        changed = values.copy()
        changed[row] = number
        array[row] = number
        self.there[index] = array, changed, lost

    def drop(self, index: int, *_: object) -> None:
        del self.there[index]
        gc.collect(0)

    def delete(self, index: int, array: sc.RemoteArray, *_: object) -> None:
        del self.there[index]
        array.delete()
        with pytest.raises(sc.ArrayLostError):
            array.get()

    def read(self, _: int, array: sc.RemoteArray, values: np.ndarray, lost: bool) -> None:
        if not lost:
            self.handles[array.handle] = values
        shown = array.get()
        assert not lost
        np.testing.assert_array_equal(shown, values)

    def lose_all(self) -> None:
        self.there = [(array, values, True) for array, values, _ in self.there]

    def check(self) -> None:
        for index, item in enumerate(self.there):
            try:
                self.read(index, *item)
            except (sc.ArrayLostError, sc.MeshRestartedError):
                assert item[2]
        self.settle()
        for handle, values in self.handles.items():
            for client in self.clients:
                try:
                    np.testing.assert_array_equal(client.get(handle), values)
                except sc.ArrayLostError:
                    self.done["lost"] += 1
                else:
                    self.done["shown"] += 1


def operate(server: ServerProcess, seed: int, count: int, end_mesh: Callable[[sc.Client], None] | None = None) -> None:
    """Operates on arrays of several clients at random, and ends the mesh in between if there is a way to do so."""
    with ExitStack() as stack:
        clients = [stack.enter_context(sc.connect(server.address, **transport)) for transport in TRANSPORTS]
        arrays = Arrays(clients, seed)
        names = ["put", "share", "share", "compute", "call", "assign", "drop", "delete", "read", "read"]
        for number in range(1, count + 1):
            if end_mesh and number % (count // 6) == count // 12:  # and so not at the end, when all must be lost
                for client in clients:
                    client.synchronize()
                end_mesh(clients[0])
                arrays.lose_all()
            arrays.do(arrays.random.choice(names))
        arrays.check()
        assert {*arrays.done} >= {*names, "lost", "shown"}


def test_no_handle_shows_other_data(server):
    operate(server, seed=0, count=150)


X = np.arange(48.0).reshape(12, 4)
LEASE = b"the same lease id, used by both!"


class Stubs:
    """The stubs with which a principal calls the server."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.kernels = kernel_service_pb2_grpc.KernelServiceStub(channel)
        self.arrays = array_service_pb2_grpc.ArrayServiceStub(channel)
        self.segments = segment_service_pb2_grpc.SegmentServiceStub(channel)

    def put(self, array: np.ndarray) -> bytes:
        header = array_service_pb2.PutArrayHeader(array=operand(array), lease_id=LEASE, mesh=mesh(x=2))
        answer = self.arrays.PutArray(iter([array_service_pb2.PutArrayRequest(header=header)]), timeout=60)
        return answer.array.handle

    def listed(self, lease_id: bytes = LEASE) -> list[bytes]:
        answer = self.arrays.ListArrays(array_service_pb2.ListArraysRequest(lease_id=lease_id), timeout=60)
        return [array.handle for array in answer.arrays]

    def get(self, handle: bytes) -> np.ndarray:
        parts = self.arrays.GetArray(array_service_pb2.GetArrayRequest(handle=handle), timeout=60)
        return np.frombuffer(b"".join(part.chunk.data for part in parts if part.HasField("chunk")))

    def delete(self, *handles: bytes) -> int:
        request = array_service_pb2.DeleteArraysRequest(handles=handles)
        return self.arrays.DeleteArrays(request, timeout=60).deleted_count

    def holds_arrays(self) -> bool:
        """Renews the lease."""
        renewal = array_service_pb2.RenewLeaseRequest(lease_id=LEASE)
        return self.arrays.RenewLease(renewal, timeout=60).holds_arrays


@pytest.fixture(scope="module")
def owner(server) -> Iterator[Stubs]:
    with open_channel(server.address, token=token_of("owner")) as channel:
        yield Stubs(channel)


@pytest.fixture(scope="module")
def guest(server) -> Iterator[Stubs]:
    with open_channel(server.address, token=token_of("guest")) as channel:
        yield Stubs(channel)


@pytest.fixture
def handle(owner) -> Iterator[bytes]:
    """An array of the owner's; it must be present and unchanged after the test."""
    there = owner.put(X)
    yield there
    np.testing.assert_array_equal(owner.get(there), X.reshape(-1))
    assert owner.delete(there) == 1


def attempts(who: Stubs, handle: bytes) -> dict[str, Callable[[], object]]:
    """Every way to use a handle."""
    resident = kernel_service_pb2.Operand(resident=kernel_service_pb2.ResidentArray(handle=handle))
    execute = kernel_service_pb2.ExecuteRequest(call=call(), operands=[resident])
    stream = kernel_service_pb2.ExecuteStreamRequest(header=execute)
    types = [tensor(*X.shape)]
    plan = kernel_service_pb2.PlanRequest(call=call(), operands=types, handles=[handle])
    compiled = kernel_service_pb2.CompileRequest(call=call(), operands=types, handles=[handle])
    return {
        "describe": lambda: who.arrays.DescribeArray(array_service_pb2.DescribeArrayRequest(handle=handle), timeout=60),
        "get": lambda: next(who.arrays.GetArray(array_service_pb2.GetArrayRequest(handle=handle), timeout=60)),
        "plan": lambda: who.kernels.Plan(plan, timeout=60),
        "compile": lambda: who.kernels.Compile(compiled, timeout=60),
        "use": lambda: who.kernels.Execute(execute, timeout=60),
        "use in a stream": lambda: next(who.kernels.ExecuteStream(iter([stream]), timeout=60)),
    }


def refusal(attempt: Callable[[], object]) -> tuple[grpc.StatusCode, str, str, dict]:
    """The error of a call, without the parts that differ between any two handles."""
    with pytest.raises(grpc.RpcError) as caught:
        attempt()
    info = details(caught.value)["ErrorInfo"]
    handle_text = info.metadata["handle"]
    return caught.value.code(), info.reason, caught.value.details().replace(handle_text, "…"), sorted(info.metadata)


def test_another_ones_handle_is_refused_like_one_that_never_was(guest, handle):
    unknown = attempts(guest, secrets.token_bytes(len(handle)))
    for use, attempt in attempts(guest, handle).items():
        outcome = refusal(attempt)
        assert outcome[:2] == (NOT_FOUND, "ARRAY_LOST"), use
        assert outcome == refusal(unknown[use]), use


def test_a_lease_of_another_principal_may_have_the_same_id(owner, guest, handle):
    assert guest.delete(handle) == 0
    assert guest.listed() == []
    assert not guest.holds_arrays()
    guest_array = guest.put(X)
    assert guest.listed() == [guest_array]
    assert owner.listed() == [handle]
    for caller, here, elsewhere in ((owner, handle, guest_array), (guest, guest_array, handle)):
        listed = caller.listed(lease_id=b"")  # all of the principal
        assert here in listed
        assert elsewhere not in listed
    assert guest.holds_arrays()
    assert guest.delete(guest_array, handle) == 1
    assert owner.holds_arrays()


def test_an_array_belongs_to_its_principal_on_every_connection(server, handle):
    with sc.connect(server.address, token=token_of("owner")) as client:
        np.testing.assert_array_equal(client.get(handle.hex()), X)


def test_another_ones_segment_is_refused_like_one_that_never_was(owner, guest):
    with held_segment(owner.segments, 4 * MIB) as held:
        refusals = []
        for segment_id in (held.segment_id, os.urandom(len(held.segment_id))):
            with pytest.raises(grpc.RpcError) as caught:
                guest.kernels.Execute(held.execute(segment_id=segment_id), timeout=60)
            assert caught.value.code() is NOT_FOUND
            assert details(caught.value)["ErrorInfo"].reason == "SEGMENT_NOT_FOUND"
            refusals.append(caught.value.details().replace(segment_id.hex()[:8], "…"))
        assert refusals[0] == refusals[1]
        held.put(0, np.ones((256, 1024)))
        answer = owner.kernels.Execute(held.execute(result_offset=2 * MIB), timeout=60)
        assert not held.result(answer).any()


def test_no_guess_hits_a_handle(owner, guest, handle):
    """Random handles, and handles that differ from a real one by a bit or a byte."""
    guesses = []
    for number in range(1000):
        guess = bytearray(handle if number % 2 else secrets.token_bytes(len(handle)))
        guess[number % len(guess)] ^= 1 + secrets.randbelow(255)
        guesses.append(bytes(guess))
    for guesser in (owner, guest):
        assert guesser.delete(*guesses) == 0
        for guess in guesses[::10]:
            assert refusal(partial(guesser.get, guess))[0] is NOT_FOUND
