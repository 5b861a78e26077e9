"""Answers that are lost in transit: the call is retried, and has its effect once."""

import contextlib
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import grpc
import numpy as np
import pytest
from end_to_end.messages import F64, INVALID, check, execute, open_channel, operand, tensor, token_of
from end_to_end.processes import X, wait_for
from faults.cutting_proxy import CuttingProxy
from servers import ServerProcess

import shardcall as sc
from shardcall._src.rpc import transport
from shardcall.v1 import (
    array_pb2,
    array_service_pb2,
    array_service_pb2_grpc,
    kernel_service_pb2,
    kernel_service_pb2_grpc,
)

Result = TypeVar("Result")

LARGE = np.random.default_rng(0).standard_normal((1024, 1024))


@pytest.fixture
def proxy(exclusive_server: ServerProcess) -> Iterator[CuttingProxy]:
    with CuttingProxy(exclusive_server.address) as between:
        yield between


@pytest.fixture
def observer(exclusive_server: ServerProcess) -> Iterator[sc.Client]:
    """A client with a direct connection; no arrays are on the mesh when it connects."""
    with sc.connect(exclusive_server.address, shared_memory=False) as client:
        wait_for(lambda: not client.usage().arrays)
        yield client


EFFECTS: dict[str, Callable[[sc.Client], sc.RemoteArray]] = {
    "put a small array": lambda client: client.put(X),
    "put a large array": lambda client: client.put(LARGE),
    "keep a small result": lambda client: client.diff(X, axis=0, prepend=0.0, keep=True).array,
    "keep a large result": lambda client: client.diff(LARGE, axis=0, prepend=0.0, keep=True).array,
}


def connected(proxy: CuttingProxy, **options: bool) -> sc.Client:
    return sc.connect(proxy.address, token=token_of("owner"), shared_memory=False, **options)


def without_answer(proxy: CuttingProxy, call: Callable[[], Result], has_effect: Callable[[], bool]) -> Result:
    """Returns the result of a call whose first answer is lost: the connection is cut when the call has its effect."""
    with ThreadPoolExecutor(1) as pool:
        proxy.lose_answers()
        calling = pool.submit(call)
        wait_for(has_effect)
        proxy.cut()
        return calling.result(120)


@pytest.mark.parametrize(
    ("effect", "call_stream"),
    [*((effect, True) for effect in EFFECTS), ("keep a small result", False)],  # the others are never in a call stream
)
def test_an_array_whose_answer_was_lost_is_there_once(proxy, observer, effect, call_stream):
    with connected(proxy, call_stream=call_stream) as client:
        EFFECTS[effect](client).delete()  # compiled
        connections = proxy.connections
        kept = without_answer(proxy, lambda: EFFECTS[effect](client), lambda: observer.usage().arrays == 1)
        assert proxy.connections > connections
        assert observer.usage().arrays == 1
        assert [array.handle for array in client.list()] == [kept.handle]
        assert kept.shape == np.asarray(kept).shape
    assert observer.usage().arrays == 0


def test_arrays_deleted_twice_by_one_call_are_reported_as_present(proxy, observer):
    with connected(proxy) as client:
        kept = client.put(X)
        assert without_answer(proxy, lambda: client.delete(kept), lambda: observer.usage().arrays == 0) == 1


def test_without_retries_a_lost_answer_is_an_error(proxy, observer):
    with connected(proxy, retries=False) as client:
        with pytest.raises(sc.ServerUnavailableError):
            without_answer(proxy, lambda: client.put(X), lambda: observer.usage().arrays == 1)
        wait_for(lambda: _lists_one(client))  # it is there, and its client could find it


def _lists_one(client):
    with contextlib.suppress(sc.ServerUnavailableError):  # this call may be the first to find the connection cut
        return len(client.list()) == 1
    return False


def test_large_arrays_are_sent_again_from_their_first_byte(proxy, observer):
    """The connection is cut during the transfer: nothing of the first attempt is in the second."""
    with connected(proxy) as client, ThreadPoolExecutor(1) as pool:
        client.put(LARGE).delete()
        huge = np.tile(LARGE, (8, 1))  # 64 MiB
        call = pool.submit(client.put, huge)
        wait_for(lambda: observer.usage().bytes_in_use > 16 << 20)
        proxy.cut()
        kept = call.result(120)
        np.testing.assert_array_equal(kept.get(), huge)
        assert observer.usage().arrays == 1


