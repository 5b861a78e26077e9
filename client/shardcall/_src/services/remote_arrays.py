"""Puts arrays on the mesh, describes them, and copies them back."""

from __future__ import annotations

import contextlib
import gc
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TypeAlias, TypeVar

from shardcall._src.calls.result import placement_of
from shardcall._src.device_arrays.array_table import ArrayGuest, ArrayTable, ListedArray
from shardcall._src.device_arrays.array_version import ArrayBase, ArrayVersion, Owner, lost_error
from shardcall._src.device_arrays.bucketed_array import BucketedArray
from shardcall._src.device_arrays.lease import LEASE_ID_BYTES
from shardcall._src.device_arrays.operands import OperandLike, as_operand
from shardcall._src.device_arrays.remote_array import (
    RemoteArray,
    SupportsRemoteArray,
    find_remote_array,
    give_up_shared,
)
from shardcall._src.programs.call_sender import CallSender
from shardcall._src.programs.submitter import Submitter
from shardcall._src.rpc.deadline import Deadline
from shardcall._src.rpc.transport import Transport
from shardcall._src.services.saved_files import SavedFile, saved_file
from shardcall._src.transfer import download
from shardcall._src.transfer.call_runner import check_size, chunk_bytes, max_streamed_bytes
from shardcall._src.transfer.call_stream import CallStream
from shardcall._src.transfer.download import Answer, ResidentResult, array_answer, only_array
from shardcall._src.transfer.shared_memory_client import CallMemory, SharedMemory, with_shared_memory
from shardcall._src.transfer.stream_request import StreamRequest
from shardcall._src.transfer.upload import pack, stream_requests
from shardcall.v1 import array_service_pb2, file_service_pb2
from shardcall_core.array_names import MAX_NAME, NAME
from shardcall_core.call_error import shorten
from shardcall_core.locks import lock
from shardcall_core.placements.placement import MeshPlacement, placement_from_proto
from shardcall_core.types import arrays, mesh, specs
from shardcall_core.types.arrays import Array, NDArray
from shardcall_core.types.errors import (
    ArrayLostError,
    InvalidOperandError,
    InvalidParameterError,
    InvalidRequestError,
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
_ATTEMPTS = 8  # to read an array that other clients write to
_VALUE_BYTES = 16  # up to which the answer to a call has its results, in less time than a read takes

_Value = TypeVar("_Value")

Handle: TypeAlias = SupportsRemoteArray | str
"""An array on the mesh: the object, or its hexadecimal handle."""


class RemoteArrays:
    """The arrays that a client has on the mesh; safe to use from several threads at once.

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
        self._limits = limits
        self._shared_memory = shared_memory
        self._stream = stream
        self._max_streamed_bytes = max_streamed_bytes(limits)
        self._sender = sender
        self._submitter = submitter
        self._here = sender.here
        self._lease = sender.lease
        self._named: set[bytes] = set()  # handles of arrays with names, which are not under the lease
        # Held from the check that a base has the values that it had to their replacement by those of its name.
        self._replacing = lock("the lock of arrays with names")

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
            create = partial(self._described, owner, answer.array, committed=committed)
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
        target = self._version_of(array)
        if (here := find_remote_array(array)) is not None and here._store.name:
            return self._read_named(here, self._get, deadline)
        value = self._read_pending(owner, target, deadline) if isinstance(target, ArrayVersion) else None
        if value is not None:
            self._sender.pending.warn_of_unread_failures()
            return value
        with self.using([target], ["the array"], deadline):
            self._sender.pending.warn_of_unread_failures()
            placed = target.placed if isinstance(target, ArrayVersion) else None
            if placed is not None and placed.value:
                return arrays.from_bytes(placed.value, placed.placement.type)
            if isinstance(target, ArrayVersion) and (stream := self._stream_for(target.nbytes)) is not None:
                answer = stream.answer(partial(stream.read, target.handle, deadline), deadline)
                if not isinstance(answer, str):  # else the stream does not take it
                    return only_array(answer.results)
            return self._get(target, deadline)

    def _read_named(
        self, array: RemoteArray, read: Callable[[ArrayVersion | bytes, Deadline], _Value], deadline: Deadline
    ) -> _Value:
        """Reads an array with a name, anew if another client has replaced its values meanwhile."""
        for attempt in range(_ATTEMPTS):
            target = self._version_of(array)
            try:
                with self.using([target], ["the array"], deadline):
                    return read(target, deadline)
            except ArrayLostError:
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError

    def _get(self, array: ArrayVersion | bytes, deadline: Deadline) -> NDArray:
        """Copies an array by an RPC of its own, through shared memory if there is some."""

        def get(shared: CallMemory | None) -> NDArray:
            buffer = None if shared is None else shared.result_buffer
            space = None if buffer is None else buffer.message()
            request = array_service_pb2.GetArrayRequest(handle=_handle(array), result_space=space)
            read = partial(array_answer, max_bytes=self._limits.max_call_bytes, buffer=buffer)
            return self._transport.get_array(request, read, deadline, shares=shared is not None)

        nbytes = array.nbytes if isinstance(array, ArrayVersion) else 0
        return with_shared_memory(self._shared_memory, [], nbytes, deadline, get)

    def save(self, array: Handle, name: str, deadline: Deadline) -> SavedFile:
        """Writes an array to a file of the server."""

        def save(target: ArrayVersion | bytes, deadline: Deadline) -> SavedFile:
            request = file_service_pb2.SaveArrayRequest(handle=_handle(target), name=name)
            return saved_file(self._transport.unary(self._transport.stubs.files.SaveArray, request, deadline).file)

        target = self._version_of(array)
        if (here := find_remote_array(array)) is not None and here._store.name:
            return self._read_named(here, save, deadline)
        with self.using([target], ["the array"], deadline):
            return save(target, deadline)

    def load(
        self, owner: Owner, name: str, requested_mesh: MeshLike | None, spec: SpecLike | None, deadline: Deadline
    ) -> RemoteArray:
        """Puts an array on the mesh from a file of the server."""
        request = file_service_pb2.LoadArrayRequest(
            name=name,
            mesh=None if requested_mesh is None else mesh.to_proto(mesh.as_mesh(requested_mesh)),
            spec=specs.to_proto(None if spec is None else specs.as_spec(spec)),
            lease_id=self.lease_id,
        )

        def load() -> file_service_pb2.LoadArrayResponse:
            return self._transport.unary(self._transport.stubs.files.LoadArray, request, deadline)

        with self.making():
            answer = self.call_after_deleting(load, deadline).array
            return self._lease.hold(answer.handle, partial(self._described, owner, answer))

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
        target = self._version_of(array)
        with self.using([target], ["the array"], deadline):
            request = array_service_pb2.DescribeArrayRequest(handle=_handle(target))
            answer = self._transport.unary(self._transport.stubs.arrays.DescribeArray, request, deadline).array
        describe = partial(self._described, owner, answer)
        held = self._lease.hold_listed(answer.handle, describe) if self._lease.holds(answer.handle) else None
        return describe() if held is None else held

    def all(self, owner: Owner, deadline: Deadline) -> ArrayTable[RemoteArray]:
        """Returns all arrays that this client has on the server, those with names and those shared with it, by age."""
        request = array_service_pb2.ListArraysRequest(lease_id=self.lease_id, with_named=True)
        answer = self._transport.unary(self._transport.stubs.arrays.ListArrays, request, deadline)
        rows = []
        for item in answer.arrays:
            describe = partial(self._described, owner, item)
            is_named = item.name or item.handle in self._named
            array = describe() if is_named else self._lease.hold_listed(item.handle, describe)
            if array is not None:
                rows.append((array, _listed(item)))
        return ArrayTable([array for array, _ in rows], [entry for _, entry in rows])

    def of_principal(self, owner: Owner, deadline: Deadline) -> ArrayTable[RemoteArray]:
        """Returns all arrays of the caller's principal, oldest first; this client need not keep them."""
        request = array_service_pb2.ListArraysRequest()
        answer = self._transport.unary(self._transport.stubs.arrays.ListArrays, request, deadline)
        return ArrayTable([self._described(owner, item) for item in answer.arrays], map(_listed, answer.arrays))

    def name(self, array: Handle, name: str, deadline: Deadline, *, replaces: bool, keep_s: float) -> None:
        """Gives an array a name; then it stays without this client."""
        here = None if isinstance(array, str) else find_remote_array(array)
        target = self._version_of(array)
        if isinstance(array, BucketedArray) or (here is not None and here._steps):
            what = "a view" if here is not None and here._steps else "a BucketedArray"
            raise InvalidOperandError(f"the array is {what}, which has no name; name a copy of it", field="array")
        if here is not None and "/" in here._store.name:
            raise _of_another(here._store.name, "gives it no name", "name a copy of it")
        with self.using([target], ["the array"], deadline):
            request = array_service_pb2.NameArrayRequest(
                handle=_handle(target), name=name, replace=replaces, keep_seconds=keep_s
            )
            self._transport.unary(self._transport.stubs.arrays.NameArray, request, deadline)
        self._release_named(_handle(target))
        if isinstance(target, ArrayVersion) and target.base is not None and (base := target.base()) is not None:
            base.name = name

    def _release_named(self, handle: bytes) -> None:
        self._named.add(handle)  # first, so that no list brings it back under the lease
        self._lease.release([handle])

    def open(self, owner: Owner, name: str, deadline: Deadline) -> RemoteArray:
        """Returns the array that a name stands for."""
        return self._described(owner, self._open(name, deadline))

    def _open(self, name: str, deadline: Deadline) -> array_service_pb2.ArrayDescription:
        request = array_service_pb2.OpenArrayRequest(name=name)
        return self._transport.unary(self._transport.stubs.arrays.OpenArray, request, deadline).array

    def share(self, name: str, principal: str, deadline: Deadline, *, may_write: bool) -> None:
        """Shares the array of a name with another principal."""
        request = array_service_pb2.ShareArrayRequest(name=name, principal=principal, may_write=may_write)
        self._transport.unary(self._transport.stubs.arrays.ShareArray, request, deadline)

    def unshare(self, name: str, principal: str, deadline: Deadline) -> None:
        """Ends what `share` has allowed a principal; all of them if it is empty."""
        request = array_service_pb2.UnshareArrayRequest(name=name, principal=principal)
        self._transport.unary(self._transport.stubs.arrays.UnshareArray, request, deadline)

    def refresh(self, base: ArrayBase, deadline: Deadline) -> None:
        """Gives a base the values that its name stands for now."""
        before = base.version
        answer = self._open(base.name, deadline)
        if answer.handle == before.handle:
            return
        version = self._described(before.owner, answer)._store.version
        if version.type != base.type:
            why = f"whose name {base.name!r} stands for {version.type} now; open it by Client.open"
            raise lost_error(base.type, why, "the array")
        with self._replacing:
            if base.version is before:  # else another thread has written to it, or refreshed it
                base.replace(version)
                self._named.discard(before.handle)

    def write_named(self, base: ArrayBase, version: ArrayVersion, deadline: Deadline) -> None:
        """Has the name of a base stand for other values, and waits until the server says so.

        The array before is put under this client's lease, since calls and copies of this client may need it.

        Raises:
            InvalidRequestError: if another client has written to it since the values before were read.
            AccessDeniedError: if it is another principal's, which does not share it for writing.
        """
        before = base.version
        self._lease.add([before])
        try:
            request = array_service_pb2.NameArrayRequest(
                handle=version.handle, name=base.name, expected_handle=before.handle, lease_id=self.lease_id
            )
            refusal = None
            with self.using([version], ["the array"], deadline):
                try:
                    self._transport.unary(self._transport.stubs.arrays.NameArray, request, deadline)
                except InvalidRequestError as error:  # which says more than the failed call of the array
                    refusal = error
            if refusal is not None:
                raise refusal
        except BaseException:
            self._lease.release([before.handle])
            raise
        self._release_named(version.handle)
        self._named.discard(before.handle)

    def delete(self, arrays: Sequence[Handle], deadline: Deadline) -> int:
        """Deletes arrays, except those deleted before, shared or another principal's; returns how many there were."""
        self._submitter.flush_all()
        there = []
        for item in arrays:
            array = item.padded if isinstance(item, BucketedArray) else item
            here = find_remote_array(array)
            if here is not None and "/" in here._store.name and not here._steps:
                continue
            if here is not None and here._store.name and not here._steps:
                with contextlib.suppress(ArrayLostError):
                    there.append(self._version_of(array))
                here._store.name = ""
            elif here is None or not (here.lost or give_up_shared(here, _DELETED)):
                there.append(self._version_of(array))
        handles = [_handle(target) for target in there]
        deleted = self._sender.delete(handles, deadline)
        self._named.difference_update(handles)
        for target in (*there, *self._lease.release(handles)):
            if isinstance(target, ArrayVersion):
                target.lost = _DELETED
        return deleted

    def outlive(self, arrays: Sequence[RemoteArray], seconds: float, deadline: Deadline) -> None:
        """Leaves arrays of this client on the mesh for so many seconds, also after the client is closed."""
        _check_keep(seconds, self._limits.max_lease_seconds)
        request = array_service_pb2.RenewLeaseRequest(lease_id=self.lease_id, min_seconds=seconds)
        self._transport.unary(self._transport.stubs.arrays.RenewLease, request, deadline)
        self._lease.release([_handle(self._version_of(array)) for array in arrays])

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

    @contextmanager
    def using(
        self, arrays: Sequence[object], names: Sequence[str], settled_by: Deadline | None = None
    ) -> Iterator[None]:
        """Marks arrays as lost that the server reports lost during a call.

        Args:
            arrays: the operands of the call; those that are not on the mesh are ignored.
            names: the caller's name of each.
            settled_by: the deadline of a wait for the submitted calls that make arrays; None to wait for none.

        Raises:
            ArrayLostError: if the server has lost one of them; ``field`` is its name.
            InvalidOperandError: if one is on another server.
            ShardcallError: of a submitted call that failed and makes one of them.
        """
        self._submitter.flush()
        on_mesh = [(x, name) for x, name in zip(arrays, names, strict=True) if isinstance(x, ArrayVersion)]
        for version, name in on_mesh:
            version.check_server(self._here, name)
            if version.pending is not None:
                version.pending.begin()
            if settled_by is not None:
                version.settled(settled_by)
        try:
            yield
        except ShardcallError as error:
            for version, _ in on_mesh:
                if (pending := version.pending) is not None and pending.is_failed:
                    raise pending.dependent_failure(error) from None
            if not isinstance(error, ArrayLostError):
                raise
            begin = error.metadata.get("handle", "").rstrip("…")
            for version, name in on_mesh:
                if begin and version.handle.hex().startswith(begin):
                    if version.handle in self._named or _has_name(version):  # replaced by another client
                        raise
                    version.lost = "which the mesh no longer has"
                    self._lease.release([version.handle])
                    raise _lost(version, name, error) from None
            raise

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
            # The lease's thread may have deleted them, or be doing so.
            if not self._delete_dropped(deadline) and not self._lease.wait_deleted(deletions, deadline.remaining_s()):
                raise
        return call()

    def close(self) -> None:
        """Deletes all arrays, if the server can be reached, and stops the lease's thread."""
        self._submitter.close()
        handles, versions = self._lease.close()
        for version in versions:
            version.lost = "whose client was closed"
        with contextlib.suppress(ShardcallError):  # the server deletes them when the lease expires
            self._sender.delete(handles, Deadline(_CLOSE_TIMEOUT_S))

    def _delete_dropped(self, deadline: Deadline) -> bool:
        """Deletes the arrays whose objects the caller has dropped; returns True if there were any."""
        try:
            return self._lease.delete_dropped(lambda handles: self._sender.delete(handles, deadline))
        except ShardcallError:  # the lease's thread tries again
            return True

    def _version_of(self, array: Handle) -> ArrayVersion | bytes:
        """Returns the values of an array, whose call has begun; the handle of one that this client has no object of."""
        here = find_remote_array(array)
        if here is None:
            try:
                handle = bytes.fromhex(array)  # type: ignore[arg-type]  # which raises
            except (TypeError, ValueError):
                raise InvalidOperandError(
                    f"{_named(array)} is no array on the mesh; give a RemoteArray, or its handle: hexadecimal digits",
                    field="array",
                ) from None
            if (here := self._lease.find(handle)) is None:
                return handle
        version = here._version
        version.check_there("the array")
        if version.server is not self._here:
            version.check_server(self._here, "the array")
        if version.pending is not None:
            version.pending.begin()
        return version

    def _described(
        self, owner: Owner, answer: array_service_pb2.ArrayDescription, *, committed: bool = True
    ) -> RemoteArray:
        placement = placement_from_proto(answer.placement)
        if placement is None:
            raise download.broken("an array has no element type")
        placed_mesh = mesh.from_proto(answer.mesh)
        placed = MeshPlacement(placement, placed_mesh, answer.device_bytes)
        array = self._array(owner, answer.handle, placed, committed)
        array._is_ndarray = True
        array._store.name = answer.name
        return array

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
        return self._array(owner, result.handle, placement_of(index, answer), committed)

    def _array(self, owner: Owner, handle: bytes, placed: MeshPlacement, committed: bool) -> RemoteArray:
        version = ArrayVersion(owner, self._here, handle, placed.placement.type, placed, committed=committed)
        return RemoteArray(version)


def _of_another(name: str, refusal: str, advice: str) -> InvalidOperandError:
    owner = name.rpartition("/")[0]
    return InvalidOperandError(
        f"the array {name!r} belongs to the principal {owner!r}, and a principal that it is shared with {refusal}; "
        f"{advice}",
        field="array",
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


def checked_keep(seconds: float) -> float:
    """Returns the seconds for which an array is to be kept.

    Raises:
        InvalidParameterError: if they are no number, negative or not finite.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise InvalidParameterError(f"keep_for is {seconds!r}; give seconds, 0 or more", field="keep_for")
    return float(seconds)


def checked_name(name: str) -> str:
    """Returns the name of an array.

    Raises:
        InvalidParameterError: if it is none.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InvalidParameterError(
            f"the name is {shorten(name)!r}; give 1 to {MAX_NAME} ASCII letters, digits, '.', '_' and '-'",
            field="name",
        )
    return name


def checked_principal(principal: str) -> str:
    """Returns the name of a principal; the server checks its form.

    Raises:
        InvalidParameterError: if it is empty or no string.
    """
    if not isinstance(principal, str) or not principal:
        raise InvalidParameterError(
            f"with_ is {shorten(principal)!r}; give the name of a principal, as of shardcall token add", field="with_"
        )
    return principal


def _listed(item: array_service_pb2.ArrayDescription) -> ListedArray:
    placement = placement_from_proto(item.placement)
    if placement is None:
        raise download.broken("an array has no element type")
    expires_in_s = item.expires_in_seconds if item.HasField("expires_in_seconds") else None
    return ListedArray(
        item.handle.hex(),
        item.name,
        item.owner,
        placement.type,
        placement.spec,
        item.device_bytes,
        item.age_seconds,
        expires_in_s,
        tuple(ArrayGuest(guest.principal, guest.may_write) for guest in item.guests),
    )


def _has_name(version: ArrayVersion) -> bool:
    base = None if version.base is None else version.base()
    return base is not None and bool(base.name)


def _named(value: object) -> str:
    return repr(value) if isinstance(value, str) else f"a value of type {type(value).__name__}"


def _handle(array: ArrayVersion | bytes) -> bytes:
    return array.handle if isinstance(array, ArrayVersion) else array


def _lost(version: ArrayVersion, name: str, error: ArrayLostError) -> ArrayLostError:
    return ArrayLostError(
        f"{name} is {version.type}, which the mesh no longer has: it was deleted, its lease ended, or the mesh or "
        "the server restarted; put the array anew",
        reason=error.reason,
        field=error.field if name == "the array" else name,
        metadata=error.metadata,
        timing=error.timing,
        status=error.status,
    )


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
