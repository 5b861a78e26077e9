"""Parts of files in /dev/shm that clients on the server's host register."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from shardcall_core.access.addresses import is_loopback
from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.locks import lock
from shardcall_core.wire.private_files import PrivateFileError, open_shared_file

MAX_REGIONS = 64
"""The most regions of a principal."""

_FOLDER = "/dev/shm"  # noqa: S108  # where shm_open makes files; the checks are of the open file
_KEY = re.compile(r"/?(?P<name>[A-Za-z0-9_-][A-Za-z0-9._-]{0,254})")
MAX_REGION_NAME = 256
"""The most characters of the name of a region."""


@dataclass(frozen=True)
class RegisteredRegion:
    """A registered part of a file.

    Reads and writes are copies: to map the file would let its owner end the server, by making it shorter.

    Attributes:
        name: its name.
        key: the name of the file, as the client sent it.
        offset: the first byte.
        nbytes: its size.
        file: the descriptor of the file.
    """

    name: str
    key: str
    offset: int
    nbytes: int
    file: int

    def read(self, offset: int, nbytes: int, field: str) -> bytes:
        """Returns bytes.

        Args:
            offset: the first byte in the region.
            nbytes: their number.
            field: the tensor, for the error message.

        Raises:
            CallError: they are not in the region, or the file has become shorter.
        """
        self.check(offset, nbytes, field)
        data = b""
        while more := os.pread(self.file, nbytes - len(data), self.offset + offset + len(data)):
            data = data + more if data else more
        if len(data) < nbytes:
            raise self._shorter(field)
        return data

    def write(self, offset: int, data: bytes, field: str) -> None:
        """Writes bytes; arguments and errors as of `read`."""
        self.check(offset, len(data), field)
        if os.fstat(self.file).st_size < self.offset + offset + len(data):
            raise self._shorter(field)
        view = memoryview(data)
        while view:
            written = os.pwrite(self.file, view, self.offset + offset)
            offset, view = offset + written, view[written:]

    def check(self, offset: int, nbytes: int, field: str) -> None:
        """Raises CallError unless bytes are in the region."""
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            raise CallError(
                Reason.INVALID_PARAMETER,
                f"{field}: {nbytes} bytes from byte {offset} are not in the region {self.name!r} of {self.nbytes} "
                "bytes; send an offset and a size within it",
                field=field,
            )

    def _shorter(self, field: str) -> CallError:
        return CallError(
            Reason.INVALID_PARAMETER,
            f"{field}: the file {self.key!r} of the region {self.name!r} has become shorter; register it again",
            field=field,
        )


class SharedMemoryRegions:
    """The regions of all principals; safe to use from several threads at once.

    Args:
        enabled: whether clients may register regions.

    Attributes:
        enabled: as the argument.
    """

    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled
        self._lock = lock("the lock of regions")  # guards the regions; nothing is read under it
        self._regions: dict[tuple[str, str], RegisteredRegion] = {}

    def register(self, owner: str, connection: str, region: RegisteredRegion) -> None:
        """Opens a region.

        Args:
            owner: the principal.
            connection: the caller's connection, as gRPC names it.
            region: the region, without its file.

        Raises:
            CallError: the server does not allow it, or there is no such file.
        """
        self._check_allowed(connection)
        if not region.name or len(region.name) > MAX_REGION_NAME:
            raise _invalid("name", region.name, f"give 1 to {MAX_REGION_NAME} characters")
        match = _KEY.fullmatch(region.key)
        if match is None:
            raise _invalid("key", region.key, "give the name of a file in /dev/shm, such as /inputs")
        with self._lock:
            if (owner, region.name) in self._regions:
                raise _invalid("name", region.name, "it is registered; unregister it first, or use another")
            if sum(principal == owner for principal, _ in self._regions) >= MAX_REGIONS:
                raise CallError(
                    Reason.QUOTA_EXCEEDED,
                    f"{MAX_REGIONS} regions of this principal are registered, the most allowed; unregister one",
                    field="name",
                    metadata={"limit": "regions", "allowed": str(MAX_REGIONS)},
                )
            file = _open(match["name"], region)
            self._regions[owner, region.name] = RegisteredRegion(
                region.name, region.key, region.offset, region.nbytes, file
            )

    def unregister(self, owner: str, name: str) -> None:
        """Closes a region of a principal, or all of them for an empty name."""
        with self._lock:
            for key in [key for key in self._regions if key[0] == owner and (not name or key[1] == name)]:
                os.close(self._regions.pop(key).file)

    def retain(self, is_principal: Callable[[str], bool]) -> None:
        """Closes the regions of those that are no principals."""
        with self._lock:
            owners = {owner for owner, _ in self._regions}
        for owner in owners:
            if not is_principal(owner):
                self.unregister(owner, "")

    def of_owner(self, owner: str, name: str) -> list[RegisteredRegion]:
        """Returns the regions of a principal, or one of them.

        Raises:
            CallError: INVALID_PARAMETER if it has no region of that name.
        """
        if name:
            return [self._find(owner, name, "name")]
        with self._lock:
            return [region for (principal, _), region in self._regions.items() if principal == owner]

    def read(self, owner: str, name: str, offset: int, nbytes: int, field: str) -> bytes:
        """Returns bytes of a region; arguments and errors as of `RegisteredRegion.read`."""
        with self._opened(owner, name, field) as region:
            return region.read(offset, nbytes, field)

    def write(self, owner: str, name: str, offset: int, data: bytes, field: str) -> None:
        """Writes bytes to a region; arguments and errors as of `RegisteredRegion.write`."""
        with self._opened(owner, name, field) as region:
            region.write(offset, data, field)

    def check(self, owner: str, name: str, offset: int, nbytes: int, field: str) -> None:
        """Raises CallError unless bytes are in a region."""
        self._find(owner, name, field).check(offset, nbytes, field)

    def close(self) -> None:
        """Closes all regions."""
        with self._lock:
            for region in self._regions.values():
                os.close(region.file)
            self._regions.clear()

    def _check_allowed(self, connection: str) -> None:
        if not self.enabled:
            raise CallError(
                Reason.NOT_SUPPORTED,
                "this server registers no shared memory; send tensors in messages, or start it with "
                "--shared-memory-regions",
            )
        if not _is_here(connection):
            raise CallError(
                Reason.NOT_SUPPORTED, "shared memory is for clients on the server's host; send tensors in messages"
            )

    def _find(self, owner: str, name: str, field: str) -> RegisteredRegion:
        with self._lock:
            region = self._regions.get((owner, name))
        if region is None:
            raise _invalid(field, name, "no region of this principal has this name; register it first")
        return region

    @contextmanager
    def _opened(self, owner: str, name: str, field: str) -> Iterator[RegisteredRegion]:
        """Yields a region with a descriptor of its own, which no other request closes."""
        try:
            with self._lock:
                region = self._regions.get((owner, name))
                file = os.dup(region.file) if region is not None else -1
            if region is None:
                raise _invalid(field, name, "no region of this principal has this name; register it first")
            try:
                yield replace(region, file=file)
            finally:
                os.close(file)
        except OSError as error:
            raise _invalid(
                field, name, f"its memory cannot be used ({error.strerror}); send tensors in messages"
            ) from error


def _is_here(connection: str) -> bool:
    """Returns whether a connection, as gRPC names it, comes from this host."""
    family, _, address = connection.replace("%5B", "[").replace("%5D", "]").partition(":")
    return family == "unix" or (family in ("ipv4", "ipv6") and is_loopback(address.rpartition(":")[0].strip("[]")))


def _open(name: str, region: RegisteredRegion) -> int:
    """Returns the descriptor of the file of a region.

    Raises:
        CallError: there is none, other users may use it, or it is too short.
    """
    try:
        file = open_shared_file(os.path.join(_FOLDER, name))
    except PrivateFileError as error:
        raise _invalid("key", region.key, str(error)) from None
    except OSError as error:
        raise _invalid("key", region.key, f"{error.strerror}; give the name of a file in /dev/shm") from None
    size = os.fstat(file).st_size
    if not region.nbytes or region.offset + region.nbytes > size:
        os.close(file)
        raise CallError(
            Reason.INVALID_PARAMETER,
            f"byte_size is {region.nbytes} and offset {region.offset}, and the file {region.key!r} has {size} bytes; "
            "give at least one byte within it",
            field="byte_size",
        )
    return file


def _invalid(field: str, value: str, why: str) -> CallError:
    return CallError(Reason.INVALID_PARAMETER, f"{field} is {shorten(value)!r}; {why}", field=field)
