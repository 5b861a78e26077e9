"""Puts arrays on the mesh, describes them, and copies them back."""

from __future__ import annotations

import contextlib
import gc
import math
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TypeVar

from shardcall._src.calls.result import placement_of
from shardcall._src.device_arrays.array_table import ArrayTable
from shardcall._src.device_arrays.array_version import ArrayVersion, Owner
from shardcall._src.device_arrays.bucketed_array import BucketedArray
from shardcall._src.device_arrays.lease import LEASE_ID_BYTES
from shardcall._src.device_arrays.operands import OperandLike, as_operand
from shardcall._src.device_arrays.remote_array import (
    RemoteArray,
    find_remote_array,
    give_up_shared,
)
from shardcall._src.programs.call_sender import CallSender
from shardcall._src.programs.submitter import Submitter
from shardcall._src.rpc.deadline import Deadline
from shardcall._src.rpc.transport import Transport
from shardcall._src.services.array_descriptions import described, listed
from shardcall._src.services.named_arrays import NamedArrays
from shardcall._src.services.passed_arrays import Handle, PassedArrays, handle_of
from shardcall._src.services.saved_files import SavedFile, checked_file_name, saved_file
from shardcall._src.transfer import download
from shardcall._src.transfer.call_runner import check_size, chunk_bytes, max_streamed_bytes
from shardcall._src.transfer.call_stream import CallStream
from shardcall._src.transfer.download import Answer, ResidentResult, array_answer, only_array
from shardcall._src.transfer.shared_memory_client import CallMemory, SharedMemory, with_shared_memory
from shardcall._src.transfer.stream_request import StreamRequest
from shardcall._src.transfer.upload import pack, stream_requests
from shardcall.v1 import array_service_pb2, file_service_pb2
from shardcall_core.call_error import shorten
from shardcall_core.types import arrays, mesh, specs
from shardcall_core.types.arrays import Array, NDArray
from shardcall_core.types.errors import (
    InvalidOperandError,
    InvalidParameterError,
    ResourceExhaustedError,
    ShardcallError,
)
from shardcall_core.types.mesh import MeshLike
from shardcall_core.types.server_info import Limits
from shardcall_core.types.sizes import exact
from shardcall_core.types.specs import SpecLike

_CLOSE_TIMEOUT_S = 2.0
_DELETED = "which was deleted"
_LARGE_BYTES = 1 << 20  # from which the server's default mesh has all devices
_ONE_DEVICE = mesh.Mesh(x=1)
_RESIDENT_LIMIT = "RESIDENT_LIMIT"
_VALUE_BYTES = 16  # up to which the answer to a call has its results, in less time than a read takes

_Value = TypeVar("_Value")


