"""The service for resident arrays."""

from __future__ import annotations

from collections.abc import Iterator

from shardcall.v1 import array_service_pb2, kernel_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_core.layouts.checks import check_put
from shardcall_core.layouts.layout import ArrayType, block_shape, padded_shape
from shardcall_core.types.sizes import exact
from shardcall_core.wire.chunk_codec import Chunk
from shardcall_server.frontend.dispatch.array_reader import ArrayReader
from shardcall_server.frontend.dispatch.execution import default_mesh
from shardcall_server.frontend.dispatch.idempotency import HashedChunks, IdempotencyTable
from shardcall_server.frontend.dispatch.kernel_runner import wait_computed
from shardcall_server.frontend.dispatch.mesh_queue import MeshQueue
from shardcall_server.frontend.dispatch.operand_reader import OperandReader, check_operand, put_inline, read_header
from shardcall_server.frontend.dispatch.results import Results
from shardcall_server.frontend.dispatch.running_command import RunningCommand
from shardcall_server.frontend.dispatch.supervisor import MeshSupervisor
from shardcall_server.frontend.memory.call_buffers import BufferAllocator, CallBuffers, OperandSource
from shardcall_server.frontend.memory.resident_array_table import Reservation, ResidentArray, ResidentArrayTable
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.workers.session import SessionEndedError
from shardcall_server.link.wire import (
    check_counts,
    decode_mesh,
    decode_spec,
    encode_array_type,
    encode_mesh,
    encode_spec,
)
from shardcall_server.settings import Settings
from shardcall_worker.v1 import link_pb2


