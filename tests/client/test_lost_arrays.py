"""Arrays that the caller, the server or both no longer have, and those on another server."""

import gc
import threading

import grpc
import numpy as np
import pytest
from client_parts import sender_of, version_of

import shardcall
from shardcall import Array, Mesh

pytestmark = pytest.mark.usefixtures("quick_collections")


@pytest.fixture
def client(memory):
    with shardcall.connect(memory.server.address) as connected:
        yield connected


@pytest.fixture
def elsewhere(memory):
    """An array of a client whose server is another one: other address, other epoch."""
    with shardcall.connect(memory.server.address) as other:
        array = other.put([1.0])
        version_of(array).server = type(version_of(array).server)("elsewhere:1", 1)
        yield array
        version_of(array).server = sender_of(other).here


def limit_arrays(memory, abort, count):
    """Refuses what would stay as the server does, with as many arrays."""

    def refuse(request, context):
        if getattr(request, "lease_id", b"") and len(memory.stored) >= count:
            abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "RESIDENT_LIMIT")

    memory.before = refuse


def test_unreferenced_arrays_are_deleted_before_the_next_array(memory, abort, client):
    limit_arrays(memory, abort, 2)
    h = client.put(np.arange(4.0))
    for _ in range(5):
        h = client.call("echo", h, keep=True).array
    for _ in range(5):
        h = client.put(np.arange(4.0))
    np.testing.assert_array_equal(h, np.arange(4.0))


def test_objects_in_a_cycle_are_collected_when_capacity_is_exhausted(memory, abort, client):
    limit_arrays(memory, abort, 1)
    gc.disable()
    try:
        cycle = [client.put([1.0])]
        cycle.append(cycle)
        del cycle
        assert client.put([2.0]).get() == [2.0]
    finally:
        gc.enable()


def test_a_deletion_by_the_leases_thread_is_waited_for_when_capacity_is_exhausted(memory, abort, client):
    """It has begun before the put and ends after its refusal."""
    deleting, refused = threading.Event(), threading.Event()

    def before(request, context):
        if type(request).__name__ == "DeleteArraysRequest":
            deleting.set()
            assert refused.wait(60)
        elif getattr(request, "lease_id", b"") and memory.stored:
            refused.set()
            abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "RESIDENT_LIMIT")

    memory.before = before
    client.put([1.0])
    assert deleting.wait(60)
    assert client.put([2.0]).get() == [2.0]


def test_a_call_without_capacity_is_not_repeated_in_vain(memory, abort, client):
    limit_arrays(memory, abort, 1)
    held = client.put([1.0])
    memory.calls.clear()
    with pytest.raises(shardcall.ResourceExhaustedError):
        client.call("echo", held, keep=True)
    assert len(memory.calls) == 1


def test_an_array_on_another_server_is_refused_and_not_taken_for_lost(memory, client, elsewhere):
    memory.calls.clear()
    compiled = client.compile("echo", Array(1, "float64"))
    for use in (
        lambda: client.delete(elsewhere),
        lambda: client.get(elsewhere),
        lambda: client.describe(elsewhere),
        lambda: client.call("echo", elsewhere),
        lambda: compiled(elsewhere),
    ):
        with pytest.raises(shardcall.InvalidOperandError, match="is on the server at elsewhere:1, and this client"):
            use()
    assert not elsewhere.lost
    assert memory.calls == []
    assert len(memory.stored) == 1


@pytest.mark.parametrize(("address", "epoch"), [("elsewhere:1", 7), ("", 1)], ids=["address", "epoch"])
def test_one_server_may_have_two_addresses_and_its_mesh_may_restart(client, address, epoch):
    h = client.put([1.0])
    version_of(h).server = type(version_of(h).server)(address or client.address, epoch)
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
    with pytest.raises(
        shardcall.ArrayLostError, match=r"rhs is float64\[2,2\], which the mesh no longer has"
    ) as caught:
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


def test_a_mesh_of_the_first_devices_shows_without_them(client):
    assert "on Mesh(x=2)," in repr(client.put([1.0], mesh=Mesh(x=2, device_ids=[0, 1])))
