"""Requests of a newer client: their unknown parts are refused at once, with the server's version."""

from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from end_to_end.messages import UNIMPLEMENTED, call, check, chunk, execute, header, mesh, operand, spec, tensor
from end_to_end.raw_stream import item, prepare, put, read
from google.protobuf.message import Message
from rows import rows

import shardcall as sc
from shardcall._src.transfer.stream_connection import StreamConnection
from shardcall.v1 import (
    array_service_pb2,
    call_stream_pb2,
    kernel_service_pb2,
    model_service_pb2,
    server_info_service_pb2,
)
from shardcall_core.versions import build_version

FIELD = 2000
BYTES = bytes((0x82, 0x7D, 3)) + b"new"  # field 2000 with a value of three bytes
X = np.arange(8.0)
HANDLE = bytes(15) + b"s"
SAYS = f"which this server, shardcall {build_version()}, does not know; use a client of the same version, or a newer"
KERNELS, ARRAYS = "/shardcall.v1.KernelService", "/shardcall.v1.ArrayService"


def newer(message: Any, *path: str | int) -> Any:
    """Returns the message with a field that the contract does not have, in the part at a path."""
    part = message
    for step in path:
        part = getattr(part, str(step)) if isinstance(part, Message) else part[step]
    part.MergeFromString(BYTES)
    return message


def new_item(number: int) -> call_stream_pb2.CallStreamItem:
    """An item of a kind that the contract does not have."""
    data = call_stream_pb2.ReadArray(number=number, handle=b"something").SerializeToString()
    return call_stream_pb2.CallStreamItem.FromString(BYTES[:2] + bytes([len(data)]) + data)


PLAN = kernel_service_pb2.PlanRequest(call=call(mesh=mesh(x=2), parameters={"n": 1}), operands=[tensor(8)])
EXECUTE = execute(operand(X))
PUT_HEADER = array_service_pb2.PutArrayRequest(
    header={"array": {"type": tensor(8), "streamed": {}}, "mesh": mesh(x=2), "spec": spec("x"), "lease_id": bytes(32)}
)


def copy(message: Any) -> Any:
    return type(message).FromString(message.SerializeToString())


@rows(
    ("method", "message", "name"),
    [
        (f"{KERNELS}/Plan", newer(copy(PLAN)), "PlanRequest"),
        (f"{KERNELS}/Plan", newer(copy(PLAN), "call", "mesh", "axes", 0), "MeshAxis"),
        (f"{KERNELS}/Plan", newer(copy(PLAN), "call", "parameters", "n"), "ParameterValue"),
        (f"{KERNELS}/Plan", newer(copy(PLAN), "operands", 0), "ArrayType"),
        (f"{KERNELS}/Execute", newer(copy(EXECUTE)), "ExecuteRequest"),
        (f"{KERNELS}/Execute", newer(copy(EXECUTE), "call"), "KernelCall"),
        (f"{KERNELS}/Execute", execute(newer(kernel_service_pb2.Operand(type=tensor(8)))), "Operand"),
        (f"{ARRAYS}/DeleteArrays", newer(array_service_pb2.DeleteArraysRequest()), "DeleteArraysRequest"),
        (
            "/shardcall.v1.ServerInfoService/GetServerInfo",
            newer(server_info_service_pb2.GetServerInfoRequest()),
            "GetServerInfoRequest",
        ),
        ("/shardcall.v1.ModelService/ListModels", newer(model_service_pb2.ListModelsRequest()), "ListModelsRequest"),
    ],
)
def test_a_request_with_an_unknown_part_is_refused_at_any_depth(channel, method, message, name):
    send = channel.unary_unary(method)
    with pytest.raises(grpc.RpcError) as caught:
        send(message.SerializeToString(), timeout=60)
    check(caught.value, UNIMPLEMENTED, "NOT_SUPPORTED", "", f"{name} has the field {FIELD}, {SAYS}")