class ArrayServicer:
    """`shardcall.v1.ArrayService`; its methods take a `ServerCall` instead of gRPC's context."""

    def __init__(
        self,
        supervisor: MeshSupervisor,
        buffer_allocator: BufferAllocator,
        array_table: ResidentArrayTable,
        reader: ArrayReader,
        queue: MeshQueue,
        idempotency: IdempotencyTable,
        settings: Settings,
    ) -> None:
        self._supervisor = supervisor
        self._idempotency = idempotency
        self._reader = reader
        self._queue = queue
        self._buffer_allocator = buffer_allocator
        self._array_table = array_table
        self._settings = settings

    def PutArray(  # noqa: N802  # the contract's name
        self, requests: Iterator[Chunk | array_service_pb2.PutArrayRequest], call: ServerCall
    ) -> array_service_pb2.PutArrayResponse:
        """Puts an array on the mesh."""
        header: array_service_pb2.PutArrayHeader = read_header(requests)
        chunks = HashedChunks(requests)
        return call.run(self._idempotency.once(call, header, lambda: self._put_array(header, chunks, call), chunks))

    async def _put_array(
        self,
        header: array_service_pb2.PutArrayHeader,
        requests: Iterator[Chunk | array_service_pb2.PutArrayRequest],
        call: ServerCall,
    ) -> array_service_pb2.PutArrayResponse:
        source = self._check_put(header, call.principal_name)
        mesh = await self._supervisor.mesh(call)
        if not header.HasField("mesh"):
            header.mesh.CopyFrom(encode_mesh(default_mesh(self._settings, mesh.ready)))
        assert source.type is not None
        device_bytes = _device_bytes(source.type, _plan(source.type, header, len(mesh.ready.devices)))
        self._queue.check(device_bytes)
        with (
            self._array_table.reserve(header.lease_id, device_bytes, call.principal_name) as reservation,
            self._buffer_allocator.allocated(call, [source], []) as buffers,
        ):
            operand_reader = OperandReader([source], buffers, call, self._settings.max_chunk_bytes)
            with call.phase("receive"):
                if header.array.WhichOneof("source") == "inline":
                    put_inline(call, buffers, [header.array.inline.data])
                operand_reader.take_chunks([header.array], requests)
            resident = await self._put(call, header, reservation, buffers)
        return array_service_pb2.PutArrayResponse(array=resident.describe(), timing=call.finish())

    def GetArray(  # noqa: N802
        self, request: array_service_pb2.GetArrayRequest, call: ServerCall
    ) -> Iterator[array_service_pb2.GetArrayResponse | bytes]:
        """Copies an array from the mesh."""
        resident = self._array_table.find(request.handle, call.principal_name)
        mesh = call.run(self._reader.mesh_of(call, resident))
        if resident.computed is not None:
            call.run(wait_computed(call, resident.computed, resident.handle, "handle"))
        space = request.result_space if request.HasField("result_space") else None
        with self._buffer_allocator.allocated(call, [], [resident.type], space=space) as buffers:
            running = call.run(self._reader.start(call, resident, mesh, buffers, report_gathered=True))
            running.wait_for(1)
            results = Results([resident.type], buffers)
            with call.phase("send"):
                header = array_service_pb2.GetArrayHeader(array=results.announced()[0])
                yield array_service_pb2.GetArrayResponse(header=header)
                chunk_bytes = self._settings.max_chunk_bytes
                yield from results.chunks(array_service_pb2.GetArrayResponse, running, chunk_bytes)
            running.finish()
        yield array_service_pb2.GetArrayResponse(timing=call.finish())

    def DescribeArray(  # noqa: N802
        self, request: array_service_pb2.DescribeArrayRequest, call: ServerCall
    ) -> array_service_pb2.DescribeArrayResponse:
        """Describes an array."""
        resident = self._array_table.find(request.handle, call.principal_name)
        return array_service_pb2.DescribeArrayResponse(array=resident.describe())

    def ListArrays(  # noqa: N802
        self, request: array_service_pb2.ListArraysRequest, call: ServerCall
    ) -> array_service_pb2.ListArraysResponse:
        """Describes all arrays of a lease, or of the principal."""
        owner = call.principal_name
        if owner and not request.lease_id:
            there = self._array_table.of_owner(owner)
        else:  # without authentication, handles protect the arrays of one client from others
            there = self._array_table.of_lease(request.lease_id, owner)
        arrays = [resident.describe() for resident in there]
        response = array_service_pb2.ListArraysResponse(arrays=arrays)
        nbytes, limit = response.ByteSize(), self._settings.max_message_bytes
        if nbytes > limit:
            raise CallError(
                Reason.CALL_TOO_LARGE,
                f"the descriptions of the {len(arrays)} arrays have {exact(nbytes)}, and a message at "
                f"most {exact(limit)}; describe one array at a time, delete some, use shorter names of mesh axes, or "
                "start the server with a larger --max-message-bytes",
                field="lease_id",
            )
        return response

    def DeleteArrays(  # noqa: N802
        self, request: array_service_pb2.DeleteArraysRequest, call: ServerCall
    ) -> array_service_pb2.DeleteArraysResponse:
        """Deletes arrays."""

        async def delete() -> array_service_pb2.DeleteArraysResponse:
            deleted = self._array_table.delete(request.handles, call.principal_name)
            return array_service_pb2.DeleteArraysResponse(deleted_count=len(deleted))

        return call.run(self._idempotency.once(call, request, delete))

    def RenewLease(  # noqa: N802
        self, request: array_service_pb2.RenewLeaseRequest, call: ServerCall
    ) -> array_service_pb2.RenewLeaseResponse:
        """Renews a lease."""
        max_s = self._settings.max_lease_s
        if not 0 <= request.min_seconds <= max_s:
            raise CallError(
                Reason.MALFORMED_REQUEST,
                f"the arrays are to be kept for {request.min_seconds:g} s without a client, and the server allows 0 to "
                f"{max_s:g} (--max-lease-s)",
                field="min_seconds",
                metadata={"seconds": f"{request.min_seconds:g}", "allowed": f"{max_s:g}"},
            )
        return array_service_pb2.RenewLeaseResponse(
            holds_arrays=self._array_table.renew(request.lease_id, call.principal_name, request.min_seconds)
        )

    def _check_put(self, header: array_service_pb2.PutArrayHeader, owner: str) -> OperandSource:
        # Wrapped in a KernelCall, the mesh and the spec are refused with the same messages as in a call.
        check_counts(kernel_pb2.KernelCall(mesh=header.mesh, in_specs=[header.spec]), 1)
        if header.array.WhichOneof("source") == "resident":
            raise CallError(Reason.MALFORMED_REQUEST, "the array is on the mesh already; use its handle", field="array")
        source = check_operand(header.array, "operand 0", self._array_table, owner, may_stream=True)
        if source.type is None:
            raise CallError(Reason.MALFORMED_REQUEST, "the array has no type; set its type and data", field="array")
        if source.type.nbytes > self._settings.max_call_bytes:
            raise CallError(
                Reason.CALL_TOO_LARGE,
                f"the array has {exact(source.type.nbytes)} and one call may have "
                f"{exact(self._settings.max_call_bytes)}; put "
                "it in smaller arrays, or start the server with a larger --max-call-bytes",
                field="array",
            )
        return source

    async def _put(
        self, call: ServerCall, header: array_service_pb2.PutArrayHeader, reservation: Reservation, buffers: CallBuffers
    ) -> ResidentArray:
        """Sends the array to the mesh; if the mesh has ended before, to the next one."""
        array_type = check_operand(
            header.array, "operand 0", self._array_table, call.principal_name, may_stream=True
        ).type
        assert array_type is not None
        again = False
        while True:
            mesh = await self._supervisor.mesh(call)
            command = link_pb2.PutArray(
                array_id=reservation.array_id,
                type=encode_array_type(array_type),
                mesh=header.mesh,
                spec=header.spec,
                data=buffers.operands[0],
            )
            plan = _plan(array_type, header, len(mesh.ready.devices))
            grant = await self._queue.acquire(call, reservation.device_bytes, again=again)
            running = RunningCommand(call, buffers, grant)
            try:
                running.send(mesh.session, link_pb2.FrontEndMessage(put_array=command), plan)
            except SessionEndedError:
                again = True
                continue
            with running.deleted_unless_done([reservation.array_id]):
                put = (await running.answer()).array_put
                nbytes = ArrayType(tuple(put.placement.block_shape), array_type.dtype).nbytes * len(put.mesh.device_ids)
                return reservation.commit(running.epoch, array_type, put.mesh, put.placement, nbytes)


def _plan(array_type: ArrayType, header: array_service_pb2.PutArrayHeader, device_count: int) -> kernel_pb2.Plan:
    """Returns the placement of an array on a mesh of ``device_count`` devices.

    Raises:
        CallError: its mesh or its spec is invalid.
    """
    axes = decode_mesh(header.mesh)
    valid_ids = range(device_count)
    device_ids, spec = check_put(array_type, decode_spec(header.spec), axes, header.mesh.device_ids, valid_ids)
    placement = kernel_pb2.ArrayPlacement(
        type=encode_array_type(array_type),
        spec=encode_spec(spec),
        padded_shape=padded_shape(array_type.shape, spec, axes),
        block_shape=block_shape(array_type.shape, spec, axes),
    )
    return kernel_pb2.Plan(mesh=encode_mesh(axes, device_ids), operands=[placement])


def _device_bytes(array_type: ArrayType, plan: kernel_pb2.Plan) -> int:
    """Returns the bytes that an array takes on all devices."""
    return ArrayType(tuple(plan.operands[0].block_shape), array_type.dtype).nbytes * len(plan.mesh.device_ids)
