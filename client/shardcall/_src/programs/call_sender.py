"""Sends the calls that nobody waits for."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Sequence
from functools import partial

import numpy as np

from shardcall._src.calls.call_request import CallRequest
from shardcall._src.device_arrays.array_version import ArrayVersion, Owner, ServerIdentity
from shardcall._src.device_arrays.lease import Lease
from shardcall._src.device_arrays.remote_array import SHORT_TIMEOUT_S
from shardcall._src.programs.pending_calls import PendingCall, PendingCalls
from shardcall._src.rpc.deadline import Deadline
from shardcall._src.rpc.transport import Transport
from shardcall._src.transfer.call_stream import CallStream
from shardcall._src.transfer.upload import Value
from shardcall.v1 import array_service_pb2
from shardcall_core.types.arrays import Array
from shardcall_core.types.errors import ShardcallError
from shardcall_core.types.server_info import ServerInfo

_DEFAULT_LEASE_S = 60.0
_MAX_HANDLES = 1024


class CallSender:
    """Sends calls on the call stream, and puts their results under the client's lease.

    Attributes:
        pending: the calls that were submitted.
        lease: the lease of the client's arrays.
        here: the server.

    Args:
        transport: the connection to the server.
        info: its description.
        stream: the call stream of submitted calls; None if there is none.
    """

    def __init__(self, transport: Transport, info: ServerInfo, stream: CallStream | None) -> None:
        self._transport = transport
        self.pending = PendingCalls(transport.meters)
        self._stream = stream
        # The lease's thread must not refer to the client, or it would never be collected.
        self.delete = partial(_delete, transport, stream, self.pending)
        """Deletes arrays by their handles; those that unanswered calls use, or make, in order with the calls.

        Those with names are left out unless ``with_named`` is True: a dropped handle may have its name of the last
        checkpoint again.
        """
        self.lease = Lease(_DEFAULT_LEASE_S, partial(_renew, transport), self.delete, self.pending.replacement_of)
        self.pending.keep = self.lease.keep
        self.use(info)

    def use(self, info: ServerInfo) -> None:
        """Goes on at another server, by its description; results of calls without an answer will be there."""
        servers, limits = self._transport.servers, info.limits
        self.here = ServerIdentity(servers.address, info.epoch, servers.other_addresses)
        self._max_bytes = min(limits.max_inline_bytes, limits.max_streamed_bytes)
        self.pending.deletes_replaced = bool(limits.max_replaced_arrays)
        self.lease.renew_within(limits.lease_seconds or _DEFAULT_LEASE_S)
        for version in self.pending.results():
            version.server = self.here

    def can_submit(self, values: Sequence[Value], deadline: Deadline) -> bool:
        """Returns True if operands are small enough for the call stream, and the server does not refuse it."""
        size = 0
        for value in values:
            if isinstance(value, np.ndarray):
                size += value.nbytes
        stream = self._stream
        return stream is not None and size <= self._max_bytes and stream.wait_accepted(deadline)

    def new_result(
        self, owner: Owner, result_type: Array, call: PendingCall, index: int = 0, *, committed: bool
    ) -> ArrayVersion:
        """Returns a result of a call that is not sent yet; `send` puts it under the lease."""
        handle = self.pending.new_handle()
        version = ArrayVersion(owner, self.here, handle, result_type, None, call, index, committed)
        call.results.append(weakref.ref(version))
        return version

    def renew(self, calls: Sequence[PendingCall], results: Sequence[ArrayVersion]) -> None:
        """Makes calls that are sent again ones that were not sent, and gives their results new handles.

        The server may have arrays of the old ones: a thread may have been interrupted after it had sent a call.
        """
        self.pending.renew(calls)
        self.lease.drop([version.handle for version in results])
        for version in results:
            version.handle = self.pending.new_handle()

    def adopt(self, version: ArrayVersion, other: ArrayVersion) -> None:
        """Makes an array stand for the result of a call, instead of the object that stood for it."""
        self.lease.release([other.handle])
        version.handle, version.placed, version.pending, version.earlier = other.handle, other.placed, None, None
        self.lease.add([version])

    def is_here(self, version: ArrayVersion) -> bool:
        """Returns True for an array on this client's server that was not deleted."""
        return not version.lost and (version.server is self.here or version.server.is_same(self.here))

    def send(
        self, call: CallRequest, results: Sequence[ArrayVersion], calls: Sequence[PendingCall], deadline: Deadline
    ) -> None:
        """Sends a call on the call stream.

        Args:
            call: the call.
            results: its results.
            calls: what waits for them: one call, or one for each result.
            deadline: the deadline of the call.
        """
        stream, values, owner = self._stream, call.values, results[0].owner
        assert stream is not None
        _delete_dropped(self.lease, stream, self.pending)
        handles = [version.handle for version in results]
        for version in results:
            version.server = self.here
        used, depends_on, borrowed = list(handles), list[PendingCall](), list[ArrayVersion]()
        for operand in values:
            if not isinstance(operand, ArrayVersion):
                continue
            if operand.server is not self.here:
                operand.check_server(self.here, f"an operand of {call.message.kernel}")
            if (pending := operand.pending) is not None:
                pending.begin()
                if isinstance(pending, PendingCall):
                    depends_on.append(pending)
                    if pending.stops_without:  # else the loop would not stop while they wait for it
                        for submitted in calls:
                            submitted.stops_without = handles
            used.append(operand.handle)
            if operand.owner is not owner:
                borrowed.append(operand)
        self.lease.add(results)
        for version in results:  # of a call that is sent again
            if (stand_in := version.stand_in) is not None and stand_in is not version:
                self.lease.keep(version.handle, stand_in)
        send_item = partial(
            stream.send,
            call.message,
            values,
            deadline,
            lease_id=self.lease.lease_id,
            result_handles=handles,
            request_id=handles[0].hex(),
        )
        # The lease deletes the results of a call that was interrupted, as those of all dropped objects.
        self.pending.send(calls, send_item, used, depends_on, borrowed)


