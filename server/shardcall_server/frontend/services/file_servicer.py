"""The service for arrays in files of the server."""

from __future__ import annotations

import os

from shardcall.v1 import file_service_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_core.types.sizes import exact
from shardcall_server.frontend.dispatch.array_reader import ArrayReader
from shardcall_server.frontend.dispatch.array_writer import ArrayWriter
from shardcall_server.frontend.dispatch.checkpoints import Checkpoints
from shardcall_server.frontend.dispatch.host_resources import HostResources
from shardcall_server.frontend.dispatch.idempotency import IdempotencyTable
from shardcall_server.frontend.files.array_folder import ArrayFolder, StoredFile, described, parts_of
from shardcall_server.frontend.files.checkpoint_folder import file_bytes
from shardcall_server.frontend.files.npy_header import header_of, read_header
from shardcall_server.frontend.memory.call_buffers import FileOperand, OperandSource
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.link.file_errors import file_error
from shardcall_server.link.wire import encode_array_type
from shardcall_server.settings import Settings


class FileServicer:
    """`shardcall.v1.FileService`; its methods take a `ServerCall` instead of gRPC's context.

    Args:
        folder: the files; None if the server keeps none.
        checkpoints: the checkpoints in it.
    """

    def __init__(
        self,
        folder: ArrayFolder | None,
        checkpoints: Checkpoints | None,
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

    def SaveArray(  # noqa: N802  # the contract's name
        self, request: file_service_pb2.SaveArrayRequest, call: ServerCall
    ) -> file_service_pb2.SaveArrayResponse:
        """Writes an array to a file."""
        folder, owner = self._checked_folder(), call.principal_name
        parts_of(request.name)  # first: the handle may be of an array that is gone
        resident = self._host_resources.array_table.find(request.handle, owner)
        header = header_of(resident.type)
        nbytes = len(header) + resident.type.nbytes
        with folder.saving(owner, request.name, nbytes) as fd:
            _write_header(fd, header)
            file = self._host_resources.open_file(fd)
            try:
                call.run(self._reader.save(call, resident, file, len(header)))
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
        with folder.opened(call.principal_name, request.name) as fd:
            header, file = read_header(fd), self._host_resources.open_file(fd)
        try:
            location = FileOperand(file, header.offset, header.is_column_major, header.is_big_endian)
            source = OperandSource(header.type, file=location)
            resident, _ = await self._writer.put(call, request, source, lambda _: None)
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

    def RemoveFile(  # noqa: N802
        self, request: file_service_pb2.RemoveFileRequest, call: ServerCall
    ) -> file_service_pb2.RemoveFileResponse:
        """Removes a file."""
        folder = self._checked_folder()

        async def remove() -> file_service_pb2.RemoveFileResponse:
            return file_service_pb2.RemoveFileResponse(existed=folder.remove(call.principal_name, request.name))

        return call.run(self._idempotency.once(call, request, remove))

    def SaveCheckpoint(  # noqa: N802
        self, request: file_service_pb2.SaveCheckpointRequest, call: ServerCall
    ) -> file_service_pb2.SaveCheckpointResponse:
        """Writes a checkpoint."""
        self._checked_folder()
        assert self._checkpoints is not None  # there is a folder
        checkpoint = call.run(self._checkpoints.save(call, request.names))
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
        if self._settings.hosts:
            raise CallError(
                Reason.FILES_UNAVAILABLE,
                "the mesh of this server has several hosts, whose arrays it does not save in files; copy arrays by "
                "client.get, and save them at the client",
            )
        if self._folder is None:
            raise CallError(
                Reason.FILES_UNAVAILABLE,
                "this server keeps no files of arrays; start it with --array-dir FOLDER, or copy arrays by client.get "
                "and save them at the client",
            )
        return self._folder


def _write_header(fd: int, header: bytes) -> None:
    try:
        os.pwrite(fd, header, 0)
    except OSError as error:
        raise file_error(error) from error


def _description(file: StoredFile) -> file_service_pb2.FileDescription:
    return file_service_pb2.FileDescription(
        name=file.name,
        size_bytes=file.nbytes,
        modified_seconds=file.modified_s,
        type=None if file.type is None else encode_array_type(file.type),
    )
