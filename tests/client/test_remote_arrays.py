"""Arrays that stay, on a server that keeps them in a dict, and arrays with names there."""

import gc
import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from unittest.mock import Mock

import grpc
import numpy as np
import pytest
from client_parts import lease_of
from rows import rows

import shardcall
from shardcall import Array, Mesh, P
from shardcall._src.services import named_arrays
from shardcall._src.services.named_arrays import NamedArrays
from shardcall.v1.array_service_pb2 import NameVersion

MIB = 2**20
pytestmark = pytest.mark.usefixtures("quick_collections")


@pytest.fixture
def client(request, memory):
    """A client that sends arrays in messages, or as `BOTH_TRANSPORTS` says."""
    with shardcall.connect(memory.server.address, shared_memory=getattr(request, "param", False)) as connected:
        yield connected


BOTH_TRANSPORTS = pytest.mark.parametrize("client", [True, False], ids=["shared memory", "messages"], indirect=True)


@pytest.fixture
def quick(memory):
    """A client whose lease is short, and so its thread's rounds."""
    memory.info.limits.lease_seconds = 0.2
    with shardcall.connect(memory.server.address) as connected:
        yield connected


def test_an_array_is_described_without_a_round_trip(memory, client):
    h = client.put(np.zeros((4, 3), np.float32), mesh=Mesh(x=2, device_ids=[1, 0]), spec=P("x"))
    memory.calls.clear()
    assert (h.shape, h.dtype, h.ndim, h.size, h.nbytes) == ((4, 3), np.float32, 2, 12, 48)
    assert (h.mesh, h.spec, h.padded_shape) == (Mesh(x=2, device_ids=[1, 0]), P("x"), (4, 3))
    assert h.device_bytes == 48
    assert bytes.fromhex(h.handle) in memory.stored
    client._shows_values = False
    assert repr(h) == "<RemoteArray float32[4,3] P('x') on Mesh(x=2, device_ids=[1, 0]), 48 bytes>"
    assert memory.calls == []


def test_what_the_caller_says_comes_first(memory, client):
    h = client.put(np.arange(8.0), mesh=Mesh(x=2, device_ids=[0, 1]), spec=P("x"))
    memory.calls.clear()
    client.call("echo", h, mesh=Mesh(x=4))
    client.call("echo", h, mesh=Mesh(y=4))
    client.call("echo", h, in_specs=[P()])
    kept, other, replicated = (call.call for call in memory.calls)
    assert (kept.mesh.axes[0].size, kept.in_specs[0].spec.entries[0].axis_names) == (4, ["x"])
    assert not other.in_specs[0].HasField("spec")
    assert not replicated.in_specs[0].spec.entries
    assert replicated.mesh.axes[0].size == 2


def test_its_type_stands_for_it_in_plans(server, client, memory):
    h = client.put(np.zeros((2, 3)))
    client.plan("diff", h)
    kernel = client.compile("diff", Array((2, 3), "float64"), prepend=h)
    assert [array.shape for array in kernel(h).arrays] == [(2, 3), (2, 3)]
    assert [operand.WhichOneof("source") for operand in memory.calls[-1].operands] == ["resident", "resident"]
    with pytest.raises(shardcall.InvalidOperandError, match=r"shape \(1,\)"):
        kernel(client.put([1.0]))
    with pytest.raises(shardcall.InvalidOperandError, match=r"bound by value .*: prepend float64\[2,3\]"):
        kernel(h, h)


@BOTH_TRANSPORTS
def test_results_may_stay(memory, client):
    result = client.call("echo", np.arange(8.0), keep=True)
    assert isinstance(result.array, shardcall.RemoteArray)
    assert (result.array.shape, result.array.spec, result.array.mesh.size) == ((8,), P("x"), 4)
    assert result.array.device_bytes == 64
    assert "kept on the mesh" in repr(result)
    np.testing.assert_array_equal(result, np.arange(8.0))
    call = memory.calls[0]
    assert call.keep_results
    assert len(call.lease_id) == 32
    assert not call.HasField("result_space")
    large = np.arange(3 * MIB, dtype=np.float64)
    np.testing.assert_array_equal(client.call("echo", large, 1.0, keep=True).arrays[0], large)
    for method in (client.diff, lambda x, keep: client.matmul(x, x, keep=keep), client.compile("echo", Array(1, "f8"))):
        assert isinstance(method(np.ones(1), keep=True).arrays[0], shardcall.RemoteArray)
    assert len({call.lease_id for call in memory.calls if hasattr(call, "lease_id")}) == 1


