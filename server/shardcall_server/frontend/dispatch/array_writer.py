"""Puts arrays on the mesh, for unary calls and for the items of call streams."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import TypeAlias

from shardcall.v1 import array_service_pb2, call_stream_pb2, file_service_pb2, kernel_pb2, mesh_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_core.layouts.checks import check_put
from shardcall_core.layouts.layout import ArrayType, block_shape, padded_shape
from shardcall_core.types.sizes import exact
from shardcall_server.frontend.dispatch.execution import default_mesh
from shardcall_server.frontend.dispatch.mesh_queue import MeshQueue
from shardcall_server.frontend.dispatch.operand_reader import check_inline, put_inline
from shardcall_server.frontend.dispatch.running_command import RunningCommand
from shardcall_server.frontend.dispatch.supervisor import MeshSupervisor
from shardcall_server.frontend.memory.call_buffers import BufferAllocator, CallBuffers, FileOperand, OperandSource
from shardcall_server.frontend.memory.resident_array_table import Reservation, ResidentArray, ResidentArrayTable
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.rpc.unknown_fields import checked_copy
from shardcall_server.frontend.workers.session import SessionEndedError
from shardcall_server.link.wire import (
    check_counts,
    decode_array_type,
    decode_mesh,
    decode_spec,
    encode_array_type,
    encode_mesh,
    encode_spec,
)
from shardcall_server.settings import Settings
from shardcall_worker.v1 import link_pb2

_ARRAY = "operand 0"
_MAX_LAYOUT_BYTES = 16 << 10  # of the mesh and the spec, up to which plans are kept

PutMessage: TypeAlias = (
    array_service_pb2.PutArrayHeader | call_stream_pb2.PutStreamedArray | file_service_pb2.LoadArrayRequest
)
"""The message that names the mesh, the spec and the lease of a new array."""


class ArrayWriter:
    """Puts arrays on the mesh."""

    def __init__(
        self,
        supervisor: MeshSupervisor,
        buffer_allocator: BufferAllocator,
        array_table: ResidentArrayTable,
        queue: MeshQueue,
        settings: Settings,
    ) -> None:
        self._supervisor = supervisor
        self._buffer_allocator = buffer_allocator
        self._array_table = array_table
        self._queue = queue
        self._settings = settings

    async def put(
        self,
        call: ServerCall,
        message: PutMessage,
        source: OperandSource,
        receive: Callable[[CallBuffers], None],
        handle: bytes = b"",
    ) -> tuple[ResidentArray, kernel_pb2.Plan]:
        """Puts an array on the mesh.

        Args:
            message: names its mesh, which is filled in, its spec and its lease.
            source: its type, and the source of its bytes.
            receive: writes the bytes that come in messages to the buffers.
            handle: the handle that the client chose; empty for a new one.

        Returns:
            The array, and a plan of which it is the only operand and the only result.

        Raises:
            CallError: the array was not put.
        """
        assert source.type is not None
        # Wrapped in a KernelCall, the mesh and the spec are refused with the same messages as in a call.
        check_counts(checked_copy(kernel_pb2.KernelCall(mesh=message.mesh, in_specs=[message.spec])), 1)
        nbytes, limit = source.type.nbytes, self._settings.max_call_bytes
        if nbytes > limit and source.file is None:  # of a file, the host's memory has only pieces
            raise CallError(
                Reason.CALL_TOO_LARGE,
                f"the array has {exact(nbytes)} and one call may have {exact(limit)}; put it in smaller arrays, or "
                "start the server with a larger --max-call-bytes",
                field="array",
            )
        mesh = await self._supervisor.mesh(call)
        if not message.HasField("mesh"):
            message.mesh.CopyFrom(encode_mesh(default_mesh(self._settings, mesh.ready)))
        device_bytes = device_bytes_of(source.type, plan_of(source.type, message, len(mesh.ready.devices)))
        self._queue.check(device_bytes)
        with (
            self._array_table.reserve(message.lease_id, device_bytes, call.principal_name) as reservation,
            self._buffer_allocator.allocated(call, [source], []) as buffers,
        ):
            with call.phase("receive"):
                receive(buffers)
            return await self._send(call, message, source, reservation, buffers, handle)

    async def put_inline(
        self, call: ServerCall, message: call_stream_pb2.PutStreamedArray
    ) -> tuple[ResidentArray, kernel_pb2.Plan]:
        """Puts a small array, whose bytes are in the message; as `put`.

        Raises:
            CallError: STREAM_REQUIRED; or the array was not put.
        """
        _refuse_large("array has", "inline", len(message.inline), self._settings.max_inline_bytes)
        layout_bytes = message.mesh.ByteSize() + message.spec.ByteSize()
        _refuse_large("mesh and the spec have", "mesh", layout_bytes, _MAX_LAYOUT_BYTES)
        array_type = decode_array_type(message.type, _ARRAY)
        check_inline(array_type, message.inline, _ARRAY)
        receive = partial(put_inline, call, inline=[message.inline])
        return await self.put(call, message, OperandSource(array_type), receive, message.handle)

    async def _send(
        self,
        call: ServerCall,
        message: PutMessage,
        source: OperandSource,
        reservation: Reservation,
        buffers: CallBuffers,
        handle: bytes,
    ) -> tuple[ResidentArray, kernel_pb2.Plan]:
        """Sends the array to the mesh; if the mesh has ended before, to the next one."""
        array_type, again = source.type, False
        assert array_type is not None
        while True:
            mesh = await self._supervisor.mesh(call)
            command = link_pb2.PutArray(
                array_id=reservation.array_id,
                type=encode_array_type(array_type),
                mesh=message.mesh,
                spec=message.spec,
                data=buffers.operands[0],
            )
            plan = plan_of(array_type, message, len(mesh.ready.devices))
            grant = await self._queue.acquire(call, reservation.device_bytes, again=again)
            running = RunningCommand(call, buffers, grant, "putting the array on the mesh")
            try:
                running.send(mesh.session, _message(command, source.file), plan)
            except SessionEndedError:
                again = True
                continue
            with running.deleted_unless_done([reservation.array_id]):
                await running.answer()
                nbytes = device_bytes_of(array_type, plan)
                resident = reservation.commit(running.epoch, array_type, plan.mesh, plan.results[0], nbytes, handle)
                return resident, plan


def _message(command: link_pb2.PutArray, file: FileOperand | None) -> link_pb2.FrontEndMessage:
    """Returns the command that puts an array on the mesh, from a file if it is in one."""
    if file is None:
        return link_pb2.FrontEndMessage(put_array=command)
    load = link_pb2.LoadArray(
        array=command,
        memory_id=file.file.memory_id,
        offset=file.offset,
        is_column_major=file.is_column_major,
        is_big_endian=file.is_big_endian,
        zarr_metadata=file.zarr_metadata,
    )
    return link_pb2.FrontEndMessage(load_array=load)


def _refuse_large(what: str, field: str, nbytes: int, limit: int) -> None:
    if nbytes > limit:
        raise CallError(
            Reason.STREAM_REQUIRED,
            f"the {what} {exact(nbytes)} and an item of a call stream may have {exact(limit)}; use PutArray",
            field=field,
            metadata={"bytes": str(nbytes), "limit": str(limit)},
        )


def plan_of(array_type: ArrayType, message: PutMessage | link_pb2.PutArray, device_count: int) -> kernel_pb2.Plan:
    """Returns the placement of an array on a mesh of ``device_count`` devices.

    Raises:
        CallError: its mesh or its spec is invalid.
    """
    mesh, spec = message.mesh.SerializeToString(), message.spec.SerializeToString()
    make = _kept_plan if len(mesh) + len(spec) <= _MAX_LAYOUT_BYTES else _new_plan
    return make(array_type, mesh, spec, device_count)


def _new_plan(array_type: ArrayType, mesh: bytes, spec: bytes, device_count: int) -> kernel_pb2.Plan:
    requested = mesh_pb2.Mesh.FromString(mesh)
    axes = decode_mesh(requested)
    decoded = decode_spec(mesh_pb2.OptionalPartitionSpec.FromString(spec))
    device_ids, placed_spec = check_put(array_type, decoded, axes, requested.device_ids, range(device_count))
    placement = kernel_pb2.ArrayPlacement(
        type=encode_array_type(array_type),
        spec=encode_spec(placed_spec),
        padded_shape=padded_shape(array_type.shape, placed_spec, axes),
        block_shape=block_shape(array_type.shape, placed_spec, axes),
    )
    return kernel_pb2.Plan(mesh=encode_mesh(axes, device_ids), operands=[placement], results=[placement])


_kept_plan = lru_cache(maxsize=256)(_new_plan)  # a stream sends the plan of equal puts once


def device_bytes_of(array_type: ArrayType, plan: kernel_pb2.Plan) -> int:
    """Returns the bytes that an array takes on all devices."""
    return ArrayType(tuple(plan.results[0].block_shape), array_type.dtype).nbytes * len(plan.mesh.device_ids)
