"""Arrays that the caller passes, as objects or handles, and those of them that the server has lost."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from shardcall._src.device_arrays.array_version import ArrayVersion
from shardcall._src.device_arrays.remote_array import SupportsRemoteArray, find_remote_array
from shardcall._src.programs.call_sender import CallSender
from shardcall._src.programs.submitter import Submitter
from shardcall._src.rpc.deadline import Deadline
from shardcall_core.array_names import NAME
from shardcall_core.call_error import shorten
from shardcall_core.types.errors import ArrayLostError, InvalidOperandError, ShardcallError

Handle: TypeAlias = SupportsRemoteArray | str
"""An array on the mesh: the object, or its hexadecimal handle."""

_DIGITS = 32  # of a handle
_HANDLE = re.compile(rf"[0-9A-Fa-f]{{{_DIGITS}}}")


class PassedArrays:
    """Looks up the arrays that the caller passes, and marks those as lost that the server no longer has.

    Attributes:
        named: the handles of arrays with names, which are not under the lease.

    Args:
        sender: what sends submitted calls, which make arrays, too.
        submitter: what records calls, which are sent before something needs their results.
    """

    def __init__(self, sender: CallSender, submitter: Submitter) -> None:
        self.named: set[bytes] = set()
        self._submitter = submitter
        self._sender = sender
        self._lease = sender.lease

    def version_of(self, array: Handle) -> ArrayVersion | bytes:
        """Returns the values of an array, whose call has begun; the handle of one that this client has no object of."""
        here = find_remote_array(array)
        if here is None:
            handle = _as_handle(array)
            if (here := self._lease.find(handle)) is None:
                return handle
        version = here._version
        version.check_there("the array")
        if version.server is not self._sender.here:
            version.check_server(self._sender.here, "the array")
        if version.pending is not None:
            version.pending.begin()
        return version

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
            version.check_server(self._sender.here, name)
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
                    if version.handle in self.named or _has_name(version):  # replaced by another client
                        raise
                    version.lose("which the mesh no longer has")
                    self._lease.release([version.handle])
                    raise _lost_on_mesh(version, name, error) from None
            raise


def _has_name(version: ArrayVersion) -> bool:
    base = None if version.base is None else version.base()
    return base is not None and bool(base.name)


def _as_handle(array: object) -> bytes:
    """Returns the bytes of a hexadecimal handle.

    Raises:
        InvalidOperandError: if it is none.
    """
    if isinstance(array, str) and _HANDLE.fullmatch(array):
        return bytes.fromhex(array)
    is_name = isinstance(array, str) and NAME.fullmatch(array.rpartition("/")[2])
    advice = f"; the array of that name is client.open({array!r})" if is_name else ""
    shown = shorten(repr(array)) if isinstance(array, str) else f"a value of type {type(array).__name__}"
    raise InvalidOperandError(
        f"{shown} is no array on the mesh; give a RemoteArray, or its handle: {_DIGITS} hexadecimal digits{advice}",
        field="array",
    )


def handle_of(array: ArrayVersion | bytes) -> bytes:
    """Returns the handle of an array."""
    return array.handle if isinstance(array, ArrayVersion) else array


def _lost_on_mesh(version: ArrayVersion, name: str, error: ArrayLostError) -> ArrayLostError:
    return ArrayLostError(
        f"{name} is {version.type}, which the mesh no longer has: it was deleted, its lease ended, or the mesh or "
        "the server restarted; put the array anew",
        reason=error.reason,
        field=error.field if name == "the array" else name,
        metadata=error.metadata,
        timing=error.timing,
        status=error.status,
    )
