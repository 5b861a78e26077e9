"""The resident arrays that the items of one call stream use, make and delete, in the order of the items."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import structlog

from shardcall_core.call_error import CallError, Reason
from shardcall_core.locks import check_held, lock
from shardcall_server.frontend.dispatch.kernel_runner import wait_computed
from shardcall_server.frontend.memory.resident_array_table import (
    ResidentArray,
    ResidentArrayTable,
    array_lost,
    check_deleted,
    check_handle,
)
from shardcall_server.frontend.rpc.promise import Promise
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.link.wire import MAX_OPERANDS

_MAX_FAILED = 1024
_OPERANDS = tuple(f"operand {i}" for i in range(MAX_OPERANDS))


class _Deletion(NamedTuple):
    """A deletion that waits for calls: the principal, the number of its item in the order of the stream, its rule."""

    owner: str
    number: int
    with_named: bool


class StreamedArrays:
    """The arrays of one call stream.

    A call may name the result of an earlier call that has not been launched. An array is deleted once the earlier
    calls that use it are launched, and their commands are before the deletion on the link.

    Args:
        table: the resident arrays.
    """

    def __init__(self, table: ResidentArrayTable) -> None:
        self._table = table
        # Guards all of these; the table of arrays is used without it, and no call continues under it.
        self._lock = lock("the lock of a stream's arrays")
        self._promised: dict[bytes, Promise[ResidentArray]] = {}  # results of calls that are not launched
        self._uses: dict[bytes, int] = {}  # by calls that are not launched
        self._deleted: dict[bytes, _Deletion] = {}  # arrays to delete when they are no longer used
        self._failed: OrderedDict[bytes, CallError] = OrderedDict()
        self._deleting: list[int] = []  # numbers of deletions in progress, and of those that wait for a call to succeed
        # By results of calls that have not ended: the arrays to delete if they succeed.
        self._replaced: dict[bytes, dict[bytes, _Deletion]] = {}
        self._next_deletion: Promise[None] = Promise()

    def claim(
        self, owner: str, operands: Sequence[bytes], results: Sequence[bytes], fields: Sequence[str] = ()
    ) -> ArrayClaim:
        """Registers the arrays of a call, before any later item takes effect.

        Args:
            owner: the principal of the call.
            operands: the handles of its operands; empty for those that are not on the mesh.
            results: the handles of its results, as the client chose them.
            fields: the names of the operands in errors; empty for their numbers.

        Raises:
            CallError: a handle has the wrong length, or that of a result is in use.
        """
        for handle in filter(None, operands):
            check_handle(handle, fields[0] if fields else "operands")
        for handle in results:
            check_handle(handle, "result_handles")
        with self._lock:
            promised = self._promised
            if len({*results}) < len(results) or not promised.keys().isdisjoint(results):
                raise CallError(
                    Reason.MALFORMED_REQUEST,
                    "two results have the same handle; choose a handle at random for each result, and use it once",
                    field="result_handles",
                )
            fields = fields or _OPERANDS[: len(operands)]
            sources = [self._source(handle, fields[i]) if handle else None for i, handle in enumerate(operands)]
            for handle in operands:
                if handle:
                    self._uses[handle] = self._uses.get(handle, 0) + 1
            for handle in results:
                promised[handle] = Promise()
                self._replaced[handle] = {}
        # Without the lock, since the table may delete arrays of expired leases.
        for i, handle in enumerate(operands):
            if handle and sources[i] is None:
                sources[i] = self._find(handle, owner, fields[i])
        return ArrayClaim(self, operands, results, sources, owner, fields)

    def _source(self, handle: bytes, field: str) -> ResidentArray | Promise[ResidentArray] | CallError | None:
        """Returns the source of an operand by the items before; None for an array of the table or an omitted one."""
        check_held(self._lock)
        if handle in self._deleted:  # by an earlier item, though still in use
            return array_lost(handle, field)
        if (promised := self._promised.get(handle)) is not None:
            return promised
        if (error := self._failed.get(handle)) is not None:
            return array_lost(handle, field) if error.reason is Reason.MESH_RESTARTED else error
        return None

    def _find(self, handle: bytes, owner: str, field: str) -> ResidentArray | CallError:
        try:
            return self._table.find(handle, owner, field)
        except CallError as error:
            return error

    def delete(
        self, owner: str, handles: Sequence[bytes], number: int, *, with_named: bool = True, replaced_by: bytes = b""
    ) -> None:
        """Deletes arrays, as soon as no earlier call needs them.

        Args:
            owner: the principal of the stream.
            handles: the handles of the arrays.
            number: the number of the item that deletes them, in the order of the stream.
            with_named: whether arrays with names are deleted, too.
            replaced_by: a result of the call that has to succeed before; empty if they are deleted in any case.

        Raises:
            CallError: too many handles, or one of the wrong length.
        """
        if replaced_by and self._is_deferred(handles, _Deletion(owner, number, with_named), replaced_by):
            return
        now = []
        with self._lock:
            for handle in handles:
                self._failed.pop(handle, None)
                if handle in self._uses or handle in self._promised:
                    self._deleted.setdefault(handle, _Deletion(owner, number, with_named))
                else:
                    now.append(handle)
        if now:
            try:
                self._table.delete(now, owner, with_named=with_named)
            except CallError as error:
                if error.reason is Reason.MALFORMED_REQUEST:
                    raise
                structlog.get_logger().warning("arrays are not deleted", reason=error.message)

    def _is_deferred(self, handles: Sequence[bytes], deletion: _Deletion, replaced_by: bytes) -> bool:
        """Defers a deletion until the end of a call; returns False if the call has succeeded before.

        Raises:
            CallError: as `delete`.
        """
        check_deleted(handles)
        with self._lock:
            if (replaced := self._replaced.get(replaced_by)) is not None:
                new = [handle for handle in handles if handle not in replaced]
                replaced.update(dict.fromkeys(new, deletion))
                self._deleting += [deletion.number] * len(new)
                check_deleted(replaced)
                return True
        try:
            self._table.find(replaced_by, deletion.owner)
        except CallError:
            return True  # it has failed
        return False

    def end(self, results: Iterable[bytes], *, is_success: bool) -> None:
        """Deletes what the results of a call replace, if it has succeeded; for `ArrayClaim`."""
        with self._lock:
            replaced = [item for handle in results for item in self._replaced.pop(handle, {}).items()]
        if is_success:
            for handle, (owner, number, with_named) in replaced:
                self.delete(owner, [handle], number, with_named=with_named)
        if replaced:
            self._end_deletions([deletion.number for _, deletion in replaced])

    def find(self, handle: bytes, owner: str) -> ResidentArray:
        """Returns an array on the mesh; raises CallError if there is none."""
        return self._table.find(handle, owner, "result_handles")

    def settle(self, claim: ArrayClaim, resident_arrays: Sequence[ResidentArray], error: CallError | None) -> None:
        """Releases the arrays of a call that was launched or has failed; for `ArrayClaim`."""
        free: list[tuple[_Deletion, bytes]] = []
        with self._lock:
            promised = [self._promised.pop(handle) for handle in claim.results]
            if error is not None:
                self._note_failure(claim.results, error)
            for handle in claim.operands:
                if not handle:
                    continue
                self._uses[handle] -= 1
                if not self._uses[handle]:
                    del self._uses[handle]
            if self._deleted:
                for handle in {*claim.operands, *claim.results}:
                    if handle in self._deleted and handle not in self._uses and handle not in self._promised:
                        # First, since `next_deletion` reads without the lock.
                        self._deleting.append(self._deleted[handle].number)
                        free.append((self._deleted.pop(handle), handle))
        for i, future in enumerate(promised):  # without the lock: waiting calls continue on this thread
            if error is None:
                future.set_result(resident_arrays[i])
            else:
                future.set_exception(error)
        if free:
            self._delete(free)

    def _delete(self, free: Sequence[tuple[_Deletion, bytes]]) -> None:
        """Carries out deletions that waited."""
        for deletion, handle in free:
            try:
                self._table.delete([handle], deletion.owner, with_named=deletion.with_named)
            except CallError as error:  # of the disk, for an array with a name, which stays; nobody waits for an answer
                structlog.get_logger().warning("an array is not deleted", reason=error.message)
        self._end_deletions([deletion.number for deletion, _ in free])

    def _end_deletions(self, numbers: Iterable[int]) -> None:
        with self._lock:
            for number in numbers:
                self._deleting.remove(number)
            done, self._next_deletion = self._next_deletion, Promise()
        done.set_result(None)

    def next_deletion(self, before: int) -> Promise[None] | None:
        """Returns a future that is done after the next deferred deletion.

        Args:
            before: the number of an item.

        Returns:
            The future; None if no deletion before that item is deferred.
        """
        if not self._deleted and not self._deleting:
            return None
        with self._lock:
            first = next(iter(self._deleted.values()), None)  # they are in the order of their numbers
            is_before = (first is not None and first.number < before) or min(self._deleting, default=before) < before
            return self._next_deletion if is_before else None

    def note_failure(self, handles: Sequence[bytes], error: CallError) -> None:
        """Records why arrays do not exist, for later calls that name them."""
        with self._lock:
            self._note_failure(handles, error)

    def _note_failure(self, handles: Sequence[bytes], error: CallError) -> None:
        check_held(self._lock)
        kept = error.copy()
        for handle in handles:
            self._failed[handle] = kept
            if len(self._failed) > _MAX_FAILED:
                self._failed.popitem(last=False)


class ArrayClaim:
    """The arrays of one call.

    Attributes:
        operands: the handles of the operands; empty for those that are not on the mesh.
        results: the handles of the results, as the client chose them.
        is_settled: whether the call was launched or has failed.
    """

    def __init__(
        self,
        arrays: StreamedArrays,
        operands: Sequence[bytes],
        results: Sequence[bytes],
        sources: Sequence[ResidentArray | Promise[ResidentArray] | CallError | None],
        owner: str,
        fields: Sequence[str],
    ) -> None:
        self._arrays = arrays
        self._owner = owner
        self._fields = fields
        self.operands = operands
        self.results = results
        self._sources = sources
        self.is_settled = False

    async def resolve(self, call: ServerCall) -> list[ResidentArray | None]:
        """Returns the operands on the mesh, once the calls that make them are launched.

        Raises:
            CallError: ARRAY_LOST, or the error of a call that should have made one.
        """
        resident_arrays: list[ResidentArray | None] = []
        for i, source in enumerate(self._sources):
            if isinstance(source, CallError):
                call.is_dependent = True
                raise source.copy()
            resident: ResidentArray | None
            if isinstance(source, Promise):
                resident = await wait_computed(call, source, self.operands[i], self._fields[i])
            else:
                resident = source
            resident_arrays.append(resident)
        return resident_arrays

    def launched(self, resident_arrays: Sequence[ResidentArray]) -> None:
        """Releases the arrays: the call was sent to the mesh."""
        self.is_settled = True
        self._arrays.settle(self, resident_arrays, None)

    def finish(self) -> None:
        """Releases the arrays of a repeated call, which was answered with the answer to the first one.

        Raises:
            CallError: ARRAY_LOST, if its results have been deleted since.
        """
        if not self.is_settled:
            self.launched([self._arrays.find(handle, self._owner) for handle in self.results])

    def failed(self, error: CallError) -> None:
        """Releases the arrays: the call has failed. Does nothing else if it was launched before."""
        if self.is_settled:
            self._arrays.note_failure(self.results, error)
        else:
            self.is_settled = True
            self._arrays.settle(self, (), error)
        self._arrays.end(self.results, is_success=False)

    def succeeded(self) -> None:
        """Deletes what the results replace."""
        self._arrays.end(self.results, is_success=True)
