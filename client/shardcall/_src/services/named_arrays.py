"""Names of arrays, by which all clients of a principal, and those that it shares them with, use them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from shardcall._src.device_arrays.array_version import ArrayBase, ArrayVersion, Owner, lost_error
from shardcall._src.device_arrays.bucketed_array import BucketedArray
from shardcall._src.device_arrays.remote_array import SHORT_TIMEOUT_S, RemoteArray, find_remote_array
from shardcall._src.programs.call_sender import CallSender
from shardcall._src.rpc.deadline import Deadline
from shardcall._src.rpc.transport import Transport
from shardcall._src.services.array_descriptions import described
from shardcall._src.services.passed_arrays import Handle, PassedArrays, handle_of
from shardcall._src.services.saved_files import SavedCheckpoint
from shardcall.v1 import array_service_pb2, file_service_pb2
from shardcall_core.array_names import MAX_NAME, NAME
from shardcall_core.call_error import shorten
from shardcall_core.locks import lock
from shardcall_core.types.arrays import NDArray
from shardcall_core.types.errors import (
    ArrayLostError,
    InvalidOperandError,
    InvalidParameterError,
    InvalidRequestError,
    ParameterTypeError,
    ShardcallError,
)

MAX_SEEN = 8192
"""The most names of which a client keeps the version that it has seen: those that it has used last."""

_ATTEMPTS = 8  # to read an array that other clients write to

_Value = TypeVar("_Value")


class NamedArrays:
    """The arrays of a client that have names; safe to use from several threads at once.

    It keeps the version of each name that the client has seen last, in any of its objects, and sends it with every use.
    If a restart of the mesh or the server has lost that version, the server refuses the use, until `open` or `name` has
    accepted what the name stands for.

    Args:
        transport: the connection to the server.
        sender: what sends submitted calls, which make arrays, too.
        passed: the arrays that the caller passes.
    """

    def __init__(self, transport: Transport, sender: CallSender, passed: PassedArrays) -> None:
        self._transport = transport
        self._sender = sender
        self._lease = sender.lease
        self._passed = passed
        # Held from the check that a base has the values that it had to their replacement by those of its name.
        self._replacing = lock("the lock of arrays with names")
        self._seen: dict[str, array_service_pb2.NameVersion] = {}  # by name; under the same lock

    def seen(self, name: str) -> array_service_pb2.NameVersion | None:
        """Returns the last version of a name that this client has seen; None if it has seen none."""
        with self._replacing:
            return self._seen.get(name)

    def see(self, name: str, version: array_service_pb2.NameVersion, *, accepts: bool = False) -> None:
        """Puts down a version that the client has seen.

        Args:
            accepts: whatever it has seen before; else unless it has seen a later one.
        """
        with self._replacing:
            if (before := self._seen.pop(name, None)) is not None and not accepts:
                version = max(before, version, key=_moment)
            self._seen[name] = version  # behind the others
            if len(self._seen) > MAX_SEEN:
                del self._seen[next(iter(self._seen))]

    def _accept(self, array: array_service_pb2.ArrayDescription) -> array_service_pb2.ArrayDescription:
        """Puts down the version of an array, whatever the client has seen before; returns the array."""
        self.see(array.name, array.version, accepts=True)
        return array

    def name(
        self, array: Handle, name: str, deadline: Deadline, *, replaces: bool, keep_s: float, lease_id: bytes = b""
    ) -> None:
        """Gives an array a name; then it stays without this client.

        Args:
            lease_id: the lease that gets an array that loses the name; empty to delete that.
        """
        here = None if isinstance(array, str) else find_remote_array(array)
        if here is not None:
            here._store.padded_axis = None  # a view that nobody shares becomes an array
        target = self._passed.version_of(array)
        if isinstance(array, BucketedArray) or (here is not None and here._steps):
            what = "a view" if here is not None and here._steps else "a BucketedArray"
            raise InvalidOperandError(f"the array is {what}, which has no name; name a copy of it", field="array")
        if here is not None and "/" in here._store.name:
            raise _of_another(here._store.name, "gives it no name", "name a copy of it")
        with self._passed.using([target], ["the array"], deadline):
            request = array_service_pb2.NameArrayRequest(
                handle=handle_of(target), name=name, replace=replaces, keep_seconds=keep_s, lease_id=lease_id
            )
            answer = self._transport.unary(self._transport.stubs.arrays.NameArray, request, deadline)
            version = self._accept(answer.array).version
        self._stay(handle_of(target))
        if isinstance(target, ArrayVersion) and target.base is not None and (base := target.base()) is not None:
            base.name, base.restored_us = name, version.since_microseconds

    def name_durably(self, array: RemoteArray, name: str, deadline: Deadline, *, replaces: bool, keep_s: float) -> None:
        """Gives an array a name and writes it to the disk of the server.

        If the array cannot be written, it is deleted, and the name stands for what it stood for before.
        """
        before = self._find(name, deadline) if replaces else None
        self.name(array, name, deadline, replaces=replaces, keep_s=keep_s, lease_id=self._lease.lease_id)
        try:
            self.save_checkpoint([name], deadline)
        except BaseException:
            with contextlib.suppress(ShardcallError):
                self._restore(array, before, Deadline(SHORT_TIMEOUT_S))
            raise
        if before is not None:
            with contextlib.suppress(ShardcallError):  # which its lease deletes later
                self._sender.delete([before.handle], deadline)

    def _find(self, name: str, deadline: Deadline) -> array_service_pb2.ArrayDescription | None:
        try:
            return self._open(name, deadline)
        except ArrayLostError:
            return None

    def _restore(
        self, array: RemoteArray, before: array_service_pb2.ArrayDescription | None, deadline: Deadline
    ) -> None:
        """Deletes an array that could not be written, and gives its name to the one that had it."""
        handle = array._version.handle
        array._store.name = ""
        if before is not None:
            self._accept(before)
            request = array_service_pb2.NameArrayRequest(
                handle=before.handle, name=before.name, replace=True, keep_seconds=before.expires_in_seconds
            )
            self._transport.unary(self._transport.stubs.arrays.NameArray, request, deadline)
        else:
            self._sender.delete([handle], deadline, with_named=True)
        self._passed.named.discard(handle)

    def _stay(self, handle: bytes) -> None:
        self._passed.named.add(handle)  # first, so that no list brings it back under the lease
        self._lease.release([handle])

    def open(self, owner: Owner, name: str, deadline: Deadline) -> RemoteArray:
        """Returns the array that a name stands for."""
        return described(owner, self._sender.here, self._accept(self._open(name, deadline)))

    def _open(
        self, name: str, deadline: Deadline, seen: array_service_pb2.NameVersion | None = None
    ) -> array_service_pb2.ArrayDescription:
        request = array_service_pb2.OpenArrayRequest(name=checked_address(name), seen=seen)
        return self._transport.unary(self._transport.stubs.arrays.OpenArray, request, deadline).array

    def save_checkpoint(self, names: Sequence[str], deadline: Deadline) -> SavedCheckpoint:
        """Writes the arrays of names to the disk of the server; of all names if none is given."""
        with self._passed.using([], []):  # after the recorded calls
            with self._replacing:
                seen = {name: self._seen[name] for name in names or self._seen if name in self._seen}
            request = file_service_pb2.SaveCheckpointRequest(names=names, seen=seen)
            answer = self._transport.unary(self._transport.stubs.files.SaveCheckpoint, request, deadline)
        when = datetime.fromtimestamp(answer.time_seconds, UTC)
        return SavedCheckpoint(when, tuple(answer.names), answer.size_bytes)

    def share(self, name: str, principal: str, deadline: Deadline, *, may_write: bool) -> None:
        """Shares the array of a name with another principal."""
        request = array_service_pb2.ShareArrayRequest(name=name, principal=principal, may_write=may_write)
        self._transport.unary(self._transport.stubs.arrays.ShareArray, request, deadline)

    def unshare(self, name: str, principal: str, deadline: Deadline) -> None:
        """Ends what `share` has allowed a principal; all of them if it is empty."""
        request = array_service_pb2.UnshareArrayRequest(name=name, principal=principal)
        self._transport.unary(self._transport.stubs.arrays.UnshareArray, request, deadline)

    def refresh(self, base: ArrayBase, deadline: Deadline) -> None:
        """Gives a base the values that its name stands for now, and its views new ones after a restart."""
        before = base.version
        answer = self._open(base.name, deadline, self.seen(base.name))
        self.see(base.name, answer.version)
        restored_us = answer.version.since_microseconds
        if answer.handle != before.handle:
            version = described(before.owner, self._sender.here, answer)._store.version
        elif restored_us != base.restored_us:
            version = replace(before)  # another object: the values of views were computed from the one before
        else:
            return
        if version.type != base.type:
            why = f"whose name {base.name!r} stands for {version.type} now; open it by Client.open"
            raise lost_error(base.type, why, "the array")
        with self._replacing:
            if base.version is before:  # else another thread has written to it, or refreshed it
                base.replace(version)
                base.restored_us = restored_us
                if version.handle != before.handle:
                    self._passed.named.discard(before.handle)

    def write(self, base: ArrayBase, version: ArrayVersion, deadline: Deadline) -> None:
        """Has the name of a base stand for other values, and waits until the server says so.

        The array before is put under this client's lease, since calls and copies of this client may need it.

        Raises:
            InvalidRequestError: if another client has written to it since the values before were read.
            AccessDeniedError: if it is another principal's, which does not share it for writing.
        """
        before = base.version
        self._lease.add([before])
        try:
            refusal = None
            with self._passed.using([version], ["the array"], deadline):
                # Here, since its call has another handle where the server refused the call stream.
                request = array_service_pb2.NameArrayRequest(
                    handle=version.handle,
                    name=base.name,
                    expected_handle=before.handle,
                    lease_id=self._lease.lease_id,
                    seen=self.seen(base.name),
                )
                try:
                    answer = self._transport.unary(self._transport.stubs.arrays.NameArray, request, deadline)
                    self.see(base.name, answer.array.version)
                except InvalidRequestError as error:  # which says more than the failed call of the array
                    refusal = error
            if refusal is not None:
                raise refusal
        except BaseException:
            self._lease.release([before.handle])
            raise
        self._stay(version.handle)
        self._passed.named.discard(before.handle)

    def get(self, array: RemoteArray, get: Callable[..., NDArray], deadline: Deadline) -> NDArray:
        """Copies an array with a name, which the server looks up while it copies the array.

        Args:
            get: copies the array of a handle, or of a name that is its third argument.
        """
        base = array._store
        if not array._steps and not base.writers:
            version = base.version
            with contextlib.suppress(ArrayLostError), self._passed.using([version], ["the array"], deadline):
                values = get(version, deadline, base.name)
                if (values.shape, values.dtype) == (base.type.shape, base.type.dtype):
                    return values
        return self.read(array, get, deadline)  # looks it up first, and says why it is lost

    def read(
        self, array: RemoteArray, read: Callable[[ArrayVersion | bytes, Deadline], _Value], deadline: Deadline
    ) -> _Value:
        """Reads an array with a name, anew if another client has replaced its values meanwhile."""
        for attempt in range(_ATTEMPTS):
            target = self._passed.version_of(array)
            try:
                with self._passed.using([target], ["the array"], deadline):
                    return read(target, deadline)
            except ArrayLostError:
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError

    def give_up(self, array: RemoteArray) -> list[ArrayVersion | bytes]:
        """Takes the name from an object whose array is to be deleted; returns the array, unless others own it."""
        if "/" in array._store.name:
            return []
        self._seen.pop(array._store.name, None)  # whatever a restart has left of it is to go
        try:
            return [self._passed.version_of(array)]
        except ArrayLostError:
            return []
        finally:
            array._store.name = ""


def _moment(version: array_service_pb2.NameVersion) -> tuple[int, int]:
    return version.since_microseconds, version.number


def _of_another(name: str, refusal: str, advice: str) -> InvalidOperandError:
    owner = name.rpartition("/")[0]
    return InvalidOperandError(
        f"the array {name!r} belongs to the principal {owner!r}, and a principal that it is shared with {refusal}; "
        f"{advice}",
        field="array",
    )


def checked_names(names: Sequence[str]) -> list[str]:
    """Returns the names of arrays that are arguments of their own.

    Raises:
        InvalidParameterError: if one is none.
    """
    for name in names:
        if isinstance(name, list | tuple | set):
            shown, separate = f"the {type(name).__name__} {shorten(repr(name))}", [repr(item) for item in name]
        elif (here := find_remote_array(name)) is not None:
            shown, separate = here._description(), [repr(here._store.name or "u")]
        else:
            continue
        raise ParameterTypeError(
            f"names has {shown}; give each name by itself: save_checkpoint({shorten(', '.join(separate))})",
            field="names",
        )
    return [checked_name(name) for name in names]


def checked_name(name: str) -> str:
    """Returns the name of an array.

    Raises:
        InvalidParameterError: if it is none.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InvalidParameterError(
            f"the name is {shorten(repr(name))}; give 1 to {MAX_NAME} ASCII letters, digits, '.', '_' and '-'",
            field="name",
        )
    return name


def checked_address(name: str) -> str:
    """Returns the name of an array, or ``principal/name``; the server checks its form.

    Raises:
        ParameterTypeError: if it is no string.
    """
    if isinstance(name, str):
        return name
    raise ParameterTypeError(
        f"name is {shorten(repr(name))}; give the name of an array as a str, such as 'u' or 'alice/u'", field="name"
    )


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
