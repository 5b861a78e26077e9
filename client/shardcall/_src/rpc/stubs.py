"""The RPC methods of a server."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc

from shardcall.v1 import (
    array_service_pb2,
    file_service_pb2,
    kernel_service_pb2,
    method_options_pb2,
    model_service_pb2,
    profile_service_pb2,
    segment_service_pb2,
)
from shardcall.v1.array_service_pb2_grpc import ArrayServiceStub
from shardcall.v1.file_service_pb2_grpc import FileServiceStub
from shardcall.v1.kernel_service_pb2_grpc import KernelServiceStub
from shardcall.v1.model_service_pb2_grpc import ModelServiceStub
from shardcall.v1.profile_service_pb2_grpc import ProfileServiceStub
from shardcall.v1.segment_service_pb2_grpc import SegmentServiceStub
from shardcall.v1.server_info_service_pb2_grpc import ServerInfoServiceStub
from shardcall_core.wire.chunk_codec import ArrayMessage, CallMessage, decode

if TYPE_CHECKING:  # the classes of gRPC are generic in their stubs only
    _CallStream: TypeAlias = grpc.StreamStreamMultiCallable[bytes, bytes]
    _ExecuteStream: TypeAlias = grpc.StreamStreamMultiCallable[bytes, CallMessage]
    _GetArray: TypeAlias = grpc.UnaryStreamMultiCallable[array_service_pb2.GetArrayRequest, ArrayMessage]
    _PutArray: TypeAlias = grpc.StreamUnaryMultiCallable[bytes, array_service_pb2.PutArrayResponse]


class Stubs:
    """A channel, and the stubs of its services.

    Attributes:
        slot_methods: the unary methods that need a call slot, by the option `rules` of the contract.
        execute_stream: exchanges serialized messages, as do `get_array` and `put_array`, which carry chunks too.
        call_stream: exchanges serialized frames.

    Args:
        channel: the channel, closed by `close`.
    """

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel
        self.kernels: KernelServiceStub = KernelServiceStub(channel)
        self.arrays: ArrayServiceStub = ArrayServiceStub(channel)
        self.files: FileServiceStub = FileServiceStub(channel)
        self.models: ModelServiceStub = ModelServiceStub(channel)
        self.segments: SegmentServiceStub = SegmentServiceStub(channel)
        self.server: ServerInfoServiceStub = ServerInfoServiceStub(channel)
        self.profiles: ProfileServiceStub = ProfileServiceStub(channel)
        self.slot_methods: frozenset[Any] = frozenset(
            {
                *_slot_methods(self.kernels, kernel_service_pb2),
                *_slot_methods(self.arrays, array_service_pb2),
                *_slot_methods(self.files, file_service_pb2),
                *_slot_methods(self.models, model_service_pb2),
                *_slot_methods(self.segments, segment_service_pb2),
                *_slot_methods(self.profiles, profile_service_pb2),
            }
        )
        self.execute_stream: _ExecuteStream = channel.stream_stream(
            _path(kernel_service_pb2, "KernelService", "ExecuteStream"),
            None,
            partial(decode, kernel_service_pb2.ExecuteStreamResponse),
        )
        self.call_stream: _CallStream = channel.stream_stream(
            _path(kernel_service_pb2, "KernelService", "CallStream"), None, None
        )
        self.get_array: _GetArray = channel.unary_stream(
            _path(array_service_pb2, "ArrayService", "GetArray"),
            array_service_pb2.GetArrayRequest.SerializeToString,
            partial(decode, array_service_pb2.GetArrayResponse),
        )
        self.put_array: _PutArray = channel.stream_unary(
            _path(array_service_pb2, "ArrayService", "PutArray"),
            None,
            array_service_pb2.PutArrayResponse.FromString,
        )

    def close(self) -> None:
        """Closes the channel and cancels the calls in flight."""
        self._channel.close()


def _slot_methods(stub: object, module: Any) -> Iterator[Any]:
    """Yields the unary methods of a stub that need a call slot."""
    for service in module.DESCRIPTOR.services_by_name.values():
        for method in service.methods:
            is_unary = not (method.client_streaming or method.server_streaming)
            if is_unary and method.GetOptions().Extensions[method_options_pb2.rules].needs_call_slot:
                yield getattr(stub, method.name)


def _path(module: Any, service: str, method: str) -> str:
    descriptor = module.DESCRIPTOR.services_by_name[service]
    return f"/{descriptor.full_name}/{descriptor.methods_by_name[method].name}"