@rows(
    ("method", "messages", "name"),
    [
        (f"{KERNELS}/ExecuteStream", [BYTES], "ExecuteStreamRequest"),
        (f"{KERNELS}/ExecuteStream", [newer(header((8,)), "header")], "ExecuteRequest"),
        (f"{KERNELS}/ExecuteStream", [newer(header((8,)), "header", "call")], "KernelCall"),
        (f"{KERNELS}/ExecuteStream", [header((8,)), chunk(0, 0, 8), BYTES], "ExecuteStreamRequest"),
        (f"{ARRAYS}/PutArray", [BYTES], "PutArrayRequest"),
        (f"{ARRAYS}/PutArray", [newer(copy(PUT_HEADER), "header")], "PutArrayHeader"),
        (f"{ARRAYS}/PutArray", [newer(copy(PUT_HEADER), "header", "spec", "spec", "entries", 0)], "PartitionSpecEntry"),
    ],
)
def test_an_upload_with_an_unknown_message_ends(channel, method, messages, name):
    frames = [message if isinstance(message, bytes) else message.SerializeToString() for message in messages]
    with pytest.raises(grpc.RpcError) as caught:
        list(channel.stream_stream(method)(iter(frames), timeout=60))
    check(caught.value, UNIMPLEMENTED, "NOT_SUPPORTED", "", f"{name} has the field {FIELD}, {SAYS}")


def test_a_method_that_there_is_not_names_the_version(channel):
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(f"{KERNELS}/ExecuteTwice")(b"", timeout=60)
    check(caught.value, UNIMPLEMENTED, "NOT_SUPPORTED", "", f"the call is one of {KERNELS}/ExecuteTwice, {SAYS}")


def test_an_item_that_is_new_is_refused_alone(stream):
    stream.send(prepare(), item(1, X), new_item(2), item(3, X))
    assert stream.refusal(2).startswith(f"NOT_SUPPORTED: CallStreamItem has the field {FIELD}, {SAYS}")
    for number in (1, 3):
        np.testing.assert_array_equal(stream.result(number), np.diff(X))


def test_an_item_that_is_new_and_has_no_number_ends_the_stream(stream):
    stream.send(newer(call_stream_pb2.CallStreamItem()))
    check(stream.error(), UNIMPLEMENTED, "NOT_SUPPORTED", "", f"CallStreamItem has the field {FIELD}, {SAYS}")


def test_an_unknown_option_of_an_item_is_refused_alone(stream):
    sent = {
        "StreamedCall": newer(item(1, X), "call"),
        "StreamedOperand": newer(item(2, None), "call", "operands", 0),
        "KernelCall": item(3, X, slot=1),  # the call of the slot
        "PutStreamedArray": newer(put(4, X, HANDLE), "put"),
        "Mesh": newer(put(5, X, HANDLE, mesh=mesh(x=2)), "put", "mesh"),
        "ReadArray": newer(read(6, HANDLE), "read"),
    }
    stream.send(prepare(), newer(prepare(1), "prepare", "call"), *sent.values(), item(7, X))
    for number, name in enumerate(sent, 1):
        assert stream.refusal(number).startswith(f"NOT_SUPPORTED: {name} has the field {FIELD}, {SAYS}")
    np.testing.assert_array_equal(stream.result(7), np.diff(X))


def test_a_client_puts_arrays_by_rpcs_where_the_stream_has_no_puts(server, monkeypatch):
    """Its put is an item that the server does not know."""
    frames = StreamConnection.frames

    def newer_frames(self: StreamConnection) -> Iterator[bytes]:
        for data in frames(self):
            frame = call_stream_pb2.CallStreamRequest.FromString(data)
            for sent in frame.items:
                if sent.HasField("put"):
                    sent.CopyFrom(new_item(sent.put.number))
            yield frame.SerializeToString()

    monkeypatch.setattr(StreamConnection, "frames", newer_frames)
    with sc.connect(server.address, shared_memory=False) as client:
        before = client.submit("negative", X)
        there = client.put(X, mesh={"x": 2})
        np.testing.assert_array_equal((there + before).get(timeout=60), X - X)
