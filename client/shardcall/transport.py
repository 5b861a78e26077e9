"""The one door through which every RPC goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message

from shardcall import cancellation, status
from shardcall.chunk_codec import decode
from shardcall.deadline import Deadline
from shardcall.download import ArrayMessage, CallMessage
from shardcall.errors import ClientClosedError
from shardcall.interrupts import CancelOnInterrupt
from shardcall.metadata import Metadata, rpc_metadata
from shardcall.progress import Meter, Meters
from shardcall.v1 import (
    array_service_pb2,
    array_service_pb2_grpc,
    kernel_service_pb2,
    kernel_service_pb2_grpc,
    segment_service_pb2_grpc,
    server_info_service_pb2_grpc,
)

_Request = TypeVar("_Request", bound=Message)
_Response = TypeVar("_Response", bound=Message)
_Value = TypeVar("_Value")

if TYPE_CHECKING:  # the classes of gRPC are generic in their stubs only
    _ExecuteStream: TypeAlias = grpc.StreamStreamMultiCallable[bytes, CallMessage]
    _GetArray: TypeAlias = grpc.UnaryStreamMultiCallable[array_service_pb2.GetArrayRequest, ArrayMessage]
    _PutArray: TypeAlias = grpc.StreamUnaryMultiCallable[bytes, array_service_pb2.PutArrayResponse]


class Transport:
    """A channel to one server; safe to use from several threads at once.

    Args:
        channel: the connection; closed with the transport.
        address: of the server, as the caller wrote it.
        meters: of the calls that move much or compile.
    """

    def __init__(self, channel: grpc.Channel, address: str, meters: Meters) -> None:
        self.address = address
        self.meters = meters
        self.kernels = kernel_service_pb2_grpc.KernelServiceStub(channel)
        self.arrays = array_service_pb2_grpc.ArrayServiceStub(channel)
        self.segments = segment_service_pb2_grpc.SegmentServiceStub(channel)
        self.server = server_info_service_pb2_grpc.ServerInfoServiceStub(channel)
        self._channel = channel
        # Those that carry chunks take and give the bytes of their messages.
        self._execute_stream: _ExecuteStream = channel.stream_stream(
            _path(kernel_service_pb2, "KernelService", "ExecuteStream"),
            None,
            partial(decode, kernel_service_pb2.ExecuteStreamResponse),
        )
        self._get_array: _GetArray = channel.unary_stream(
            _path(array_service_pb2, "ArrayService", "GetArray"),
            array_service_pb2.GetArrayRequest.SerializeToString,
            partial(decode, array_service_pb2.GetArrayResponse),
        )
        self._put_array: _PutArray = channel.stream_unary(
            _path(array_service_pb2, "ArrayService", "PutArray"),
            None,
            array_service_pb2.PutArrayResponse.FromString,
        )

    def close(self) -> None:
        """Closes the channel; calls in flight are cancelled."""
        self._channel.close()

    def unary(
        self,
        method: grpc.UnaryUnaryMultiCallable[_Request, _Response],
        request: _Request,
        deadline: Deadline,
        *,
        kernel: str = "",
    ) -> _Response:
        """Makes one call with one message each way.

        Args:
            method: of a stub.
            request: the message.
            deadline: of the call.
            kernel: the one whose operands and specs errors name as its callers do.

        Raises:
            ShardcallError: for every failure.
        """
        timeout, metadata = self._rpc_arguments(deadline)
        with self._translated(deadline, kernel):
            return cancellation.call_unary(method, request, timeout, metadata)

    def execute_stream(
        self,
        requests: Callable[[Meter], Iterator[bytes]],
        read: Callable[[Iterator[CallMessage], Meter], _Value],
        deadline: Deadline,
        *,
        kernel: str,
    ) -> _Value:
        """Makes a streamed call of a kernel.

        Args:
            requests: makes the messages to send.
            read: makes the value to return of those that come.
            deadline: of the call.
            kernel: as in `unary`.

        Raises:
            ShardcallError: for every failure.
        """
        return self._stream(lambda meter: (self._execute_stream, requests(meter)), read, deadline, kernel)

    def get_array(
        self,
        request: array_service_pb2.GetArrayRequest,
        read: Callable[[Iterator[ArrayMessage], Meter], _Value],
        deadline: Deadline,
    ) -> _Value:
        """Copies an array from the mesh; arguments and errors as of `execute_stream`."""
        return self._stream(lambda _: (self._get_array, request), read, deadline)

    def put_array(
        self, requests: Callable[[Meter], Iterator[bytes]], deadline: Deadline
    ) -> array_service_pb2.PutArrayResponse:
        """Puts an array on the mesh; arguments and errors as of `execute_stream`."""
        return self._stream(lambda meter: (self._put_array.future, requests(meter)), _only_response, deadline)

    def _rpc_arguments(self, deadline: Deadline) -> tuple[float, Metadata]:
        """The timeout and metadata of the next RPC of a call."""
        server_timeout_s, timeout_s = deadline.rpc_timeout()
        return timeout_s, rpc_metadata(server_timeout_s)

    def _stream(
        self,
        prepare: Callable[[Meter], tuple[Callable[..., Any], Any]],
        read: Callable[[Any, Meter], _Value],
        deadline: Deadline,
        kernel: str = "",
    ) -> _Value:
        timeout, metadata = self._rpc_arguments(deadline)
        # The meter within: Ctrl-C does not come between it and the terminal.
        with self._translated(deadline, kernel), CancelOnInterrupt() as interrupt, self.meters.start() as meter:
            begin, request = prepare(meter)
            call = begin(request, timeout=timeout, metadata=metadata)
            interrupt.watch(call)
            cancellation.watch(call)
            try:
                return read(call, meter)
            except BaseException:
                call.cancel()  # also ends gRPC's thread that reads the requests
                raise

    @contextmanager
    def _translated(self, deadline: Deadline, kernel: str) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            # The error is also the call, so its traceback is a cycle that would keep the operands.
            error.__traceback__ = None
            timeout_s, elapsed_s = deadline.timeout_s, deadline.elapsed_s()
            raise status.to_error(error, self.address, timeout_s, elapsed_s, kernel) from None
        except ValueError as error:
            if "closed" not in str(error).lower() or "channel" not in str(error).lower():
                raise
            raise ClientClosedError("this client is closed; make another with shardcall.connect") from None


def _path(module: Any, service: str, method: str) -> str:
    descriptor = module.DESCRIPTOR.services_by_name[service]
    return f"/{descriptor.full_name}/{descriptor.methods_by_name[method].name}"


def _only_response(call: Any, _: Meter) -> array_service_pb2.PutArrayResponse:
    """Waits for the only message of an answer; unlike ``result``, tells of a cancellation as of any other end."""
    if call.code() is not grpc.StatusCode.OK:
        raise call
    response: array_service_pb2.PutArrayResponse = call.result()
    return response
