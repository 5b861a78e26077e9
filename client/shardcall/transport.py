"""The one door through which every RPC goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import grpc
from google.protobuf.message import Message

from shardcall import arrays, download, status
from shardcall.arrays import NDArray
from shardcall.chunk_codec import decode_answer
from shardcall.deadline import Deadline
from shardcall.download import Answer, stream_answer, unary_answer
from shardcall.errors import ClientClosedError, ResourceExhaustedError
from shardcall.interrupts import CancelOnInterrupt
from shardcall.server_info import Limits
from shardcall.upload import stream_requests, unary_request
from shardcall.v1 import (
    error_pb2,
    kernel_pb2,
    kernel_service_pb2,
    kernel_service_pb2_grpc,
    server_info_service_pb2_grpc,
)

_Request = TypeVar("_Request", bound=Message)
_Response = TypeVar("_Response", bound=Message)

_UNARY_BYTES = 2**20
_CHUNK_BYTES = 2**20
_STREAM_REQUIRED = error_pb2.ErrorReason.Name(error_pb2.ERROR_REASON_STREAM_REQUIRED).removeprefix("ERROR_REASON_")


_SERVICE = kernel_service_pb2.DESCRIPTOR.services_by_name["KernelService"]
_EXECUTE_STREAM = f"/{_SERVICE.full_name}/{_SERVICE.methods_by_name['ExecuteStream'].name}"


class Transport:
    """A channel to one server; safe to use from several threads at once.

    Args:
        channel: the connection; closed with the transport.
        address: of the server, as the caller wrote it.
    """

    def __init__(self, channel: grpc.Channel, address: str) -> None:
        self.address = address
        self.kernels = kernel_service_pb2_grpc.KernelServiceStub(channel)
        self.server = server_info_service_pb2_grpc.ServerInfoServiceStub(channel)
        self._channel = channel
        self._execute_stream: grpc.StreamStreamMultiCallable[bytes, download.Message] = channel.stream_stream(
            _EXECUTE_STREAM, None, decode_answer
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
        with self._translated(deadline, kernel):
            return _call_unary(method, request, deadline)

    def execute(
        self,
        call: kernel_pb2.KernelCall,
        operands: Sequence[NDArray | None],
        limits: Limits,
        deadline: Deadline,
        *,
        large_results: bool = False,
    ) -> Answer:
        """Runs a kernel: in one message each way where the arrays are small, as a stream where they are not.

        Args:
            call: all but the arrays.
            operands: in any layout; None for one left out.
            limits: of the server.
            deadline: of the call.
            large_results: whether the results are known to be too large for one message.

        Raises:
            ResourceExhaustedError: if the operands are over the server's limit; nothing is copied or sent.
            ShardcallError: for every other failure.
        """
        size = sum(operand.nbytes for operand in operands if operand is not None)
        _check_size(size, limits.max_call_bytes)
        operands = [None if operand is None else arrays.row_major(operand) for operand in operands]
        with self._translated(deadline, call.kernel):
            if size <= min(limits.max_inline_bytes, _UNARY_BYTES) and not large_results:
                try:
                    return unary_answer(_call_unary(self.kernels.Execute, unary_request(call, operands), deadline))
                except grpc.RpcError as error:
                    if status.reason_of(error) != _STREAM_REQUIRED:
                        raise
            return self._stream(call, operands, limits, deadline)

    def _stream(
        self,
        call: kernel_pb2.KernelCall,
        operands: Sequence[NDArray | None],
        limits: Limits,
        deadline: Deadline,
    ) -> Answer:
        chunk_bytes = min(limits.max_chunk_bytes or _CHUNK_BYTES, _CHUNK_BYTES)
        requests = stream_requests(call, operands, limits.max_inline_bytes, chunk_bytes)
        timeout, metadata = deadline.rpc_arguments()
        with CancelOnInterrupt() as interrupt:
            answers = self._execute_stream(requests, timeout=timeout, metadata=metadata)
            interrupt.watch(answers)
            try:
                return stream_answer(answers, limits.max_call_bytes)
            except BaseException:
                answers.cancel()  # also ends gRPC's thread that reads `requests`
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


def _call_unary(
    method: grpc.UnaryUnaryMultiCallable[_Request, _Response], request: _Request, deadline: Deadline
) -> _Response:
    timeout, metadata = deadline.rpc_arguments()
    return method(request, timeout=timeout, metadata=metadata)


def _check_size(size: int, limit: int) -> None:
    if limit and size > limit:
        raise ResourceExhaustedError(
            f"the operands hold {size:,} bytes and the server takes {limit:,} in one call; "
            "call with smaller pieces, or start the server with a higher limit",
            field="operands",
            metadata={"asked": str(size), "limit": str(limit)},
        )
