"""The service for resident arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator

from shardcall.v1 import array_service_pb2
from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.types.sizes import exact
from shardcall_core.wire.chunk_codec import Chunk
from shardcall_server.frontend.dispatch.array_reader import ArrayReader
from shardcall_server.frontend.dispatch.array_writer import ArrayWriter
from shardcall_server.frontend.dispatch.idempotency import HashedChunks, IdempotencyTable, once
from shardcall_server.frontend.dispatch.kernel_runner import wait_computed
from shardcall_server.frontend.dispatch.operand_reader import OperandReader, check_operand, put_inline, read_header
from shardcall_server.frontend.dispatch.results import Results
from shardcall_server.frontend.dispatch.supervisor import MeshSupervisor
from shardcall_server.frontend.memory.call_buffers import BufferAllocator, CallBuffers, OperandSource
from shardcall_server.frontend.memory.resident_array_table import ResidentArrayTable
from shardcall_server.frontend.rpc.admission import Slots
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.settings import Settings


class ArrayServicer:
    """`shardcall.v1.ArrayService`; its methods take a `ServerCall` instead of gRPC's context.

    Args:
        supervisor: knows the mesh, with which arrays that have checkpoints return after a restart.
        slots: the call slots, which calls without one take while they wait for the mesh.
    """

    def __init__(
        self,
        buffer_allocator: BufferAllocator,
        array_table: ResidentArrayTable,
        reader: ArrayReader,
        writer: ArrayWriter,
        idempotency: IdempotencyTable,
        supervisor: MeshSupervisor,
        slots: Slots,
        settings: Settings,
    ) -> None:
        self._supervisor = supervisor
        self._slots = slots
        self._idempotency = idempotency
        self._reader = reader
        self._writer = writer
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

        def receive(buffers: CallBuffers) -> None:
            if header.array.WhichOneof("source") == "inline":
                put_inline(call, buffers, [header.array.inline.data])
            OperandReader([source], buffers, call, self._settings.max_chunk_bytes).take_chunks([header.array], requests)

        resident, _ = await self._writer.put(call, header, source, receive)
        return array_service_pb2.PutArrayResponse(array=self._array_table.describe(resident), timing=call.finish())

    def GetArray(  # noqa: N802
        self, request: array_service_pb2.GetArrayRequest, call: ServerCall
    ) -> Iterator[array_service_pb2.GetArrayResponse | bytes]:
        """Copies an array from the mesh."""
        if request.handle and request.name:
            raise CallError(
                Reason.MALFORMED_REQUEST,
                f"the request has a handle and the name {shorten(request.name)!r}; send one of them",
                field="name",
            )
        if request.name:
            mesh = call.run(self._supervisor.mesh(call))
            resident = self._array_table.open(request.name, call.principal_name, request.seen)
        else:
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
                version = resident.describe().version if request.name else None
                header = array_service_pb2.GetArrayHeader(array=results.announced()[0], version=version)
                yield array_service_pb2.GetArrayResponse(header=header)
                chunk_bytes = self._settings.max_chunk_bytes
                yield from results.chunks(array_service_pb2.GetArrayResponse, running, chunk_bytes)
            running.finish()
        call.read_handle = resident.handle
        yield array_service_pb2.GetArrayResponse(timing=call.finish())

    def DescribeArray(  # noqa: N802
        self, request: array_service_pb2.DescribeArrayRequest, call: ServerCall
    ) -> array_service_pb2.DescribeArrayResponse:
        """Describes an array."""
        resident = self._array_table.find(request.handle, call.principal_name)
        return array_service_pb2.DescribeArrayResponse(array=self._array_table.describe(resident))

    def ListArrays(  # noqa: N802
        self, request: array_service_pb2.ListArraysRequest, call: ServerCall
    ) -> array_service_pb2.ListArraysResponse:
        """Describes all arrays of a lease, or of the principal."""
        self._wait_mesh(call)
        owner = call.principal_name
        if owner and not request.lease_id:
            there = self._array_table.of_owner(owner)
        else:  # without authentication, handles protect the arrays of one client from others
            there = self._array_table.of_lease(request.lease_id, owner)
            if request.with_named:
                there = sorted([*there, *self._array_table.of_names(owner)], key=lambda resident: resident.array_id)
        arrays = [self._array_table.describe(resident) for resident in there]
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

    @once
    def DeleteArrays(  # noqa: N802
        self, request: array_service_pb2.DeleteArraysRequest, call: ServerCall
    ) -> array_service_pb2.DeleteArraysResponse:
        """Deletes arrays."""
        deleted = self._array_table.delete(request.handles, call.principal_name, with_named=request.with_named)
        return array_service_pb2.DeleteArraysResponse(deleted_count=len(deleted))

    @once
    def NameArray(  # noqa: N802
        self, request: array_service_pb2.NameArrayRequest, call: ServerCall
    ) -> array_service_pb2.NameArrayResponse:
        """Gives an array a name."""
        keep_s = request.keep_seconds
        if not 0 <= keep_s < math.inf:
            raise CallError(
                Reason.INVALID_PARAMETER,
                f"keep_seconds is {keep_s:g}; give the seconds after which the array ends, or 0 for no end",
                field="keep_seconds",
                metadata={"seconds": f"{keep_s:g}", "allowed": "0 or more, finite"},
            )
        if request.HasField("seen"):
            self._array_table.open(request.name, call.principal_name, request.seen)
        if request.expected_handle or request.replace:
            self._wait_computed(request.handle, call)
        resident = self._array_table.name(
            request.handle,
            request.name,
            call.principal_name,
            replaces=request.replace,
            expected=request.expected_handle,
            keep_s=keep_s,
            lease_id=request.lease_id,
        )
        return array_service_pb2.NameArrayResponse(array=self._array_table.describe(resident))

    def OpenArray(  # noqa: N802
        self, request: array_service_pb2.OpenArrayRequest, call: ServerCall
    ) -> array_service_pb2.OpenArrayResponse:
        """Describes the array that a name stands for."""
        self._wait_mesh(call)
        resident = self._array_table.open(request.name, call.principal_name, request.seen)
        return array_service_pb2.OpenArrayResponse(array=self._array_table.describe(resident))

    def _wait_mesh(self, call: ServerCall) -> None:
        """Waits while the mesh restarts, in a call slot, so that no client takes all threads."""
        if not self._supervisor.answers:
            self._slots.acquire(call)
            try:
                call.run(self._supervisor.mesh(call))
            finally:
                self._slots.release(call)

    def _wait_computed(self, handle: bytes, call: ServerCall) -> None:
        """Waits for the values of an array, since one that could not be computed may replace no other."""
        try:
            resident = self._array_table.find(handle, call.principal_name)
        except CallError:  # `name` says more
            return
        if resident.computed is not None:
            call.run(wait_computed(call, resident.computed, resident.handle, "handle"))

    @once
    def ShareArray(  # noqa: N802
        self, request: array_service_pb2.ShareArrayRequest, call: ServerCall
    ) -> array_service_pb2.ShareArrayResponse:
        """Shares a name with another principal."""
        self._wait_mesh(call)
        resident = self._array_table.share(
            request.name, call.principal_name, request.principal, may_write=request.may_write
        )
        return array_service_pb2.ShareArrayResponse(array=self._array_table.describe(resident))

    @once
    def UnshareArray(  # noqa: N802
        self, request: array_service_pb2.UnshareArrayRequest, call: ServerCall
    ) -> array_service_pb2.UnshareArrayResponse:
        """Shares a name no longer, with one principal or with all."""
        self._wait_mesh(call)
        resident = self._array_table.unshare(request.name, call.principal_name, request.principal)
        return array_service_pb2.UnshareArrayResponse(array=self._array_table.describe(resident))

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
        if header.array.WhichOneof("source") == "resident":
            raise CallError(Reason.MALFORMED_REQUEST, "the array is on the mesh already; use its handle", field="array")
        source = check_operand(header.array, "operand 0", self._array_table, owner, may_stream=True)
        if source.type is None:
            raise CallError(Reason.MALFORMED_REQUEST, "the array has no type; set its type and data", field="array")
        return source
