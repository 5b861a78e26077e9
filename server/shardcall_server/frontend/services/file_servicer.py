"""The service for arrays in files of the server."""

from __future__ import annotations

import os
from dataclasses import dataclass

from shardcall.v1 import error_pb2, file_service_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_core.types.sizes import exact
from shardcall_server.frontend.dispatch.array_reader import ArrayReader
from shardcall_server.frontend.dispatch.array_writer import ArrayWriter
from shardcall_server.frontend.dispatch.checkpoint_writer import CheckpointWriter
from shardcall_server.frontend.dispatch.host_resources import HostResources
from shardcall_server.frontend.dispatch.idempotency import IdempotencyTable, once
from shardcall_server.frontend.files.array_folder import ArrayFolder, StoredFile, described, is_zarr, parts_of
from shardcall_server.frontend.files.checkpoint_folder import file_bytes
from shardcall_server.frontend.files.folder_trees import check_chunks
from shardcall_server.frontend.files.npy_header import header_of, read_header
from shardcall_server.frontend.files.zarr_metadata import METADATA_NAME, metadata_of, read_metadata
from shardcall_server.frontend.memory.call_buffers import FileOperand, OperandSource
from shardcall_server.frontend.memory.open_file import OpenFile
from shardcall_server.frontend.memory.resident_array_table import ResidentArray
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.link.file_errors import file_error, is_unseen, naming, replaced
from shardcall_server.link.wire import encode_array_type
from shardcall_server.settings import Settings

_MAX_LOADS = 4  # of an array that is replaced again and again while it is read


class FileServicer:
    """`shardcall.v1.FileService`; its methods take a `ServerCall` instead of gRPC's context.

    Args:
        folder: the files; None if the server keeps none.
        checkpoints: writes the checkpoints in it; None likewise.
    """

    def __init__(
        self,
        folder: ArrayFolder | None,
        checkpoints: CheckpointWriter | None,
        host_resources: HostResources,
        reader: ArrayReader,
        writer: ArrayWriter,
        idempotency: IdempotencyTable,
        settings: Settings,
    ) -> None:
        self._folder = folder
        self._checkpoints = checkpoints
        self._host_resources = host_resources
        self._reader = reader
        self._writer = writer
        self._idempotency = idempotency
        self._settings = settings

    @once
    def SaveArray(  # noqa: N802  # the contract's name
        self, request: file_service_pb2.SaveArrayRequest, call: ServerCall
    ) -> file_service_pb2.SaveArrayResponse:
        """Writes an array to a file."""
        folder, owner = self._checked_folder(), call.principal_name
        parts_of(request.name)  # first: the handle may be of an array that is gone
        resident = self._host_resources.array_table.find(request.handle, owner)
        layout = _layout_of(request.name, resident, has_hosts=bool(self._settings.hosts))
        with folder.saving(owner, request.name, layout.nbytes) as (fd, path):
            layout.begin(fd)
            file = self._host_resources.open_file(fd, path, is_written=True)
            try:
                call.run(self._reader.save(call, resident, file, layout.offset, layout.zarr_metadata))
            finally:
                file.release()
            call.check("saving the array")
            description = _description(described(request.name, fd))
        return file_service_pb2.SaveArrayResponse(file=description, timing=call.finish())

    def LoadArray(  # noqa: N802
        self, request: file_service_pb2.LoadArrayRequest, call: ServerCall
    ) -> file_service_pb2.LoadArrayResponse:
        """Stores an array on the mesh from a file."""
        folder, digest = self._checked_folder(), request.SerializeToString(deterministic=True)
        return call.run(self._idempotency.once(call, digest, lambda: self._load_array(folder, request, call)))

    async def _load_array(
        self, folder: ArrayFolder, request: file_service_pb2.LoadArrayRequest, call: ServerCall
    ) -> file_service_pb2.LoadArrayResponse:
        for attempt in range(_MAX_LOADS):
            with folder.opened(call.principal_name, request.name) as (fd, path):
                file = self._host_resources.open_file(fd, path)
            try:
                source = _source(request.name, file)
                resident, _ = await self._writer.put(call, request, source, lambda _: None)
                break
            except CallError as error:
                if not _was_replaced(folder, call, request.name, file, error):
                    raise naming(error, request.name) from error
                if attempt == _MAX_LOADS - 1:
                    raise replaced() from error
            finally:
                file.release()
        description = self._host_resources.array_table.describe(resident)
        return file_service_pb2.LoadArrayResponse(array=description, timing=call.finish())

    def ListFiles(  # noqa: N802
        self, request: file_service_pb2.ListFilesRequest, call: ServerCall
    ) -> file_service_pb2.ListFilesResponse:
        """Describes the files of the principal."""
        files = self._checked_folder().files(call.principal_name, request.prefix)
        response = file_service_pb2.ListFilesResponse(files=map(_description, files))
        nbytes, limit = response.ByteSize(), self._settings.max_message_bytes
        if nbytes > limit:
            raise CallError(
                Reason.CALL_TOO_LARGE,
                f"the descriptions of the {len(files)} files have {exact(nbytes)}, and a message at most "
                f"{exact(limit)}; list them by parts with prefix=, or start the server with a larger "
                "--max-message-bytes",
                field="prefix",
            )
        return response

    @once
    def RemoveFile(  # noqa: N802
        self, request: file_service_pb2.RemoveFileRequest, call: ServerCall
    ) -> file_service_pb2.RemoveFileResponse:
        """Removes a file."""
        existed = self._checked_folder().remove(call.principal_name, request.name)
        return file_service_pb2.RemoveFileResponse(existed=existed)

    def SaveCheckpoint(  # noqa: N802
        self, request: file_service_pb2.SaveCheckpointRequest, call: ServerCall
    ) -> file_service_pb2.SaveCheckpointResponse:
        """Writes a checkpoint."""
        self._checked_folder()
        assert self._checkpoints is not None  # there is a folder
        checkpoint = call.run(self._checkpoints.save(call, request.names, request.seen))
        return file_service_pb2.SaveCheckpointResponse(
            time_seconds=checkpoint.time_seconds,
            names=[array.name for array in checkpoint.arrays],
            size_bytes=sum(map(file_bytes, checkpoint.arrays)),
            timing=call.finish(),
        )

    def _checked_folder(self) -> ArrayFolder:
        """Returns the folder of the files.

        Raises:
            CallError: FILES_UNAVAILABLE.
        """
        if self._folder is None:
            raise CallError(
                Reason.FILES_UNAVAILABLE,
                "this server keeps no files of arrays; start it with --array-dir FOLDER, or copy arrays by client.get "
                "and save them at the client",
            )
        return self._folder


