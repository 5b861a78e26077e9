"""Copies resident arrays from the mesh, for unary calls and for the items of call streams."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from shardcall.v1 import kernel_pb2, kernel_service_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_core.types.sizes import exact
from shardcall_server.frontend.dispatch.kernel_runner import wait_computed
from shardcall_server.frontend.dispatch.mesh_queue import MeshQueue
from shardcall_server.frontend.dispatch.results import add_inline_results
from shardcall_server.frontend.dispatch.running_command import RunningCommand
from shardcall_server.frontend.dispatch.supervisor import MeshSupervisor, ReadyMesh
from shardcall_server.frontend.memory.call_buffers import BufferAllocator, CallBuffers
from shardcall_server.frontend.memory.open_file import OpenFile
from shardcall_server.frontend.memory.resident_array_table import ResidentArray, array_lost
from shardcall_server.frontend.programs.known_answers import KnownAnswerRunner
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.workers.session import SessionEndedError
from shardcall_server.settings import Settings
from shardcall_worker.v1 import link_pb2


class ArrayReader:
    """Copies resident arrays from the mesh."""

    def __init__(
        self,
        supervisor: MeshSupervisor,
        buffer_allocator: BufferAllocator,
        queue: MeshQueue,
        known_answers: KnownAnswerRunner,
        settings: Settings,
    ) -> None:
        self._supervisor = supervisor
        self._buffer_allocator = buffer_allocator
        self._known_answers = known_answers
        self._queue = queue
        self._max_inline_bytes = settings.max_inline_bytes

    async def mesh_of(self, call: ServerCall, resident: ResidentArray) -> ReadyMesh:
        """Returns the mesh that holds an array.

        Raises:
            CallError: ARRAY_LOST, or as `MeshSupervisor.mesh`.
        """
        mesh = await self._supervisor.mesh(call)
        if resident.epoch != mesh.session.epoch:
            raise array_lost(resident.handle)
        return mesh

    async def start(
        self,
        call: ServerCall,
        resident: ResidentArray,
        mesh: ReadyMesh,
        buffers: CallBuffers,
        *,
        report_gathered: bool = False,
    ) -> RunningCommand:
        """Sends the command that copies an array.

        Args:
            mesh: the mesh that holds it.
            buffers: its destination.
            report_gathered: whether the worker reports the progress.

        Raises:
            CallError: ARRAY_LOST, KERNEL_FAILED_KNOWN_ANSWERS; the deadline passed or the caller left.
        """
        self._known_answers.check_array(resident, "handle")
        if buffers.region is not None:
            buffers.region.reserve(buffers.region_bytes, lambda: call.check("allocating memory for the array"))
        command = link_pb2.GetArray(
            array_id=resident.array_id, result=buffers.results[0], report_gathered=report_gathered
        )
        running = RunningCommand(call, buffers, await self._queue.acquire(call), "copying the array from the mesh")
        plan = kernel_pb2.Plan(mesh=resident.mesh, results=[resident.placement])
        try:
            running.send(mesh.session, link_pb2.FrontEndMessage(get_array=command), plan)
        except SessionEndedError:
            raise array_lost(resident.handle) from None
        return running

    async def save(
        self, call: ServerCall, resident: ResidentArray, file: OpenFile, offset: int, zarr_metadata: str
    ) -> None:
        """Has the worker write an array to a file on disk, or to a directory in the Zarr format.

        The command waits for no launch, since the disk is slower than the devices, and has no time limit of programs.

        Args:
            offset: the offset of its first element in the file, in bytes.
            zarr_metadata: the metadata of a Zarr array, as JSON; empty for a file.

        Raises:
            CallError: ARRAY_LOST, KERNEL_FAILED_KNOWN_ANSWERS, FILE_LIMIT, FILES_UNAVAILABLE; the deadline passed or
                the caller left.
        """
        self._known_answers.check_array(resident, "handle")
        mesh = await self.mesh_of(call, resident)
        if resident.computed is not None:
            await wait_computed(call, resident.computed, resident.handle, "handle")
        command = link_pb2.SaveArray(
            array_id=resident.array_id, memory_id=file.memory_id, offset=offset, zarr_metadata=zarr_metadata
        )
        buffers = CallBuffers()
        buffers.memory.append(file)
        running = RunningCommand(call, buffers, doing="saving the array")
        try:
            running.send(mesh.session, link_pb2.FrontEndMessage(save_array=command))
        except SessionEndedError:
            raise array_lost(resident.handle) from None
        await running.answer()

    async def read(
        self,
        call: ServerCall,
        resident: ResidentArray,
        launched: Callable[[], None],
        reserve: Callable[[int], Awaitable[None]],
    ) -> kernel_service_pb2.ExecuteResponse:
        """Returns a small array in a message.

        The command is sent before the array is computed, in order with the launch that computes it.

        Args:
            launched: called when the mesh has been sent the command.
            reserve: awaited with the number of bytes, before memory is allocated.

        Raises:
            CallError: STREAM_REQUIRED; ARRAY_LOST; that of the call that should have computed the array.
        """
        nbytes, limit = resident.type.nbytes, self._max_inline_bytes
        if nbytes > limit:
            raise CallError(
                Reason.STREAM_REQUIRED,
                f"the array has {exact(nbytes)} and an item of a call stream may have {exact(limit)}; use GetArray",
                field="handle",
                metadata={"bytes": str(nbytes), "limit": str(limit)},
            )
        mesh = await self.mesh_of(call, resident)
        await reserve(nbytes)
        response = kernel_service_pb2.ExecuteResponse()
        with self._buffer_allocator.allocated(call, [], [resident.type]) as buffers:
            running = await self.start(call, resident, mesh, buffers)
            launched()
            try:
                executed = (await running.answer()).executed
            finally:
                if resident.computed is not None:  # that it was not computed explains more
                    await wait_computed(call, resident.computed, resident.handle, "handle")
            add_inline_results(response, [resident.placement], [resident.type], buffers, executed)
        call.read_handle = resident.handle
        response.timing.CopyFrom(call.finish())
        return response
