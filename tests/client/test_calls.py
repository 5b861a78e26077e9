"""Calls over a real gRPC connection, to a server that answers with its operands, and their results."""

import dataclasses
import threading
import weakref

import ml_dtypes
import numpy as np
import pytest
from client.conftest import default_info, echo, echo_stream
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from rows import rows

import shardcall
from shardcall._src.device_arrays import plan
from shardcall._src.transfer.download import stream_answer
from shardcall._src.transfer.upload import pack, stream_requests
from shardcall.v1 import kernel_service_pb2
from shardcall_core.types.element_types import NAMES, parse_dtype
from shardcall_core.wire.chunk_codec import decode

MIB = 2**20


def counted(shape, dtype):
    """An array whose bytes all differ from their neighbours, and are values of the type."""
    dtype = parse_dtype(dtype)
    raw = np.arange(np.prod(shape, dtype=int) * dtype.itemsize) % (2 if dtype.kind == "b" else 7)
    return raw.astype(np.uint8).view(dtype).reshape(shape)


def test_half_a_mib_takes_one_message_and_more_a_stream(server, client):
    client.call("echo", counted((MIB // 2,), "uint8"))
    client.call("echo", counted((MIB // 2 + 1,), "uint8"))
    assert [request if isinstance(request, str) else "unary" for request in server.requests] == ["unary", "stream"]


def test_the_servers_chunk_size_is_kept(server):
    sizes = []

    def measure(requests, context):
        came = list(requests)
        sizes.extend(len(request.chunk.data) for request in came)
        return echo_stream(iter(came), context)

    server.info, server.execute_stream = lambda request, context: default_info(max_chunk_bytes=1000), measure
    with shardcall.connect(server.address) as client:
        client.call("echo", counted((MIB + 1,), "uint8"))
    assert (max(sizes), sum(sizes)) == (1000, MIB + 1)


@pytest.mark.parametrize("bound", [True, False], ids=["compiled", "called"])
def test_operands_beyond_the_servers_limit_are_neither_copied_nor_sent(server, client, bound):
    x = np.broadcast_to(np.float64(1), (2**20, 2**20))  # 8 TiB, if it were copied
    says = r"8,796,093,022,216 bytes\) .* 256 MiB \(268,435,456 bytes\) in"
    with pytest.raises(shardcall.ResourceExhaustedError, match=says) as caught:
        client.compile("echo", x, 1.0)() if bound else client.call("echo", x, 1.0)
    assert caught.value.metadata == {"asked": "8796093022216", "limit": "268435456"}
    with pytest.raises(shardcall.ResourceExhaustedError):
        client.call("echo", *[np.broadcast_to(np.int8(1), 2**27)] * 3)
    assert client.plan("echo", x).kernel == "echo"
    assert not [request for request in server.requests if request == "stream" or hasattr(request, "keep_results")]


def test_a_result_is_an_array_to_numpy(client):
    result = client.call("echo", [1.0, 2.0])
    assert np.shares_memory(np.asarray(result), result.array)
    assert np.asarray(result, dtype=np.float32).dtype == np.float32
    assert not np.shares_memory(np.array(result, copy=True), result.array)
    with pytest.raises(ValueError, match=r"[Cc]opy"):
        np.asarray(result, dtype=np.int8, copy=False)
    np.testing.assert_array_equal(np.add(result, 1), [2.0, 3.0])


def test_a_closed_client_says_so(server):
    client = shardcall.connect(server.address)
    client.close()
    client.close()
    for call in (client.kernels, lambda: client.call("echo", 1), lambda: client.call("echo", np.zeros(3 * MIB))):
        with pytest.raises(shardcall.ClientClosedError, match=r"shardcall.connect"):
            call()


def test_an_operand_is_let_go_after_a_call(client):
    x = counted((2 * MIB,), "uint8")
    gone = threading.Event()
    weakref.finalize(x, gone.set)
    client.call("echo", x)
    del x
    assert gone.wait(10)


ANY_ARRAY = st.sampled_from(NAMES).flatmap(
    lambda name: hnp.arrays(np.uint8, hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=9)).map(
        lambda raw: np.repeat(raw, parse_dtype(name).itemsize, axis=-1).view(parse_dtype(name))
    )
)


@settings(max_examples=100, deadline=None)
@given(operands=st.lists(st.none() | ANY_ARRAY, max_size=4), inline=st.integers(0, 200), chunk=st.integers(1, 64))
def test_whatever_the_chunks_the_bytes_are_the_same(operands, inline, chunk):
    packed = pack(operands, inline_bytes=inline)
    header = kernel_service_pb2.ExecuteRequest(operands=packed.messages)
    messages = stream_requests(kernel_service_pb2.ExecuteStreamRequest, header, packed.streamed, chunk)
    requests = map(kernel_service_pb2.ExecuteStreamRequest.FromString, messages)
    carrier, answers = kernel_service_pb2.ExecuteStreamResponse, echo_stream(requests, None)
    answer = stream_answer((decode(carrier, one.SerializeToString()) for one in answers), max_bytes=0)
    present = [operand for operand in operands if operand is not None]
    assert [array.tobytes() for array in answer.results] == [operand.tobytes() for operand in present]
    assert [(a.dtype, a.shape) for a in answer.results] == [(o.dtype, o.shape) for o in present]


def test_a_result_holds_timing_and_cache_outcome_and_reads_its_plan_once_when_it_is_asked_for(client, monkeypatch):
    read = []
    from_proto = plan.from_proto
    monkeypatch.setattr(plan, "from_proto", lambda *message: read.append(message) or from_proto(*message))
    result = client.call("echo", [1.0, 2.0])
    assert (result.cache_hit, result.explanation) == (False, "axis was 0, is 1")
    assert (result.timing.total, result.timing.transport) == (1.0, result.timing.round_trip - 1.0)
    assert read == []
    assert result.plan is result.plan
    assert len(read) == 1
    assert (result.plan.kernel, result.plan.cache_hit, result.plan.explanation) == ("echo", False, "axis was 0, is 1")
    assert result.plan == client.plan("echo", [1.0, 2.0])
    assert repr(result).startswith("<Result float64[2] by 'plain' in ")
    assert repr(result).endswith("compiled now; see .array>")


def test_one_result_can_be_unpacked_and_several_are_a_tuple(client):
    result = client.call("echo", [1.0, 2.0])
    (array,) = result
    assert array is result.array
    result = client.call("echo", 1, ml_dtypes.bfloat16(2))
    assert [array.dtype.name for array in result.arrays] == ["int64", "bfloat16"]
    with pytest.raises(shardcall.InvalidOperandError, match=r"2 results; use .arrays"):
        _ = result.array


def test_a_result_of_one_element_is_a_number(client):
    result = client.call("echo", [2.0])
    assert (float(result), int(result), complex(result), bool(result)) == (2.0, 2, 2, True)
    with pytest.raises(TypeError, match="float"):
        float(client.call("echo", [1.0, 2.0]))


@rows("name", ["arrays", "timing", "plan", "cache_hit", "explanation", "array"])
def test_a_result_cannot_be_changed(client, name):
    result = client.call("echo", 1.0)
    for _ in range(2):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(result, name, None)
        getattr(result, name)


def test_a_plan_of_another_version_does_not_take_the_result_away(server, client):
    def execute(request, context):
        response = echo(request, context)
        response.plan.mesh.ClearField("axes")
        return response

    server.execute = execute
    result = client.call("echo", [1.0, 2.0])
    np.testing.assert_array_equal(result, [1.0, 2.0])
    with pytest.raises(shardcall.ProtocolError, match=r"describes an invalid mesh"):
        _ = result.plan
