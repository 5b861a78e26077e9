"""Calls whose arrays go through memory shared with the server, by real sockets and memory files."""

import gc

import grpc
import numpy as np
import pytest
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


def sources(memory):
    """Returns where the operands of each call came from."""
    return [[operand.WhichOneof("source") for operand in call.operands] for call in memory.calls]


def test_large_arrays_go_in_and_out_through_shared_memory_and_small_ones_ride_along(memory, shared_client):
    small, large = counted(1000), counted(3 * MIB)
    shared_client.call("echo", counted(MIB // 4))
    assert memory.opened == []
    result = shared_client.call("echo", small, None, large, 7.0)
    assert (sources(memory), memory.opened) == ([["inline"], ["inline", None, "segment", "inline"]], [32 * MIB])
    assert memory.calls[1].result_space.size_bytes >= large.nbytes
    for array, sent in zip(result.arrays, (small, large, 7.0), strict=True):
        np.testing.assert_array_equal(array, sent)
        assert array.flags.writeable
    assert [ordinary(array) for array in result.arrays] == [True, False, True]


@rows("dtype", ["bool", "int4", "uint4"])
def test_types_whose_bytes_are_checked_are_streamed(memory, shared_client, dtype):
    x = (counted(2 * MIB, "uint8") % 2).astype(shardcall.Array((), dtype).dtype)
    y = counted(2 * MIB)
    result = shared_client.call("echo", x, y)
    assert sources(memory)[-1] == ["streamed", "segment"]
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


def test_a_result_is_an_operand_without_a_copy(memory, shared_client):
    first = shared_client.call("echo", counted(2 * MIB)).array
    shared_client.call("echo", first)
    assert memory.calls[1].operands[0].segment.offset == memory.calls[0].result_space.offset


def test_the_size_of_results_is_cached(memory, shared_client):
    x = counted(2 * MIB)
    for options in ({}, {}, {"axis": 1}):
        shared_client.call("echo", x, **options)
    first, again, other = (call.result_space.size_bytes for call in memory.calls)
    assert first == other > again == x.nbytes


def test_results_that_do_not_fit_come_as_a_stream(memory, shared_client):
    answer = memory.answer

    def shrink(request, chunks, context, *, streamed):
        request.result_space.size_bytes = 64
        return answer(request, chunks, context, streamed=streamed)

    memory.answer = shrink
    x = counted(2 * MIB)
    result = shared_client.call("echo", x).array
    assert sources(memory) == [["segment"]] * 2
    np.testing.assert_array_equal(result, x)
    assert ordinary(result)


@pytest.mark.parametrize("is_closed", [True, False])
def test_arrays_outlive_a_client_that_is_closed_or_lost_which_gives_its_memory_back(memory, is_closed):
    client = shardcall.connect(memory.server.address)
    result, x = client.call("echo", counted(2 * MIB)).array, client.empty(MIB, np.uint8)
    if is_closed:
        client.close()
    del client
    gc.collect()
    memory.ended.get(timeout=20)
    x[:] = 1
    result += 1
    np.testing.assert_array_equal(result, counted(2 * MIB, start=1))


def test_memory_is_shared_through_a_socket_of_this_host(memory):
    assert memory.server.address.startswith("127.")
    with shardcall.connect(memory.server.address.replace("127.0.0.1", "localhost")) as client:
        client.call("echo", counted(2 * MIB))
    assert sources(memory) == [["segment"]]


def answer_no_descriptor(connection):
    with connection:
        connection.recv(32)
        connection.sendall(b"\x01")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda memory: setattr(memory, "refuse_opening", (grpc.StatusCode.UNIMPLEMENTED, "NOT_SUPPORTED")),
        lambda memory: setattr(memory, "path", memory.folder / "other"),
        lambda memory: setattr(memory, "serve", lambda connection: connection.close()),
        lambda memory: setattr(memory, "serve", answer_no_descriptor),
    ],
    ids=["unimplemented", "no socket", "a stranger", "no descriptor"],
)
def test_what_cannot_be_shared_is_streamed_and_not_asked_for_again(memory, wrong):
    wrong(memory)
    with shardcall.connect(memory.server.address) as client:
        for _ in range(3):
            assert client.call("echo", counted(2 * MIB)).array[7] == 7
    assert (sources(memory), memory.asked) == ([["streamed"]] * 3, 1)


def test_a_server_that_is_busy_is_asked_again_later(memory, shared_client):
    memory.refuse_opening = (grpc.StatusCode.RESOURCE_EXHAUSTED, "SERVER_BUSY")
    shared_client.call("echo", counted(2 * MIB))
    memory.refuse_opening = ()
    shared_client._shared_memory._segments._not_before = 0
    shared_client.call("echo", counted(2 * MIB))
    assert sources(memory) == [["streamed"], ["segment"]]


def test_a_segment_that_the_server_forgot_is_abandoned_and_the_call_streamed(memory, shared_client):
    shared_client.call("echo", counted(2 * MIB))
    memory.segments.clear()
    result = shared_client.call("echo", counted(2 * MIB)).array
    assert sources(memory) == [["segment"], ["segment"], ["streamed"]]
    np.testing.assert_array_equal(result, counted(2 * MIB))
    memory.ended.get(timeout=20)
    shared_client.call("echo", counted(2 * MIB))
    assert sources(memory)[-1] == ["segment"]


def test_after_a_refusal_the_memory_is_used_again(memory, shared_client):
    memory.refuse = (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_OPERAND")
    for _ in range(20):
        with pytest.raises(shardcall.InvalidOperandError):
            shared_client.call("echo", counted(8 * MIB))
    memory.refuse = ()
    shared_client.call("echo", counted(8 * MIB))
    assert memory.opened == [32 * MIB]


@pytest.mark.parametrize("reason", ["DEADLINE_EXCEEDED", "MESH_RESTARTED", "OUT_OF_DEVICE_MEMORY"])
def test_the_memory_of_a_call_that_may_still_run_is_abandoned(memory, shared_client, reason):
    held = shared_client.call("echo", counted(2 * MIB)).array
    memory.refuse = (grpc.StatusCode.ABORTED, reason)
    with pytest.raises(shardcall.ShardcallError):
        shared_client.call("echo", counted(2 * MIB))
    assert memory.ended.get(timeout=20) == memory.calls[0].result_space.segment_id
    memory.refuse = ()
    np.testing.assert_array_equal(shared_client.call("echo", held).array, held)
    first, _, third = (call.operands[0].segment.segment_id for call in memory.calls)
    assert third != first


def test_a_result_outside_its_buffer_is_an_error(memory, shared_client):
    answer = memory.answer

    def elsewhere(request, chunks, context, *, streamed):
        response = answer(request, chunks, context, streamed=streamed)
        response.results[0].segment.offset = 2**40
        return response

    memory.answer = elsewhere
    with pytest.raises(shardcall.ProtocolError, match=r"result 0 is outside the result buffer"):
        shared_client.call("echo", counted(2 * MIB))
