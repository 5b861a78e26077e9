"""Runs kernels, and chooses the transport of their operands and results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from shardcall._src.device_arrays.array_version import ArrayVersion
from shardcall._src.memory.result_buffer import ResultBuffer
from shardcall._src.rpc.deadline import Deadline
from shardcall._src.rpc.transport import Transport
from shardcall._src.transfer.call_stream import CallStream
from shardcall._src.transfer.download import Answer, ResidentResult, broken, stream_answer, unary_answer
from shardcall._src.transfer.result_sizes import ResultSizes, aligned_size
from shardcall._src.transfer.shared_memory_client import CallMemory, SharedMemory, with_shared_memory
from shardcall._src.transfer.upload import RIDES_ALONG_BYTES, PackedOperands, Value, pack, stream_requests
from shardcall.v1 import kernel_pb2, kernel_service_pb2
from shardcall_core.types.errors import ProtocolError, ResourceExhaustedError, ShardcallError
from shardcall_core.types.server_info import Limits
from shardcall_core.types.sizes import exact
from shardcall_core.wire.metadata import new_request_id

CHUNK_BYTES = 2**20

_UNARY_BYTES = 2**19  # a stream takes 0.78 of the time of a unary call with 1 MiB, 0.86 with 768 KiB, 1 with 512 KiB
_CALL_STREAM_BYTES = 2**18  # arrays of 256 KiB take 0.88 of the time of an RPC of their own, those of 512 KiB the same
_STREAM_REQUIRED = "STREAM_REQUIRED"
_SPARE_BYTES = 4096


class CallRunner:
    """Runs kernels by one message each way, as a stream, or through shared memory.

    Safe to use from several threads at once.

    Args:
        transport: the connection to the server.
        shared_memory: memory shared with it; None if there is none.
        call_stream: the stream for small calls; None if there is none.
    """

    def __init__(
        self,
        transport: Transport,
        limits: Limits,
        shared_memory: SharedMemory | None,
        call_stream: CallStream | None = None,
    ) -> None:
        self._transport = transport
        self._shared_memory = shared_memory
        self._call_stream = call_stream
        self.use(limits)

    def use(self, limits: Limits) -> None:
        """Keeps other limits from now on, those of another server."""
        self._limits = limits
        self._max_streamed_bytes = max_streamed_bytes(limits)
        self._sizes = ResultSizes(max(limits.min_segment_bytes, 1))

    def run(
        self,
        call: kernel_pb2.KernelCall,
        operands: Sequence[Value],
        deadline: Deadline,
        *,
        lease_id: bytes = b"",
        result_sizes: Sequence[int] | None = None,
        refuse_transfers: bool = False,
    ) -> Answer:
        """Runs a kernel.

        Args:
            call: the call without its arrays.
            operands: arrays of any memory layout.
            lease_id: the lease of results that stay on the mesh; empty for results that come back.
            result_sizes: the bytes of each result; None if unknown.
            refuse_transfers: refuse the call if it would move an operand on the mesh.

        Raises:
            ResourceExhaustedError: if the operands are over the server's limit; nothing is copied or sent.
            ShardcallError: for every other failure.
        """
        size, rerun = 0, True
        for operand in operands:
            if isinstance(operand, np.ndarray):
                size += operand.nbytes
            elif operand is not None:
                rerun = False
        inline_bytes = self._limits.max_inline_bytes
        small = size <= min(inline_bytes, _UNARY_BYTES) and (
            bool(lease_id) or result_sizes is None or sum(result_sizes) <= inline_bytes
        )
        if size > self._limits.max_call_bytes:
            check_size(size, self._limits.max_call_bytes)
        result_bytes = (
            0 if lease_id or self._shared_memory is None else self._result_bytes(call, operands, result_sizes)
        )
        request_id = new_request_id()
        stream = self._call_stream
        if (
            small
            and stream is not None
            and size <= self._max_streamed_bytes
            and not stream.is_refused
            and (self._shared_memory is None or size + result_bytes < self._limits.min_segment_bytes)
        ):
            send_item = partial(
                stream.send,
                call,
                operands,
                deadline,
                lease_id=lease_id,
                refuse_transfers=refuse_transfers,
                request_id=request_id,
            )
            sent = stream.answer(send_item, deadline, rerun=rerun)
            if not isinstance(sent, str):
                return self._checked(sent, call, operands, lease_id, result_sizes)
            small = sent != _STREAM_REQUIRED
        for operand in operands:
            if isinstance(operand, ArrayVersion):
                operand.settled(deadline)  # other RPCs may overtake the call that makes it
        request = partial(
            kernel_service_pb2.ExecuteRequest,
            call=call,
            keep_results=bool(lease_id),
            lease_id=lease_id,
            refuse_transfers=refuse_transfers,
        )

        def send(shared: CallMemory | None) -> Answer:
            return self._send(request, operands, deadline, shared, request_id, unary=small, rerun=rerun)

        answer = with_shared_memory(self._shared_memory, operands, result_bytes, deadline, send)
        return self._checked(answer, call, operands, lease_id, result_sizes)

    def _checked(
        self,
        answer: Answer,
        call: kernel_pb2.KernelCall,
        operands: Sequence[Value],
        lease_id: bytes,
        result_sizes: Sequence[int] | None,
    ) -> Answer:
        if lease_id and not all(isinstance(result, ResidentResult) for result in answer.results):
            raise broken("a result that stays on the mesh came back")
        if self._shared_memory is not None and result_sizes is None:
            sizes, total = [], 0
            for result in answer.results:
                if isinstance(result, np.ndarray):
                    sizes.append(result.nbytes)
                    total += result.nbytes
            if total >= self._limits.min_segment_bytes:
                self._sizes.note(call, operands, sizes)
        return answer

    def _result_bytes(
        self, call: kernel_pb2.KernelCall, operands: Sequence[Value], result_sizes: Sequence[int] | None
    ) -> int:
        """Returns the bytes that results need, or an estimate for a call whose results are unknown."""
        if result_sizes is not None:
            return aligned_size(result_sizes)
        if (size := self._sizes.find(call, operands)) is not None:
            return size
        size = 0
        for operand in operands:
            if operand is not None:
                size += operand.nbytes
        return size + _SPARE_BYTES if size else 0

    def _send(
        self,
        request: Callable[..., kernel_service_pb2.ExecuteRequest],
        operands: Sequence[Value],
        deadline: Deadline,
        shared: CallMemory | None,
        request_id: str,
        *,
        unary: bool,
        rerun: bool,
    ) -> Answer:
        inline = self._limits.max_inline_bytes
        if shared is None:
            buffer, space = None, None
            packed = pack(operands, inline_bytes=inline, longest_inline=inline if unary else RIDES_ALONG_BYTES)
        else:
            buffer = shared.result_buffer
            space = None if buffer is None else buffer.message()
            packed = pack(operands, inline_bytes=inline, regions=shared.regions)
            unary = not packed.streamed
        message = request(operands=packed.messages, result_space=space)
        if unary:
            try:
                return self._send_unary(message, buffer, deadline, request_id, shares=shared is not None, rerun=rerun)
            except ShardcallError as error:
                if error.reason != _STREAM_REQUIRED:
                    raise
        return self._send_stream(message, packed, buffer, deadline, request_id, shares=shared is not None, rerun=rerun)

    def _send_unary(
        self,
        request: kernel_service_pb2.ExecuteRequest,
        buffer: ResultBuffer | None,
        deadline: Deadline,
        request_id: str,
        *,
        shares: bool,
        rerun: bool,
    ) -> Answer:
        execute, kernel = self._transport.stubs.kernels.Execute, request.call.kernel
        with self._transport.meters.start(request_id, kernel):
            response = self._transport.unary(
                execute, request, deadline, kernel=kernel, shares=shares, rerun=rerun, request_id=request_id
            )
        try:
            return unary_answer(response, buffer)
        except ProtocolError as error:
            self._transport.add_versions(error)
            raise

    def _send_stream(
        self,
        request: kernel_service_pb2.ExecuteRequest,
        packed: PackedOperands,
        buffer: ResultBuffer | None,
        deadline: Deadline,
        request_id: str,
        *,
        shares: bool,
        rerun: bool,
    ) -> Answer:
        chunk = chunk_bytes(self._limits)
        requests = partial(stream_requests, kernel_service_pb2.ExecuteStreamRequest, request, packed.streamed, chunk)
        read = partial(stream_answer, max_bytes=self._limits.max_call_bytes, buffer=buffer)
        kernel = request.call.kernel
        return self._transport.execute_stream(
            requests, read, deadline, kernel=kernel, shares=shares, rerun=rerun, request_id=request_id
        )


def max_streamed_bytes(limits: Limits) -> int:
    """Returns the bytes of arrays up to which a call stream is the fastest transport, and the server takes them."""
    return min(_CALL_STREAM_BYTES, limits.max_streamed_bytes, limits.max_inline_bytes)


def chunk_bytes(limits: Limits) -> int:
    """Returns the bytes of the chunks to be sent."""
    return min(limits.max_chunk_bytes or CHUNK_BYTES, CHUNK_BYTES)


def check_size(size: int, limit: int) -> None:
    """Checks that a call's operands are not over the server's limit.

    Raises:
        ResourceExhaustedError: if they are.
    """
    if limit and size > limit:
        raise ResourceExhaustedError(
            f"the operands hold {exact(size)} and the server takes {exact(limit)} in one call; "
            "call with smaller pieces, or start the server with a higher limit",
            reason="CALL_TOO_LARGE",
            field="operands",
            metadata={"asked": str(size), "limit": str(limit)},
        )
