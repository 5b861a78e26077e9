"""Arrays that the caller, the server or both no longer have, those on another server, and objects that share one."""

import copy
import gc
import threading

import grpc
import numpy as np
import pytest
from client.stream_server import wait_for
from client_parts import version_of
from rows import rows

import shardcall
from shardcall import Array
from shardcall._src.device_arrays.array_version import ServerIdentity

pytestmark = pytest.mark.usefixtures("quick_collections")


@pytest.fixture
def client(shared_client):
    return shared_client


@pytest.fixture
def limit_arrays(memory, abort):
    """Refuses what would stay beyond a number of arrays, as the server does."""

    def limit(count, refused=lambda: None):
        def refuse(request, context):
            if getattr(request, "lease_id", b"") and len(memory.stored) >= count:
                refused()
                abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "RESIDENT_LIMIT")

        memory.before = refuse

    return limit


def test_unreferenced_arrays_are_deleted_before_the_next_array(limit_arrays, client):
    limit_arrays(2)
    h = client.put(np.arange(4.0))
    for _ in range(5):
        h = client.call("echo", h, keep=True).array
    for _ in range(5):
        h = client.put(np.arange(4.0))
    np.testing.assert_array_equal(h, np.arange(4.0))


def test_objects_in_a_cycle_are_collected_when_capacity_is_exhausted(limit_arrays, client):
    limit_arrays(1)
    gc.disable()
    try:
        cycle = [client.put([1.0])]
        cycle.append(cycle)
        del cycle
        assert client.put([2.0]).get() == [2.0]
    finally:
        gc.enable()


def test_a_deletion_by_the_leases_thread_is_waited_for_when_capacity_is_exhausted(memory, limit_arrays, client):
    """It has begun before the put and ends after its refusal."""
    deleting, refused = threading.Event(), threading.Event()
    limit_arrays(1, refused.set)
    limit = memory.before

    def before(request, context):
        if type(request).__name__ == "DeleteArraysRequest":
            deleting.set()
            assert refused.wait(60)
        else:
            limit(request, context)

    memory.before = before
    client.put([1.0])
    assert deleting.wait(60)
    assert client.put([2.0]).get() == [2.0]


def test_a_call_without_capacity_is_not_repeated_in_vain(memory, limit_arrays, client):
    limit_arrays(1)
    held = client.put([1.0])
    memory.calls.clear()
    with pytest.raises(shardcall.ResourceExhaustedError):
        client.call("echo", held, keep=True)
    assert len(memory.calls) == 1


def test_an_array_on_another_server_is_refused_and_not_taken_for_lost(memory, client):
    elsewhere = client.put([1.0])
    here, version_of(elsewhere).server = version_of(elsewhere).server, ServerIdentity("elsewhere:1", 1)
    memory.calls.clear()
    compiled = client.compile("echo", Array(1, "float64"))
    calls = [lambda array, make=make: make("echo", array) for make in (client.call, client.submit)]
    for use in (client.delete, client.get, client.describe, *calls, compiled):
        with pytest.raises(shardcall.InvalidOperandError, match="is on the server at elsewhere:1, and this client"):
            use(elsewhere)
    assert not elsewhere.lost
    assert (memory.calls, len(memory.stored)) == ([], 1)
    version_of(elsewhere).server = here


@pytest.mark.parametrize(("address", "epoch"), [("elsewhere:1", 7), ("", 1)], ids=["address", "epoch"])
def test_one_server_may_have_two_addresses_and_its_mesh_may_restart(client, address, epoch):
    h = client.put([1.0])
    version_of(h).server = ServerIdentity(address or client.address, epoch)
    assert h.get() == [1.0]


def test_a_with_block_of_an_array_ends_as_its_body_does(memory, abort, client):
    def refuse(request, context):
        if hasattr(request, "handles"):
            abort(context, grpc.StatusCode.UNAVAILABLE, "MESH_NOT_READY")

    memory.before = refuse
    with pytest.raises(KeyError), client.put([1.0]):
        raise KeyError
    with client.put([1.0]) as h:
        pass
    assert not h.lost
    memory.before = lambda request, context: None