def test_a_deleted_array_says_so_everywhere(memory, client):
    with client.put([0.0]) as first:
        assert len(memory.stored) == 1
    first.delete()
    second, third = client.put([1.0]), client.put([2.0])
    assert (client.delete(second.handle, third, first), memory.stored) == (2, {})
    memory.calls.clear()
    for h in (first, second, third):
        assert h.lost
        assert "deleted" in repr(h)
        for use in (client.get, client.describe, np.asarray, lambda array: client.call("echo", array)):
            with pytest.raises(shardcall.ArrayLostError, match=r"which was deleted; put it anew with Client.put"):
                use(h)
    assert memory.calls == []


@BOTH_TRANSPORTS
@pytest.mark.parametrize("method", ["put", "call", "compiled"])
def test_a_list_ignores_an_array_whose_answer_is_in_transit(memory, client, method):
    kernel = client.compile("echo", Array(1, "float64"))
    make = {"put": client.put, "call": partial(client.call, "echo", keep=True), "compiled": partial(kernel, keep=True)}
    stored, release = memory.hold_answers()
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(make[method], [1.0])
        assert stored.wait(20)
        assert len(client.list()) == 1
        gc.collect()
        assert not lease_of(client).delete_dropped(lambda _: None)
        release.set()
        array = pending.result(20)
    array = array if method == "put" else array.array
    assert array.get() == [1.0]


OPERAND, PARAMETER = shardcall.InvalidOperandError, shardcall.InvalidParameterError
NO_ARRAY = "is no array on the mesh"


@rows(
    ("call", "error", "says"),
    [
        (lambda client: client.put(client.put([1.0])), OPERAND, "has no values here"),
        (lambda client: client.put(Array(3, "int8")), OPERAND, "has no values here"),
        (lambda client: client.put(np.broadcast_to(1.0, (2**20, 2**20))), shardcall.ResourceExhaustedError, None),
        (lambda client: client.delete(np.arange(1000.0)), OPERAND, f"^a value of type ndarray {NO_ARRAY}"),
        (lambda client: client.put([1.0], keep_for=np.inf), PARAMETER, "^keep_for is inf; give a finite number of sec"),
        (lambda client: client.put([1.0], keep_for=-1), PARAMETER, "^keep_for is -1; give a finite number of sec"),
        (lambda client: pickle.dumps(client.put([1.0])), TypeError, r"cannot be pickled; pickle its \.handle"),
    ],
)
def test_what_is_refused_before_anything_is_sent(client, memory, call, error, says):
    memory.calls.clear()
    with pytest.raises(error, match=says):
        call(client)
    puts = [sent for sent in memory.calls if hasattr(sent, "array")]
    assert len(puts) <= 1, "that of an array which was put for the row"


@rows("handle", ["xyz", b"123", None, 7, "u", "ab12", "alice/u"])
def test_what_is_no_handle_is_refused_with_advice_if_it_may_be_a_name(client, handle):
    advice = rf"32 hexadecimal digits; .* client\.open\('{handle}'\)$" if isinstance(handle, str) else ""
    for use in (client.get, client.describe, client.delete):
        with pytest.raises(OPERAND, match=f"{NO_ARRAY}.*{advice}"):
            use(handle)


@rows(
    ("call", "says"),
    [
        (lambda client: client.save(client.put([1.0]), 5), "^name is 5; give a str or a pathlib.Path"),
        (lambda client: client.save(client.put([1.0]), b"a.npy"), "^name is b'a.npy'; give a str"),
        (lambda client: client.load(None), "^name is None; give a str or a pathlib.Path"),
        (lambda client: client.files(5), "^prefix is 5; give a str"),
        (lambda client: client.remove_file(None), "^name is None; give a str"),
        (lambda client: client.open(5), "^name is 5; give the name of an array as a str"),
        (lambda client: client.open(None), "^name is None; give the name"),
        (lambda client: client.save_checkpoint(["u", "v"]), r"has the list \['u', 'v'\]; .*checkpoint\('u', 'v'\)$"),
        (lambda client: client.save_checkpoint(client.put(1)), r"give each name by itself: save_checkpoint\('u'\)$"),
        (lambda client: client.put([1.0], name="u", durable="yes"), "^durable is 'yes'; give True or False"),
        (lambda client: client.put([1.0], name="u", replace=1), "^replace is 1; give True or False"),
        (lambda client: client.list(of_all_clients="no"), "^of_all_clients is 'no'; give True or False"),
    ],
)
def test_arguments_of_other_types_are_refused_by_their_names(client, call, says):
    with pytest.raises(PARAMETER, match=says) as caught:
        call(client)
    assert isinstance(caught.value, TypeError)