class RemoteArrays:
    """The arrays that a client has on the mesh; safe to use from several threads at once.

    Attributes:
        passed: the arrays that the caller passes.
        names: the arrays with names.

    Args:
        transport: the connection to the server.
        shared_memory: the memory shared with it; None where that cannot be.
        stream: the call stream; None if there is none.
        sender: what sends submitted calls, which make arrays, too.
        submitter: what records calls, which are sent before something needs their results.
    """

    def __init__(
        self,
        transport: Transport,
        limits: Limits,
        shared_memory: SharedMemory | None,
        stream: CallStream | None,
        sender: CallSender,
        submitter: Submitter,
    ) -> None:
        self._transport = transport
        self._shared_memory = shared_memory
        self._stream = stream
        self._sender = sender
        self._submitter = submitter
        self._lease = sender.lease
        self.passed = PassedArrays(sender, submitter)
        self.names = NamedArrays(transport, sender, self.passed)
        self.use(limits)

    def use(self, limits: Limits) -> None:
        """Keeps other limits from now on, those of another server."""
        self._limits = limits
        self._max_streamed_bytes = max_streamed_bytes(limits)

    @property
    def lease_id(self) -> bytes:
        """The id of the lease under which the arrays stay."""
        return self._lease.lease_id

    def put(
        self,
        owner: Owner,
        array: NDArray,
        requested_mesh: MeshLike | None,
        spec: SpecLike | None,
        deadline: Deadline,
        *,
        committed: bool = True,
        keep_s: float = 0.0,
    ) -> RemoteArray:
        """Puts an array of any layout on the mesh, a small one by the call stream, in order with calls and deletions.

        With ``keep_s`` the array has a lease of its own, for so many seconds.
        """
        check_size(array.nbytes, self._limits.max_call_bytes)
        _check_limit(array.nbytes, self._limits.max_resident_bytes)
        _check_keep(keep_s, self._limits.max_lease_seconds)
        header = array_service_pb2.PutArrayHeader(
            mesh=None if requested_mesh is None else mesh.to_proto(mesh.as_mesh(requested_mesh)),
            spec=specs.to_proto(None if spec is None else specs.as_spec(spec)),
            lease_id=os.urandom(LEASE_ID_BYTES) if keep_s else self.lease_id,
        )

        def put(shared: CallMemory | None) -> array_service_pb2.PutArrayResponse:
            regions = {} if shared is None else shared.regions
            packed = pack([array], inline_bytes=self._limits.max_inline_bytes, regions=regions)
            header.array.CopyFrom(packed.messages[0])
            chunk = chunk_bytes(self._limits)
            requests = partial(stream_requests, array_service_pb2.PutArrayRequest, header, packed.streamed, chunk)
            return self._transport.put_array(requests, deadline, shares=shared is not None)

        with self.making():
            if not keep_s and (stream := self._stream_for(array.nbytes)) is not None:
                send = partial(self._put_streamed, stream, array, header, deadline)
                streamed = self.call_after_deleting(send, deadline)
                if not isinstance(streamed, str):  # else the stream does not take it
                    return self._held(owner, streamed, committed=committed)
            answer = self.call_after_deleting(
                lambda: with_shared_memory(self._shared_memory, [array], 0, deadline, put), deadline
            )
            create = partial(described, owner, self._sender.here, answer.array, committed=committed)
            if keep_s:
                request = array_service_pb2.RenewLeaseRequest(lease_id=header.lease_id, min_seconds=keep_s)
                self._transport.unary(self._transport.stubs.arrays.RenewLease, request, deadline)
                return create()
            return self._lease.hold(answer.array.handle, create)

    def put_movable(
        self, owner: Owner, array: NDArray, mesh: MeshLike | None, spec: SpecLike | None, deadline: Deadline
    ) -> RemoteArray:
        """Puts an array on the mesh; without a mesh and spec it is not committed, and a small one is on one device."""
        committed = mesh is not None or spec is not None
        if not committed and array.nbytes < _LARGE_BYTES:
            mesh = _ONE_DEVICE
        return self.put(owner, array, mesh, spec, deadline, committed=committed)

    def get(self, owner: Owner, array: Handle, deadline: Deadline) -> NDArray:
        """Copies an array from the mesh; a small one by the call stream, in order with the calls that make it."""
        if (here := find_remote_array(array)) is not None and here._store.name:
            return self.names.get(here, self._get, deadline)
        target = self.passed.version_of(array)
        value = self._read_pending(owner, target, deadline) if isinstance(target, ArrayVersion) else None
        if value is not None:
            self._sender.pending.warn_of_unread_failures()
            return value
        with self.passed.using([target], ["the array"], deadline):
            self._sender.pending.warn_of_unread_failures()
            placed = target.placed if isinstance(target, ArrayVersion) else None
            if placed is not None and placed.value:
                return arrays.from_bytes(placed.value, placed.placement.type)
            if isinstance(target, ArrayVersion) and (stream := self._stream_for(target.nbytes)) is not None:
                answer = stream.answer(partial(stream.read, target.handle, deadline), deadline)
                if not isinstance(answer, str):  # else the stream does not take it
                    return only_array(answer.results)
            return self._get(target, deadline)

    def _get(self, array: ArrayVersion | bytes, deadline: Deadline, name: str = "") -> NDArray:
        """Copies an array, or the one of a name, by an RPC of its own, through shared memory if there is some."""

        def get(shared: CallMemory | None) -> NDArray:
            buffer = None if shared is None else shared.result_buffer
            space = None if buffer is None else buffer.message()
            handle = b"" if name else handle_of(array)
            seen = self.names.seen(name) if name else None
            request = array_service_pb2.GetArrayRequest(handle=handle, name=name, result_space=space, seen=seen)
            on_version = partial(self.names.see, name) if name else None
            read = partial(array_answer, max_bytes=self._limits.max_call_bytes, buffer=buffer, on_version=on_version)
            return self._transport.get_array(request, read, deadline, shares=shared is not None)

        nbytes = array.nbytes if isinstance(array, ArrayVersion) else 0
        return with_shared_memory(self._shared_memory, [], nbytes, deadline, get)

    def save(self, array: Handle, name: str | os.PathLike[str], deadline: Deadline) -> SavedFile:
        """Writes an array to a file of the server."""
        file_name = checked_file_name(name)

        def save(target: ArrayVersion | bytes, deadline: Deadline) -> SavedFile:
            request = file_service_pb2.SaveArrayRequest(handle=handle_of(target), name=file_name)
            return saved_file(self._transport.unary(self._transport.stubs.files.SaveArray, request, deadline).file)

        if (here := find_remote_array(array)) is not None and here._store.name:
            return self.names.read(here, save, deadline)
        target = self.passed.version_of(array)
        with self.passed.using([target], ["the array"], deadline):
            return save(target, deadline)

    def load(
        self,
        owner: Owner,
        name: str | os.PathLike[str],
        requested_mesh: MeshLike | None,
        spec: SpecLike | None,
        deadline: Deadline,
    ) -> RemoteArray:
        """Puts an array on the mesh from a file of the server."""
        request = file_service_pb2.LoadArrayRequest(
            name=checked_file_name(name),
            mesh=None if requested_mesh is None else mesh.to_proto(mesh.as_mesh(requested_mesh)),
            spec=specs.to_proto(None if spec is None else specs.as_spec(spec)),
            lease_id=self.lease_id,
        )

        def load() -> file_service_pb2.LoadArrayResponse:
            return self._transport.unary(self._transport.stubs.files.LoadArray, request, deadline)

        with self.making():
            answer = self.call_after_deleting(load, deadline).array
            return self._lease.hold(answer.handle, partial(described, owner, self._sender.here, answer))

    def _stream_for(self, nbytes: int) -> CallStream | None:
        """Returns the call stream for bytes that it moves best, if the server does not refuse it."""
        stream = self._stream
        if stream is None or nbytes > self._max_streamed_bytes or stream.is_refused:
            return None
        return stream if self._shared_memory is None or nbytes < self._limits.min_segment_bytes else None

    def _put_streamed(
        self, stream: CallStream, array: NDArray, header: array_service_pb2.PutArrayHeader, deadline: Deadline
    ) -> Answer | str:
        def send() -> StreamRequest:  # with a new handle each time: the server keeps the errors of handles
            return stream.put(array, header, self._sender.pending.new_handle(), deadline)

        return stream.answer(send, deadline, rerun=True)

    def _read_pending(self, owner: Owner, version: ArrayVersion, deadline: Deadline) -> NDArray | None:
        """Reads an array that a call of this client makes, without waiting for the answer to that call first.

        Returns:
            The values; None for any other array, and if the call or the read fails: the error of the call says more.
        """
        pending = version.pending
        if pending is None or pending.is_done or version.owner is not owner:
            return None
        nbytes = version.nbytes
        if nbytes <= _VALUE_BYTES or (stream := self._stream_for(nbytes)) is None:
            return None
        try:
            value = only_array(stream.read(version.handle, deadline).result(deadline).results)
        except ShardcallError:
            return None
        if pending.is_done:
            version.settled(deadline)
        return value

    def describe(self, owner: Owner, array: Handle, deadline: Deadline) -> RemoteArray:
        """Returns an array of this client or another as the server describes it."""
        target = self.passed.version_of(array)
        with self.passed.using([target], ["the array"], deadline):
            request = array_service_pb2.DescribeArrayRequest(handle=handle_of(target))
            answer = self._transport.unary(self._transport.stubs.arrays.DescribeArray, request, deadline).array
        describe = partial(described, owner, self._sender.here, answer)
        held = self._lease.hold_listed(answer.handle, describe) if self._lease.holds(answer.handle) else None
        return describe() if held is None else held

    def all(self, owner: Owner, deadline: Deadline) -> ArrayTable[RemoteArray]:
        """Returns all arrays that this client has on the server, those with names and those shared with it, by age."""
        request = array_service_pb2.ListArraysRequest(lease_id=self.lease_id, with_named=True)
        answer = self._transport.unary(self._transport.stubs.arrays.ListArrays, request, deadline)
        rows = []
        for item in answer.arrays:
            describe = partial(described, owner, self._sender.here, item)
            is_named = item.name or item.handle in self.passed.named
            array = describe() if is_named else self._lease.hold_listed(item.handle, describe)
            if array is not None:
                rows.append((array, listed(item)))
        return ArrayTable([array for array, _ in rows], [entry for _, entry in rows])

    def of_principal(self, owner: Owner, deadline: Deadline) -> ArrayTable[RemoteArray]:
        """Returns all arrays of the caller's principal, oldest first; this client need not keep them."""
        request = array_service_pb2.ListArraysRequest()
        answer = self._transport.unary(self._transport.stubs.arrays.ListArrays, request, deadline)
        return ArrayTable(
            [described(owner, self._sender.here, item) for item in answer.arrays], map(listed, answer.arrays)
        )

    def delete(self, arrays: Sequence[Handle], deadline: Deadline) -> int:
        """Deletes arrays, except those deleted before, shared or another principal's; returns how many there were."""
        self._submitter.flush_all()
        there = [target for array in arrays for target in self._give_up(array)]
        handles = [handle_of(target) for target in there]
        deleted = self._sender.delete(handles, deadline, with_named=True)
        self.passed.named.difference_update(handles)
        for target in (*there, *self._lease.release(handles)):
            if isinstance(target, ArrayVersion):
                target.lose(_DELETED)
        return deleted

    def _give_up(self, array: Handle) -> list[ArrayVersion | bytes]:
        """Makes an object a lost one if others have its values; returns what is to be deleted on the mesh, or none."""
        array = array.padded if isinstance(array, BucketedArray) else array
        here = find_remote_array(array)
        if here is not None and (version := here._store.version).server.is_left(self._sender.here):
            if not here._steps:
                self._lease.release([version.handle])
                version.lose(_DELETED)
            return []
        if here is not None and here._store.name and not here._steps:
            return self.names.give_up(here)
        if here is not None and (here.lost or give_up_shared(here, _DELETED)):
            return []
        return [self.passed.version_of(array)]

    def outlive(self, arrays: Sequence[RemoteArray], seconds: float, deadline: Deadline) -> None:
        """Leaves arrays of this client on the mesh for so many seconds, also after the client is closed."""
        _check_keep(seconds, self._limits.max_lease_seconds)
        request = array_service_pb2.RenewLeaseRequest(lease_id=self.lease_id, min_seconds=seconds)
        self._transport.unary(self._transport.stubs.arrays.RenewLease, request, deadline)
        self._lease.release([handle_of(self.passed.version_of(array)) for array in arrays])

    def making(self) -> AbstractContextManager[None]:
        """Returns a context for a call that leaves arrays on the mesh, until `kept` has been called."""
        return self._lease.making()

    def kept(self, owner: Owner, answer: Answer, *, committed: bool = True) -> tuple[NDArray | RemoteArray, ...]:
        """Returns a call's results, those that stay on the mesh as objects."""
        results: list[NDArray | RemoteArray] = []
        for index, result in enumerate(answer.results):
            if isinstance(result, ResidentResult):
                create = partial(self._from_plan, owner, result, index, answer, committed=committed)
                results.append(self._lease.hold(result.handle, create))
            else:
                results.append(result)
        return tuple(results)

    def call_after_deleting(self, call: Callable[[], _Value], deadline: Deadline) -> _Value:
        """Makes a call that leaves arrays on the mesh, after deleting those whose objects the caller has dropped."""
        self._delete_dropped(deadline)
        deletions = self._lease.deletions
        try:
            return call()
        except ResourceExhaustedError as error:
            if error.reason != _RESIDENT_LIMIT:
                raise
            self._submitter.flush_all()  # recorded calls keep their operands
            gc.collect()  # objects in cycles, such as a traceback's, are lost too
            # Writes that are not answered, or the lease's thread, may have deleted them, or be doing so.
            is_deleted = self._delete_dropped(deadline), self._sender.pending.wait_for_writes(deadline)
            if not any(is_deleted) and not self._lease.wait_deleted(deletions, deadline.remaining_s()):
                raise
        return call()

    def close(self) -> None:
        """Deletes all arrays, if the server can be reached, and stops the lease's thread."""
        self._submitter.close()
        handles, versions = self._lease.close()
        for version in versions:
            version.lose("whose client was closed")
        with contextlib.suppress(ShardcallError):  # the server deletes them when the lease expires
            self._sender.delete(handles, Deadline(_CLOSE_TIMEOUT_S))

    def _delete_dropped(self, deadline: Deadline) -> bool:
        """Deletes the arrays whose objects the caller has dropped; returns True if there were any."""
        try:
            return self._lease.delete_dropped(partial(self._sender.delete, deadline=deadline))
        except ShardcallError:  # the lease's thread tries again
            return True

    def _held(self, owner: Owner, answer: Answer, *, committed: bool) -> RemoteArray:
        """Returns the array that an item of the call stream has put."""
        results = self.kept(owner, answer, committed=committed)
        if len(results) != 1 or not isinstance(array := results[0], RemoteArray):
            raise download.broken("the answer to a put is not one array on the mesh")
        array._is_ndarray = True
        return array

    def _from_plan(
        self, owner: Owner, result: ResidentResult, index: int, answer: Answer, *, committed: bool
    ) -> RemoteArray:
        placed = placement_of(index, answer)
        return RemoteArray(
            ArrayVersion(owner, self._sender.here, result.handle, placed.placement.type, placed, committed=committed)
        )


