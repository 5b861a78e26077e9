"""Sends the calls that nobody waits for."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Hashable, Sequence
from functools import partial

from shardcall._src.calls.array_deletion import delete, delete_on_stream
from shardcall._src.calls.call_request import CallRequest
from shardcall._src.calls.pending_call import PendingCall, SubmittedResult
from shardcall._src.calls.pending_calls import PendingCalls
from shardcall._src.device_arrays.array_version import ArrayVersion, Owner, PendingResult, ServerIdentity
from shardcall._src.device_arrays.lease import Lease
from shardcall._src.device_arrays.remote_array import (
    SHORT_TIMEOUT_S,
    RemoteArray,
    check_server,
    pending_result,
    settle_others,
)
from shardcall._src.rpc.deadline import Deadline
from shardcall._src.rpc.transport import Transport
from shardcall._src.transfer.call_runner import max_streamed_bytes, operand_bytes
from shardcall._src.transfer.call_stream import CallStream
from shardcall._src.transfer.download import Answer, only_array
from shardcall._src.transfer.upload import Value
from shardcall.v1 import array_service_pb2
from shardcall_core.types.arrays import Array, NDArray
from shardcall_core.types.errors import ShardcallError
from shardcall_core.types.server_info import Limits

_DEFAULT_LEASE_S = 60.0


class CallSender:
    """Sends calls on the call stream, and puts their results under the client's lease.

    Attributes:
        pending: the calls that were submitted.
        lease: the lease of the client's arrays.
        here: the server.

    Args:
        transport: the connection to the server.
        epoch: the epoch of its mesh.
        stream: the call stream of submitted calls; None if there is none.
    """

    def __init__(self, transport: Transport, limits: Limits, epoch: int, stream: CallStream | None) -> None:
        self.here = ServerIdentity(transport.address, epoch)
        self.pending = PendingCalls()
        self._limits = limits
        self._stream = stream
        # The lease's thread must not refer to the client, or it would never be collected.
        self.delete = partial(delete, transport, stream, self.pending)
        """Deletes arrays by their handles."""
        self.lease = Lease(limits.lease_seconds or _DEFAULT_LEASE_S, partial(_renew, transport), self.delete)

    def can_submit(self, values: Sequence[Value], deadline: Deadline) -> bool:
        """Returns True if operands are small enough for the call stream, and the server does not refuse it."""
        max_bytes = min(self._limits.max_inline_bytes, self._limits.max_streamed_bytes)
        stream = self._stream
        return stream is not None and operand_bytes(values) <= max_bytes and stream.wait_accepted(deadline)

    def submit(
        self,
        owner: Owner,
        call: CallRequest,
        values: Sequence[Value],
        types: Sequence[Array],
        deadline: Deadline,
        mesh: Hashable | None = None,
        name: str = "",
        *,
        stops_unread: bool = False,
        located: Callable[[ShardcallError], ShardcallError] | None = None,
    ) -> tuple[RemoteArray, ...]:
        """Sends a call on the call stream; returns its results, which are not there yet.

        Args:
            values: its operands.
            types: the types of its results.
            mesh: as of `SubmittedResult`.
            name: its name in errors; empty for that of the kernel.
            stops_unread: whether to cancel it when all its results are deleted.
            located: as of `PendingCall`.
        """
        settle_others(values, owner, deadline)
        submitted = PendingCall(self.pending, name or call.message.kernel, call.types, deadline.timeout_s)
        arrays = tuple(
            self.new_result(owner, result_type, SubmittedResult(submitted, index, mesh), committed=call.commits)
            for index, result_type in enumerate(types)
        )
        submitted.located = located or submitted.located
        submitted.results = [weakref.ref(array._version) for array in arrays]
        if stops_unread:
            submitted.stops_without = [array._version.handle for array in arrays]
        self.send(call, arrays, [submitted], deadline)
        return arrays

    def new_result(
        self, owner: Owner, result_type: Array, pending: PendingResult | None, *, committed: bool = True
    ) -> RemoteArray:
        """Returns the result of a call that is not sent yet; `send` puts it under the lease."""
        handle = self.pending.new_handles(1)[0]
        return RemoteArray(ArrayVersion(owner, self.here, handle, result_type, pending=pending, committed=committed))

    def renew(self, arrays: Sequence[RemoteArray]) -> None:
        """Gives new handles to results of a call that failed, which is sent in another form."""
        self.lease.release([array._version.handle for array in arrays])
        for array in arrays:
            array._version.handle = self.pending.new_handles(1)[0]

    def adopt(self, array: RemoteArray, result: RemoteArray) -> None:
        """Makes an array stand for the result of a call, instead of the object that stood for it."""
        version, other = array._version, result._version
        self.lease.release([other.handle])
        version.handle, version.placed, version.pending = other.handle, other.placed, None
        self.lease.hold(version.handle, partial(_same, array))

    def streams(self, nbytes: int) -> bool:
        """Returns True if the call stream takes arrays of so many bytes, and the server does not refuse it."""
        stream = self._stream
        return stream is not None and nbytes <= max_streamed_bytes(self._limits) and not stream.is_refused

    def read(self, handle: bytes, deadline: Deadline) -> NDArray | None:
        """Reads an array by the call stream, after the calls that were sent before; None if that cannot be.

        Raises:
            ShardcallError: of the class that fits.
        """
        assert self._stream is not None
        answer = self._stream.answer(partial(self._stream.read, handle, deadline), deadline)
        return None if isinstance(answer, str) else only_array(answer)

    def read_pending(self, handle: bytes, deadline: Deadline) -> NDArray:
        """Reads an array by the call stream that a call makes which was sent before, once.

        Raises:
            ShardcallError: of the class that fits; the error of that call says more.
        """
        assert self._stream is not None
        return only_array(self._stream.read(handle, deadline).result(deadline))

    def put(self, array: NDArray, header: array_service_pb2.PutArrayHeader, deadline: Deadline) -> Answer | None:
        """Puts an array on the mesh by the call stream; None if that cannot be.

        Raises:
            ShardcallError: of the class that fits.
        """
        stream = self._stream
        assert stream is not None
        # A new handle for each attempt: the server keeps the errors of handles.
        send = lambda: stream.put(array, header, self.pending.new_handles(1)[0], deadline)  # noqa: E731
        answer = stream.answer(send, deadline, rerun=True)
        return None if isinstance(answer, str) else answer

    def is_here(self, array: RemoteArray) -> bool:
        """Returns True for an array on this client's server that was not deleted."""
        version = array._version
        return not version.lost and (version.server is self.here or version.server.is_same(self.here))

    def send(
        self, call: CallRequest, arrays: Sequence[RemoteArray], calls: Sequence[PendingCall], deadline: Deadline
    ) -> None:
        """Sends a call on the call stream.

        Args:
            call: the call.
            arrays: its results.
            calls: what waits for them: one call, or one for each result.
            deadline: the deadline of the call.
        """
        stream, lease_id, values = self._stream, self.lease.lease_id, call.values
        assert stream is not None
        with contextlib.suppress(ShardcallError):  # the lease's thread tries again
            self.lease.delete_dropped(partial(delete_on_stream, stream, self.pending))
        operands = [value for value in values if isinstance(value, RemoteArray)]
        for operand in operands:
            check_server(operand, self.here, f"an operand of {call.message.kernel}")
            if (result := pending_result(operand)) is not None:
                result.begin()
        handles = [array._version.handle for array in arrays]
        for array in arrays:
            self.lease.hold(array._version.handle, partial(_same, array))
        send_item = partial(
            stream.send,
            call.message,
            values,
            deadline,
            lease_id=lease_id,
            result_handles=handles,
            request_id=handles[0].hex(),
        )
        used = [*handles, *(operand._version.handle for operand in operands)]
        pending = [result for operand in operands if (result := pending_result(operand))]
        if any(result.call.stops_without for result in pending if isinstance(result, SubmittedResult)):
            for submitted in calls:  # else the loop would not stop while they wait for it
                submitted.stops_without = handles
        owner = arrays[0]._version.owner
        borrowed = [operand._version for operand in operands if operand._version.owner is not owner]
        # The lease deletes the results of a call that was interrupted, as those of all dropped objects.
        self.pending.send(calls, lambda sending: send_item(sending=sending), used, pending, borrowed)


def _same(array: RemoteArray) -> RemoteArray:
    return array


def _renew(transport: Transport, lease_id: bytes) -> None:
    request = array_service_pb2.RenewLeaseRequest(lease_id=lease_id)
    transport.unary(transport.stubs.arrays.RenewLease, request, Deadline(SHORT_TIMEOUT_S))