def test_an_operand_that_the_server_lost_is_named_and_marked_as_lost(memory, client):
    there, lost = client.put([1.0]), client.put(np.ones((2, 2)))
    del memory.stored[bytes.fromhex(lost.handle)]
    says = r"rhs is float64\[2,2\], which the mesh no longer has"
    with pytest.raises(shardcall.ArrayLostError, match=says) as caught:
        client.matmul(there, lost)
    assert (caught.value.field, caught.value.reason) == ("rhs", "ARRAY_LOST")
    assert (there.lost, lost.lost) == (False, True)


@pytest.mark.parametrize("use", ["get", "describe"])
def test_an_array_that_the_server_lost_is_marked_as_lost(memory, client, use):
    h = client.put([1.0])
    memory.stored.clear()
    with pytest.raises(shardcall.ArrayLostError, match="the mesh no longer has"):
        getattr(client, use)(h)
    assert h.lost


def test_an_array_larger_than_may_stay_is_refused_before_it_is_copied(memory):
    memory.info.limits.max_resident_bytes = 8000
    with shardcall.connect(memory.server.address) as client:
        client.put(np.zeros(1000))
        memory.calls.clear()
        with pytest.raises(shardcall.ResourceExhaustedError, match=r"8,008 bytes.*8,000 bytes.*--max-resident-bytes"):
            client.put(np.zeros(1001))
        assert memory.calls == []


# Objects that share an array


@rows("make", [copy.copy, copy.deepcopy, lambda array: copy.deepcopy({"x": [array]})["x"][0]])
def test_a_copy_is_another_reference(client, memory, make):
    array = client.put([1.0])
    other = make(array)
    del array
    gc.collect()
    client.put([2.0])  # deletes unreferenced arrays
    assert other.get() == [1.0]
    del other
    gc.collect()
    last = client.put([3.0])
    wait_for(lambda: [*memory.stored] == [bytes.fromhex(last.handle)])  # a thread may be deleting the others


def test_a_copy_keeps_its_array_when_the_object_stands_for_another(client, memory):
    array = client.put([1.0])
    kept = copy.copy(array)
    handle = array.handle
    assert client.describe(handle) is array
    array._write(client.put([2.0])._version)
    assert (array.get(), kept.get()) == ([2.0], [1.0])
    assert (client.describe(array.handle), client.describe(handle).get()) == (array, [1.0])
    gc.collect()
    last = client.put([3.0])
    assert len(memory.stored) == 3
    del last
    kept.delete()
    assert kept.lost
    assert array.get() == [2.0]


@pytest.mark.parametrize("share", [copy.copy, copy.deepcopy, lambda array: copy.copy(array[...])])
@pytest.mark.parametrize("swapped", [False, True])
def test_deleting_an_object_leaves_those_that_share_its_array(client, memory, share, swapped):
    array = client.put([[1.0, 2.0]])
    pair = array, share(array)
    deleted, kept = pair[::-1] if swapped else pair
    assert client.delete(deleted) == 0
    assert (deleted.lost, kept.lost) == (True, False)
    with pytest.raises(shardcall.ArrayLostError):
        deleted.get()
    assert kept.get().tolist() == [[1, 2]]
    (listed,) = client.list()
    assert not listed.lost
    assert client.delete(kept) == (listed is kept)
    assert client.delete(listed) == (listed is not kept)
    assert not memory.stored


@pytest.mark.parametrize("view", [lambda array: array[...], lambda array: array[:, 0:2], lambda array: array.view()])
def test_deleting_an_array_deletes_its_views_and_deleting_a_view_leaves_the_array(client, memory, view):
    array = client.put([[1.0, 2.0]])
    part, other = view(array), view(array)
    assert client.delete(part) == 0
    assert (part.lost, other.lost, array.lost) == (True, False, False)
    assert other.get().tolist() == array.get().tolist() == [[1, 2]]
    array.delete()
    assert other.lost
    with pytest.raises(shardcall.ArrayLostError, match="which was deleted"):
        other.get()
    assert not memory.stored


@pytest.mark.parametrize("by_handle", [False, True])
def test_deleting_a_handle_or_all_that_share_an_array_deletes_it(client, memory, by_handle):
    array = client.put([1.0])
    copies = [copy.copy(array) for _ in range(3)]
    if by_handle:
        del copies[1:]
    assert client.delete(*[array.handle] if by_handle else [array, *copies]) == 1
    assert all(item.lost for item in (array, *copies))
    assert not memory.stored