def array_to_put(x: OperandLike) -> NDArray:
    """Returns an operand as an array of this process.

    Raises:
        InvalidOperandError: for an array that is on the mesh, and a type.
        ShardcallError: as of `as_operand`.
    """
    if isinstance(x, RemoteArray | Array):
        raise InvalidOperandError(
            f"x is {x!r}, which has no values here; give an array, or call Client.reshard(x, keep=True, …) for "
            "a copy of a RemoteArray on the mesh",
            field="x",
        )
    return as_operand(x, "x")


def checked_keep(seconds: float, limit_s: float = 0.0) -> float:
    """Returns the seconds for which an array is to be kept.

    Args:
        limit_s: the most that are allowed, for the error; 0 for any finite number.

    Raises:
        InvalidParameterError: if they are no number, negative or not finite.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        limit = f", at most {limit_s:g}" if limit_s else ""
        raise InvalidParameterError(
            f"keep_for is {shorten(repr(seconds))}; give a finite number of seconds, 0 or more{limit}", field="keep_for"
        )
    return float(seconds)


def _check_limit(nbytes: int, limit_bytes: int) -> None:
    if 0 < limit_bytes < nbytes:
        raise ResourceExhaustedError(
            f"the array has {exact(nbytes)}, and the arrays of one client may take {exact(limit_bytes)} on the "
            "devices; start the server with a larger --max-resident-bytes",
            reason=_RESIDENT_LIMIT,
            field="x",
        )


def _check_keep(seconds: float, limit_s: float) -> None:
    if seconds > limit_s:
        raise InvalidParameterError(
            f"keep_for is {seconds:g}, and the server keeps arrays for at most {limit_s:g} s without a client; give "
            "less, or start it with a larger --max-lease-s",
            field="keep_for",
        )