@dataclass(frozen=True)
class _FileLayout:
    """The size of a file, and what it has beside the values of its array.

    Attributes:
        nbytes: the size of the complete file, or of all files of a directory.
        header: the header of a file, or the metadata file of a Zarr array.
        zarr_metadata: what the worker needs of that metadata; empty for a file.
    """

    nbytes: int
    header: bytes
    zarr_metadata: str = ""

    @property
    def offset(self) -> int:
        """The offset of the first element in the file."""
        return 0 if self.zarr_metadata else len(self.header)

    def begin(self, fd: int) -> None:
        """Writes the header to a new file of the complete size, or the metadata to a new directory.

        Raises:
            CallError: FILE_LIMIT, FILES_UNAVAILABLE.
        """
        try:
            if not self.zarr_metadata:
                os.pwrite(fd, self.header, 0)
                os.ftruncate(fd, self.nbytes)  # no host takes what others write behind its part for the end
                return
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(METADATA_NAME, flags, 0o600, dir_fd=fd), "wb") as file:
                file.write(self.header)
        except OSError as error:
            raise file_error(error) from error


def _layout_of(name: str, resident: ResidentArray, *, has_hosts: bool) -> _FileLayout:
    """Returns what the file of an array has beside its values.

    Raises:
        CallError: UNSUPPORTED_ELEMENT_TYPE, INVALID_PARAMETER.
    """
    if is_zarr(name):
        metadata = metadata_of(resident.type, resident.placement.block_shape, divides_blocks=has_hosts)
        return _FileLayout(metadata.written_bytes, metadata.file, metadata.text)
    header = header_of(resident.type)
    return _FileLayout(len(header) + resident.type.nbytes, header)


def _was_replaced(folder: ArrayFolder, call: ServerCall, name: str, file: OpenFile, error: CallError) -> bool:
    """Returns whether a load failed since the file was replaced while it was read, or before a host opened it.

    Raises:
        CallError: FILE_NOT_FOUND: it was removed.
    """
    if is_unseen(error):
        with folder.opened(call.principal_name, name) as (fd, _):
            return os.fstat(fd).st_ino != file.inode
    return error.reason is Reason.FILE_NOT_FOUND


def _source(name: str, file: OpenFile) -> OperandSource:
    """Returns the array in a file, or in the directory of a Zarr array.

    Raises:
        CallError: FILE_DAMAGED, UNSUPPORTED_ELEMENT_TYPE, INVALID_SHAPE, FILES_UNAVAILABLE.
    """
    if not is_zarr(name):
        header = read_header(file.fd)
        location = FileOperand(file, header.offset, header.is_column_major, header.is_big_endian)
        return OperandSource(header.type, file=location)
    metadata = read_metadata(file.fd)
    try:
        check_chunks(file.fd, metadata.chunk_bytes if metadata.is_blosc else None, metadata.max_file_bytes)
    except OSError as error:
        raise file_error(error) from error
    return OperandSource(metadata.type, file=FileOperand(file, zarr_metadata=metadata.text))


def _description(file: StoredFile) -> file_service_pb2.FileDescription:
    return file_service_pb2.FileDescription(
        name=file.name,
        size_bytes=file.nbytes,
        modified_seconds=file.modified_s,
        type=None if file.type is None else encode_array_type(file.type),
        refusal=error_pb2.ErrorReason.Value(f"ERROR_REASON_{file.refusal or 'UNSPECIFIED'}"),
    )
