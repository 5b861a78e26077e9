"""Calls whose arrays go through memory shared with the server, by real sockets and memory files."""

import gc
import os
import signal

import grpc
import numpy as np
import pytest
from client.stream_server import in_threads
from rows import rows

import shardcall
from shardcall._src.memory.segment import Block

MIB = 2**20
pytestmark = pytest.mark.usefixtures("quick_collections")


def ordinary(array):
    """Returns whether an array owns its memory."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return not isinstance(array, Block)


def counted(nbytes, dtype="float64", start=0):
    return np.arange(start, start + nbytes // np.dtype(dtype).itemsize, dtype=dtype)


def sources(request):
    return [operand.WhichOneof("source") for operand in request.operands]


def test_large_arrays_go_in_and_out_through_shared_memory(memory, shared_client):
    x = counted(3 * MIB)
    result = shared_client.call("echo", x)
    (call,) = memory.calls
    assert sources(call) == ["segment"]
    assert call.result_space.size_bytes >= x.nbytes
    np.testing.assert_array_equal(result.array, x)
    assert result.array.flags.writeable
    assert not ordinary(result.array)
    assert memory.opened == [32 * MIB]


def test_what_is_small_rides_along(memory, shared_client):
    small, large = counted(1000), counted(2 * MIB)
    shared_client.call("echo", counted(MIB // 4))
    assert memory.opened == []
    result = shared_client.call("echo", small, None, large, 7.0)
    assert [sources(call) for call in memory.calls] == [["inline"], ["inline", None, "segment", "inline"]]
    for array, sent in zip(result.arrays, (small, large, 7.0), strict=True):
        np.testing.assert_array_equal(array, sent)


LAYOUTS = {
    "Fortran": lambda: np.asfortranarray(counted(2 * MIB).reshape(512, -1)),
    "every other": lambda: counted(4 * MIB)[::2],
    "backwards": lambda: counted(2 * MIB)[::-1],
    "big-endian": lambda: counted(2 * MIB).astype(">f8"),
    "broadcast": lambda: np.broadcast_to(np.float64(3), (600, 500)),
    "one row": lambda: counted(16 * MIB).reshape(1, -1, 2),
    "two threads": lambda: np.asfortranarray(counted(16 * MIB).reshape(1024, -1)),
    "read-only": lambda: np.frombuffer(counted(2 * MIB).tobytes(), np.float64),
    "bfloat16": lambda: counted(2 * MIB, "float32").astype(shardcall.Array((), "bfloat16").dtype),
}


@rows("layout", LAYOUTS)
def test_every_layout_is_copied_as_it_is(memory, shared_client, layout):
    x = LAYOUTS[layout]()
    result = shared_client.call("echo", x).array
    assert sources(memory.calls[0]) == ["segment"]
    np.testing.assert_array_equal(result, x)
    assert result.dtype == x.dtype.newbyteorder("=")


@rows("dtype", ["bool", "int4", "uint4"])
def test_types_whose_bytes_are_checked_are_streamed(memory, shared_client, dtype):
    x = (counted(2 * MIB, "uint8") % 2).astype(shardcall.Array((), dtype).dtype)
    y = counted(2 * MIB)
    result = shared_client.call("echo", x, y)
    assert sources(memory.calls[0]) == ["streamed", "segment"]
    for array, sent in zip(result.arrays, (x, y), strict=True):
        np.testing.assert_array_equal(array, sent)
    assert ordinary(shared_client.empty(2 * MIB, dtype))


def test_an_array_created_in_shared_memory_is_not_copied(memory, shared_client):
    x = shared_client.empty((512, 512), np.float64)
    x[...] = 5
    shared_client.call("echo", x)
    shared_client.call("echo", x[256:])
    full, half = (call.operands[0].segment for call in memory.calls)
    assert half.offset - full.offset == x.nbytes // 2
    assert shared_client.empty((2, 3)).shape == (2, 3)
    shared_client.call("echo", x.T)
    assert memory.calls[2].operands[0].segment.offset != full.offset


def test_a_small_result_keeps_no_shared_memory(memory, shared_client):
    large, small = shared_client.call("echo", counted(2 * MIB), counted(64 * 2**10)).arrays
    assert memory.calls[0].result_space.size_bytes >= large.nbytes + small.nbytes
    assert (ordinary(large), ordinary(small)) == (False, True)
    np.testing.assert_array_equal(small, counted(64 * 2**10))


def test_a_result_is_an_operand_without_a_copy(memory, shared_client):
    first = shared_client.call("echo", counted(2 * MIB)).array
    shared_client.call("echo", first)
    space = memory.calls[0].result_space
    assert memory.calls[1].operands[0].segment.offset == space.offset


def test_the_size_of_results_is_cached(memory, shared_client):
    x = counted(2 * MIB)
    shared_client.call("echo", x)
    shared_client.call("echo", x)
    shared_client.call("echo", x, axis=1)
    spaces = [call.result_space.size_bytes for call in memory.calls]
    assert spaces[1] == x.nbytes
    assert spaces[0] == spaces[2] > x.nbytes


def test_results_that_do_not_fit_come_as_a_stream(memory, shared_client):
    answer = memory.answer

    def shrink(request, chunks, context, *, streamed):
        request.result_space.size_bytes = 64
        return answer(request, chunks, context, streamed=streamed)

    memory.answer = shrink
    x = counted(2 * MIB)
    result = shared_client.call("echo", x).array
    assert len(memory.calls) == 2
    assert all(sources(call) == ["segment"] for call in memory.calls)
    np.testing.assert_array_equal(result, x)
    assert ordinary(result)


def test_memory_is_used_again_when_results_are_let_go(memory, shared_client):
    x = counted(10 * MIB)
    for i in range(10):
        view = shared_client.call("echo", x + i).array[100:]
        assert view[0] == 100 + i
        del view
    assert memory.opened == [32 * MIB]


def test_results_that_are_held_are_left_alone(memory, shared_client):
    results = [shared_client.call("echo", counted(6 * MIB, start=i)).array for i in range(12)]
    for i, result in enumerate(results):
        np.testing.assert_array_equal(result, counted(6 * MIB, start=i))
    assert len(memory.opened) > 1


def test_with_all_memory_held_results_are_copied_out(memory):
    memory.info.limits.max_segment_bytes = 32 * MIB
    with shardcall.connect(memory.server.address) as client:
        held = client.empty(20 * MIB, np.uint8)
        x = counted(8 * MIB)
        result = client.call("echo", x).array
        assert sources(memory.calls[0]) == ["segment"]
        assert ordinary(result)
        np.testing.assert_array_equal(result, x)
        assert ordinary(client.empty(20 * MIB, np.uint8))
        assert not ordinary(held)


def test_arrays_outlive_client_and_server(memory):
    with shardcall.connect(memory.server.address) as client:
        result = client.call("echo", counted(2 * MIB)).array
        x = client.empty(MIB, np.uint8)
    memory.ended.get(timeout=20)
    x[:] = 1
    result += 1
    np.testing.assert_array_equal(result, counted(2 * MIB, start=1))


def test_a_client_that_is_lost_gives_its_memory_back(memory):
    client = shardcall.connect(memory.server.address)
    held = client.call("echo", counted(2 * MIB)).array
    del client
    gc.collect()
    memory.ended.get(timeout=20)
    assert held[1] == 1


def test_shared_memory_can_be_turned_off(memory):
    with shardcall.connect(memory.server.address, shared_memory=False) as client:
        client.call("echo", counted(2 * MIB))
        assert sources(memory.calls[0]) == ["streamed"]
        assert ordinary(client.empty(2 * MIB, np.uint8))


def test_memory_is_shared_through_a_socket_of_this_host(memory):
    assert memory.server.address.startswith("127.")
    with shardcall.connect(memory.server.address.replace("127.0.0.1", "localhost")) as client:
        client.call("echo", counted(2 * MIB))
    assert sources(memory.calls[0]) == ["segment"]


def unimplemented(memory, abort):
    memory.before_opening = lambda request, context: abort(context, grpc.StatusCode.UNIMPLEMENTED, "NOT_SUPPORTED")


def no_socket(memory, abort):
    memory.path = memory.folder / "other"


def a_stranger(memory, abort):
    memory.serve = lambda connection: connection.close()


def no_descriptor(memory, abort):
    def serve(connection):
        with connection:
            connection.recv(32)
            connection.sendall(b"\x01")

    memory.serve = serve


@pytest.mark.parametrize("wrong", [unimplemented, no_socket, a_stranger, no_descriptor])
def test_what_cannot_be_shared_is_streamed_and_not_asked_for_again(memory, abort, wrong):
    asked = []
    wrong(memory, abort)
    refuse = memory.before_opening
    memory.before_opening = lambda request, context: (asked.append(request), refuse(request, context))
    with shardcall.connect(memory.server.address) as client:
        for _ in range(3):
            assert client.call("echo", counted(2 * MIB)).array[7] == 7
    assert [sources(call) for call in memory.calls] == [["streamed"]] * 3
    assert len(asked) == 1


def test_a_server_that_is_busy_is_asked_again_later(memory, abort, shared_client):
    memory.before_opening = lambda request, context: abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "SERVER_BUSY")
    shared_client.call("echo", counted(2 * MIB))
    memory.before_opening = lambda request, context: None
    shared_client._shared_memory._segments._not_before = 0
    shared_client.call("echo", counted(2 * MIB))
    assert [sources(call) for call in memory.calls] == [["streamed"], ["segment"]]


def test_a_segment_that_the_server_forgot_is_abandoned_and_the_call_streamed(memory, shared_client):
    shared_client.call("echo", counted(2 * MIB))
    memory.segments.clear()
    result = shared_client.call("echo", counted(2 * MIB)).array
    assert [sources(call) for call in memory.calls] == [["segment"], ["segment"], ["streamed"]]
    np.testing.assert_array_equal(result, counted(2 * MIB))
    memory.ended.get(timeout=20)
    shared_client.call("echo", counted(2 * MIB))
    assert sources(memory.calls[-1]) == ["segment"]


def test_after_a_refusal_the_memory_is_used_again(memory, abort, shared_client):
    memory.before = lambda request, context: abort(context, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_OPERAND")
    for _ in range(20):
        with pytest.raises(shardcall.InvalidOperandError):
            shared_client.call("echo", counted(8 * MIB))
    memory.before = lambda request, context: None
    shared_client.call("echo", counted(8 * MIB))
    assert memory.opened == [32 * MIB]


@pytest.mark.parametrize("reason", ["DEADLINE_EXCEEDED", "MESH_RESTARTED", "OUT_OF_DEVICE_MEMORY"])
def test_the_memory_of_a_call_that_may_still_run_is_abandoned(memory, abort, shared_client, reason):
    held = shared_client.call("echo", counted(2 * MIB)).array
    memory.before = lambda request, context: abort(context, grpc.StatusCode.ABORTED, reason)
    with pytest.raises(shardcall.ShardcallError):
        shared_client.call("echo", counted(2 * MIB))
    assert memory.ended.get(timeout=20) == memory.calls[0].result_space.segment_id
    memory.before = lambda request, context: None
    np.testing.assert_array_equal(shared_client.call("echo", held).array, held)
    first, _, third = (call.operands[0].segment.segment_id for call in memory.calls)
    assert third != first


def test_ctrl_c_abandons_the_memory_and_leaves_the_client_usable(memory, shared_client, ended):
    def interrupt(request, context):
        gone = ended(context)
        os.kill(os.getpid(), signal.SIGINT)
        gone.wait(20)

    memory.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        shared_client.call("echo", counted(2 * MIB), timeout=25)
    assert memory.ended.get(timeout=20)
    memory.before = lambda request, context: None
    assert shared_client.call("echo", counted(2 * MIB)).array[1] == 1


def test_a_result_outside_its_buffer_is_an_error(memory, shared_client):
    answer = memory.answer

    def elsewhere(request, chunks, context, *, streamed):
        response = answer(request, chunks, context, streamed=streamed)
        response.results[0].segment.offset = 2**40
        return response

    memory.answer = elsewhere
    with pytest.raises(shardcall.ProtocolError, match=r"result 0 is outside the result buffer"):
        shared_client.call("echo", counted(2 * MIB))


def test_threads_share_segments(memory, shared_client):
    def run(thread):
        for i in range(10):
            x = counted(2 * MIB, start=1000 * thread + i)
            np.testing.assert_array_equal(shared_client.call("echo", x).array, x)

    assert in_threads(4, run) == [None] * 4
    assert sum(memory.opened) <= 256 * MIB