def test_a_repeated_name_undoes_no_later_one(exclusive_server, observer):
    one, two = observer.put(np.ones(3)), observer.put(np.full(3, 2.0))
    with open_channel(exclusive_server.address) as channel:
        stub = array_service_pb2_grpc.ArrayServiceStub(channel)
        requests = [
            array_service_pb2.NameArrayRequest(handle=bytes.fromhex(h.handle), name="n", replace=True)
            for h in (one, two)
        ]
        first, _, again = (
            stub.NameArray(requests[i], metadata=[("shardcall-request-id", f"name-{i}")]) for i in (0, 1, 0)
        )
    assert first == again
    np.testing.assert_array_equal(observer.open("n").get(), two.get())
    observer.open("n").delete()


def test_a_repeated_request_undoes_nothing_that_came_after_it(observer, monkeypatch):
    client, one, two = observer, observer.put(np.ones(3)), observer.put(np.full(3, 2.0), name="n")

    def models() -> list[int]:
        return [len(model.outputs) for model in client.models()]

    def guests() -> int:
        return sum(len(entry.guests) for entry in client.list().entries)

    def publish(count: int) -> None:
        client.publish(lambda x: (x,) * count, "m", sc.Array((3,), "float64"))

    steps: dict[str, tuple[Callable[[], object], Callable[[], object], Callable[[], bool]]] = {
        "ShareArray": (lambda: client.share("n", with_="eve"), lambda: client.unshare("n"), lambda: not guests()),
        "UnshareArray": (lambda: client.unshare("n"), lambda: client.share("n", with_="eve"), lambda: guests() == 1),
        "SaveArray": (
            lambda: client.save(one, "f.npy"),
            lambda: client.save(two, "f.npy"),
            lambda: client.load("f.npy").get()[0] == 2,
        ),
        "RemoveFile": (
            lambda: client.remove_file("f.npy"),
            lambda: client.save(two, "f.npy"),
            lambda: len(client.files()) == 1,
        ),
        "PublishModel": (lambda: publish(1), lambda: publish(2), lambda: models() == [2]),
        "UnpublishModel": (lambda: client.unpublish("m"), lambda: publish(1), lambda: models() == [1]),
    }
    for method, (call, later, holds) in steps.items():
        request_id = secrets.token_hex(8)
        for following in (later, lambda: None):
            with monkeypatch.context() as repeating:
                repeating.setattr(transport, "new_request_id", lambda request_id=request_id: request_id)
                call()
            following()
        assert holds(), method
    client.unpublish("m")
    client.remove_file("f.npy")
    two.delete()


# By stubs: two sendings at will.


def _put_requests(data: bytes, lease_id: bytes, rows: int = 4) -> Iterator[array_service_pb2.PutArrayRequest]:
    array = kernel_service_pb2.Operand(type=tensor(rows, element_type=F64), streamed={})
    yield array_service_pb2.PutArrayRequest(header=array_service_pb2.PutArrayHeader(array=array, lease_id=lease_id))
    yield array_service_pb2.PutArrayRequest(chunk=array_pb2.TensorChunk(data=data))


def test_the_same_id_gives_the_same_array_and_another_request_is_refused(exclusive_server, observer):
    lease, metadata = secrets.token_bytes(16), [("shardcall-request-id", secrets.token_hex(8))]
    data = np.arange(4.0).tobytes()
    with open_channel(exclusive_server.address) as channel:
        stub = array_service_pb2_grpc.ArrayServiceStub(channel)
        first, again = (stub.PutArray(_put_requests(data, lease), metadata=metadata) for _ in range(2))
        assert first.array.handle == again.array.handle
        field, request_id = metadata[0]
        for requests, says in (
            (_put_requests(data, lease, rows=5), "another call had"),
            (_put_requests(data[::-1], lease), f"a call with other chunks had metadata {field} {request_id!r}"),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                stub.PutArray(requests, metadata=metadata)
            check(caught.value, INVALID, "REQUEST_ID_REUSED", field, says)
        stub.DeleteArrays(array_service_pb2.DeleteArraysRequest(handles=[first.array.handle]))


def test_a_pure_call_is_run_whenever_it_is_sent(exclusive_server, observer):
    metadata = [("shardcall-request-id", secrets.token_hex(8))]
    with open_channel(exclusive_server.address) as channel:
        stub = kernel_service_pb2_grpc.KernelServiceStub(channel)
        for x in (np.arange(6.0), np.arange(6.0) ** 2):  # another request, and both are served
            answer = stub.Execute(execute(operand(x)), metadata=metadata)
            np.testing.assert_array_equal(np.frombuffer(answer.results[0].inline.data), np.diff(x))