def _delete_dropped(lease: Lease, stream: CallStream, pending: PendingCalls) -> None:
    """Deletes the arrays of dropped objects, after the calls that were sent before."""
    with contextlib.suppress(ShardcallError):  # the lease's thread tries again
        lease.delete_dropped(partial(_delete_on_stream, stream, pending))


def _renew(transport: Transport, lease_id: bytes) -> None:
    request = array_service_pb2.RenewLeaseRequest(lease_id=lease_id)
    transport.unary(transport.stubs.arrays.RenewLease, request, Deadline(SHORT_TIMEOUT_S))


def _delete(
    transport: Transport,
    stream: CallStream | None,
    pending: PendingCalls,
    handles: Sequence[bytes],
    deadline: Deadline | None = None,
    *,
    with_named: bool = False,
    replaced_by: bytes = b"",
) -> int:
    """Deletes arrays, as `CallSender.delete`; returns the number of those that were there."""
    used = [handle for handle in handles if replaced_by or pending.is_used(handle)]
    if used and stream is not None:
        _delete_on_stream(stream, pending, used, with_named=with_named, replaced_by=replaced_by)
        handles = [handle for handle in handles if handle not in used]
    deleted, deadline = len(used), deadline or Deadline(SHORT_TIMEOUT_S)
    for begin in range(0, len(handles), _MAX_HANDLES):
        request = array_service_pb2.DeleteArraysRequest(
            handles=handles[begin : begin + _MAX_HANDLES], with_named=with_named
        )
        deleted += transport.unary(transport.stubs.arrays.DeleteArrays, request, deadline).deleted_count
    return deleted


def _delete_on_stream(
    stream: CallStream,
    pending: PendingCalls,
    handles: Sequence[bytes],
    *,
    with_named: bool = False,
    replaced_by: bytes = b"",
) -> None:
    """Deletes arrays after the calls that were sent on a call stream before, and stops loops that made only these."""
    for begin in range(0, len(handles), _MAX_HANDLES):
        stream.delete(handles[begin : begin + _MAX_HANDLES], with_named=with_named, replaced_by=replaced_by)
    if not replaced_by:
        pending.deleted(handles)