FLAGS = {"show_values": "no", "fuse": 3, "retries": -1, "synchronous": None, "shared_memory": "yes", "admin": 1}


@rows(("option", "value"), FLAGS.items())
def test_options_of_a_connection_that_are_no_flags_are_refused(option, value):
    with pytest.raises(shardcall.InvalidParameterError, match=f"^{option} is {value!r}; give True or False$"):
        shardcall.connect("localhost:1", **{option: value})


def test_closing_deletes_all_arrays(memory):
    with shardcall.connect(memory.server.address) as client:
        held = client.put([1.0])
        client.put([2.0])
    assert memory.stored == {}
    with pytest.raises(shardcall.ArrayLostError, match="whose client was closed"):
        held.get()
    held.delete()
    client.close()


def test_an_array_whose_object_is_lost_is_deleted_in_a_round_when_the_server_is_there(memory, abort, quick):
    refused = []

    def refuse_once(request, context):
        if hasattr(request, "handles") and not refused:
            refused.extend(request.handles)
            abort(context, grpc.StatusCode.UNAVAILABLE, "MESH_NOT_READY")

    memory.before = refuse_once
    kept, lost = quick.put([1.0]), quick.put([2.0])
    handle = bytes.fromhex(lost.handle)
    del lost
    gc.collect()
    assert (memory.deleted.get(timeout=20), refused, kept.get()) == ([handle], [handle], [1.0])


def test_the_thread_ends_with_the_last_array_and_begins_with_the_next(memory, quick):
    first = quick.put([1.0])
    old = lease_of(quick)._thread
    first.delete()
    old.join(20)
    assert not old.is_alive()
    second = quick.put([2.0])
    while not memory.renewed.empty():
        memory.renewed.get()
    assert memory.renewed.get(timeout=20)
    new = lease_of(quick)._thread
    quick.close()
    new.join(20)
    assert not new.is_alive()
    assert second.lost


def test_a_client_is_collected_with_its_arrays(memory):
    memory.info.limits.lease_seconds = 0.2
    client = shardcall.connect(memory.server.address)
    h = client.put([1.0])
    del client
    gc.collect()
    assert h.get() == [1.0]
    handle = bytes.fromhex(h.handle)
    del h
    gc.collect()
    assert memory.deleted.get(timeout=20) == [handle]


def test_a_result_that_comes_back_though_it_should_stay_is_an_error(server, client):
    with shardcall.connect(server.address) as other, pytest.raises(shardcall.ProtocolError, match="stays on the mesh"):
        other.call("echo", 1.0, keep=True)


def test_large_arrays_go_and_come_through_shared_memory(memory, shared_client):
    x = np.arange(MIB, dtype=np.float64)
    h = shared_client.put(x)
    assert memory.calls[-1].array.WhichOneof("source") == "segment"
    back = h.get()
    assert memory.calls[-1].result_space.size_bytes == x.nbytes
    np.testing.assert_array_equal(back, x)
    memory.segments.clear()
    np.testing.assert_array_equal(shared_client.put(x).get(), x)


def test_a_server_that_keeps_none_says_so(server):
    with shardcall.connect(server.address) as client, pytest.raises(shardcall.NotSupportedError):
        client.put([1.0])


@pytest.fixture
def names() -> NamedArrays:
    return NamedArrays(Mock(), Mock(), Mock())


def test_the_last_version_of_a_name_stays_if_no_other_is_accepted(names):
    assert names.seen("u") is None
    first, second = (NameVersion(number=number, since_microseconds=5) for number in (1, 2))
    restored = NameVersion(number=1, since_microseconds=7)
    for version, expected in [(first, first), (second, second), (first, second), (restored, restored)]:
        names.see("u", version)
        assert names.seen("u") == expected
    names.see("u", first, accepts=True)
    assert names.seen("u") == first


def test_the_versions_of_names_that_were_used_last_stay(names, monkeypatch):
    monkeypatch.setattr(named_arrays, "MAX_SEEN", 3)
    for name in "abcad":
        names.see(name, NameVersion(number=1))
    assert [name for name in "abcd" if names.seen(name)] == ["a", "c", "d"]
