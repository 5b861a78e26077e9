"""Files of arrays on the server."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from shardcall._src.rpc.deadline import Deadline
from shardcall._src.rpc.transport import Transport
from shardcall.v1 import error_pb2, file_service_pb2
from shardcall_core.call_error import shorten
from shardcall_core.markup import page
from shardcall_core.markup.columns import aligned
from shardcall_core.types import arrays
from shardcall_core.types.arrays import Array
from shardcall_core.types.errors import ParameterTypeError
from shardcall_core.types.sizes import human

_COLUMNS = ("name", "type", "bytes", "modified")
_REFUSALS = {"FILE_DAMAGED": "damaged", "": "does not load"}


@dataclass(frozen=True)
class SavedFile:
    """A file of an array on the server.

    Attributes:
        name: its name.
        nbytes: its size in bytes.
        modified: the time of its last change.
        type: the shape and the element type of its array; None if it cannot be loaded.
        refusal: why it cannot be loaded, such as ``"FILE_DAMAGED"`` or ``"UNSUPPORTED_ELEMENT_TYPE"``; empty if it can.
    """

    name: str
    nbytes: int
    modified: datetime
    type: Array | None
    refusal: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """The cells of its row."""
        when = self.modified.astimezone().strftime("%Y-%m-%d %H:%M:%S")
        shown = _REFUSALS.get(self.refusal, "of a type that does not load") if self.type is None else str(self.type)
        return self.name, shown, human(self.nbytes), when


class FileTable(list[SavedFile]):
    """Files of arrays on the server, by name; ``print`` shows them."""

    def __str__(self) -> str:
        return aligned(_COLUMNS, (file.texts for file in self)) if self else "no files"

    def _repr_html_(self) -> str:
        """Returns the table for a notebook."""
        table = page.listing(_COLUMNS, (file.texts for file in self))
        return page.page(f"{len(self)} files", page.scrolled(table))


@dataclass(frozen=True)
class SavedCheckpoint:
    """The last checkpoint of a principal.

    Attributes:
        time: its moment.
        names: the names of its arrays, sorted.
        nbytes: the bytes of its files.
    """

    time: datetime
    names: tuple[str, ...]
    nbytes: int


class SavedFiles:
    """Lists and removes the files of the principal."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def all(self, prefix: str | os.PathLike[str], deadline: Deadline) -> FileTable:
        """Returns the files whose names begin with a prefix."""
        request = file_service_pb2.ListFilesRequest(prefix=checked_file_name(prefix, "prefix"))
        answer = self._transport.unary(self._transport.stubs.files.ListFiles, request, deadline)
        return FileTable(map(saved_file, answer.files))

    def remove(self, name: str | os.PathLike[str], deadline: Deadline) -> bool:
        """Removes a file; returns whether there was one."""
        request = file_service_pb2.RemoveFileRequest(name=checked_file_name(name))
        return self._transport.unary(self._transport.stubs.files.RemoveFile, request, deadline).existed


def checked_file_name(name: str | os.PathLike[str], field: str = "name") -> str:
    """Returns the name of a file of the server, with slashes between its parts; the server checks its form.

    Args:
        field: the argument, for the error.

    Raises:
        ParameterTypeError: if it is neither a string nor a path.
    """
    path = os.fspath(name) if isinstance(name, str | os.PathLike) else None
    if not isinstance(path, str):
        raise ParameterTypeError(
            f"{field} is {shorten(repr(name))}; give a str or a pathlib.Path, such as 'runs/a.npy'", field=field
        )
    return path if isinstance(name, str) else path.replace(os.sep, "/")


def saved_file(message: file_service_pb2.FileDescription) -> SavedFile:
    """Returns a file as the server describes it."""
    array_type = arrays.from_proto(message.type) if message.HasField("type") else None
    modified = datetime.fromtimestamp(message.modified_seconds, UTC)
    reason = error_pb2.ErrorReason.DESCRIPTOR.values_by_number.get(message.refusal)
    name = reason.name.removeprefix("ERROR_REASON_") if reason else f"reason {message.refusal}, of a newer server"
    refusal = name if message.refusal else ""
    return SavedFile(message.name, message.size_bytes, modified, array_type, refusal)


def described(files: Iterable[SavedFile]) -> list[dict[str, object]]:
    """Returns files as values for JSON."""
    return [
        {
            "name": file.name,
            "bytes": file.nbytes,
            "modified": file.modified.isoformat(),
            "type": None if file.type is None else str(file.type),
            **({"refusal": file.refusal} if file.refusal else {}),
        }
        for file in files
    ]
