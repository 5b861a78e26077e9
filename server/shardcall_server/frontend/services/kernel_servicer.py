"""The service that runs kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from shardcall._src.wire.chunk_codec import Chunk
from shardcall.v1 import kernel_service_pb2
from shardcall_server.errors import CallError, Reason, did_you_mean, shorten
from shardcall_server.frontend.access.policy import check_scope
from shardcall_server.frontend.access.principals import Scope
from shardcall_server.frontend.dispatch.execution import Execution, Prepared
from shardcall_server.frontend.dispatch.idempotency import HashedChunks, IdempotencyTable
from shardcall_server.frontend.dispatch.operand_reader import OperandReader, check_operands, check_types, read_header
from shardcall_server.frontend.dispatch.results import Results, commit, reserved
from shardcall_server.frontend.dispatch.supervisor import MeshSupervisor
from shardcall_server.frontend.memory.call_buffers import BufferAllocator, CallBuffers, OperandSource
from shardcall_server.frontend.memory.resident_array_table import Reservation, ResidentArrayTable
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.settings import Settings

_TEXT_RESERVE_BYTES = 64 << 10


class KernelServicer:
    """`shardcall.v1.KernelService`; its methods take a `ServerCall` instead of gRPC's context."""

    def __init__(
        self,
        supervisor: MeshSupervisor,
        execution: Execution,
        buffer_allocator: BufferAllocator,
        array_table: ResidentArrayTable,
        idempotency: IdempotencyTable,
        settings: Settings,
    ) -> None:
        self._supervisor = supervisor
        self._execution = execution
        self._buffer_allocator = buffer_allocator
        self._array_table = array_table
        self._idempotency = idempotency
        self._settings = settings

    def ListKernels(  # noqa: N802  # the contract's name
        self, request: kernel_service_pb2.ListKernelsRequest, call: ServerCall
    ) -> kernel_service_pb2.ListKernelsResponse:
        """Lists the kernels."""
        return kernel_service_pb2.ListKernelsResponse(kernels=self._supervisor.last_mesh(call).ready.kernels)

    def DescribeKernel(  # noqa: N802
        self, request: kernel_service_pb2.DescribeKernelRequest, call: ServerCall
    ) -> kernel_service_pb2.DescribeKernelResponse:
        """Describes a kernel."""
        kernels = self._supervisor.last_mesh(call).kernels
        if request.kernel not in kernels:
            raise CallError(
                Reason.KERNEL_NOT_FOUND,
                f"there is no kernel {shorten(request.kernel)!r}; {did_you_mean(request.kernel, kernels)}",
                field="kernel",
            )
        return kernel_service_pb2.DescribeKernelResponse(kernel=kernels[request.kernel])

    def Plan(  # noqa: N802
        self, request: kernel_service_pb2.PlanRequest, call: ServerCall
    ) -> kernel_service_pb2.PlanResponse:
        """Returns the plan of a call without running it."""
        operands = check_types(request.operands, request.handles, self._array_table, call.principal_name)
        prepared = call.run(self._execution.prepare(call, request.call, operands))
        return kernel_service_pb2.PlanResponse(plan=prepared.plan, cache=prepared.entry.answer, timing=call.finish())

    def Compile(  # noqa: N802
        self, request: kernel_service_pb2.CompileRequest, call: ServerCall
    ) -> kernel_service_pb2.CompileResponse:
        """Compiles a call ahead of time."""
        operands = check_types(request.operands, request.handles, self._array_table, call.principal_name)
        prepared = call.run(self._execution.prepare(call, request.call, operands))
        text = ""
        if request.include_text:
            limit_bytes = self._settings.max_message_bytes - _TEXT_RESERVE_BYTES
            text = call.run(self._execution.compiled_text(call, prepared, limit_bytes))
        return kernel_service_pb2.CompileResponse(
            plan=prepared.plan,
            cache=prepared.entry.answer,
            timing=call.finish(),
            compiled_text=text,
        )

    def Execute(  # noqa: N802
        self, request: kernel_service_pb2.ExecuteRequest, call: ServerCall
    ) -> bytes:
        """Runs a kernel on arrays that are small or not sent in messages; returns a serialized response."""
        _check_keeps(request, call)
        if request.keep_results:
            return call.run(self._idempotency.once(call, request, lambda: self._execute(request, call)))
        return call.run(self._execute(request, call))

    async def _execute(self, request: kernel_service_pb2.ExecuteRequest, call: ServerCall) -> bytes:
        with call.phase("receive"):
            operands = check_operands(request.operands, self._array_table, call.principal_name, may_stream=False)
        self._refuse_large("operands", sum(operand.travelling_bytes for operand in operands))
        refuse, keeps = request.refuse_transfers, request.keep_results
        prepared = await self._execution.prepare(call, request.call, operands, refuse_transfers=refuse, keeps=keeps)
        plan = prepared.entry.plan
        await self._execution.admit(call, prepared)
        with self._buffers(call, request, prepared) as (results, kept):
            self._refuse_large("results", results.travelling_bytes)
            with call.phase("receive"):
                self._operand_reader(call, operands, results.buffers).take_inline(request.operands)
            running = await self._execution.start(call, prepared, results.buffers)
            sent = await commit(running, kept, plan) if kept else results.inline((await running.answer()).executed)
        answer = kernel_service_pb2.ExecuteResponse(results=sent, cache=prepared.entry.answer, timing=call.finish())
        return answer.SerializeToString() + prepared.plan_field

    def ExecuteStream(  # noqa: N802
        self, requests: Iterator[Chunk | kernel_service_pb2.ExecuteStreamRequest], call: ServerCall
    ) -> Iterator[kernel_service_pb2.ExecuteStreamResponse | bytes]:
        """Runs a kernel on arrays of any size."""
        header: kernel_service_pb2.ExecuteRequest = read_header(requests)
        _check_keeps(header, call)
        if header.keep_results:  # the response then contains no chunks
            chunks = HashedChunks(requests)

            async def execute() -> tuple[kernel_service_pb2.ExecuteStreamResponse | bytes, ...]:
                return tuple(self._execute_stream(header, chunks, call))

            yield from call.run(self._idempotency.once(call, header, execute, chunks))
        else:
            yield from self._execute_stream(header, requests, call)

    def _execute_stream(
        self,
        header: kernel_service_pb2.ExecuteRequest,
        requests: Iterator[Chunk | kernel_service_pb2.ExecuteStreamRequest],
        call: ServerCall,
    ) -> Iterator[kernel_service_pb2.ExecuteStreamResponse | bytes]:
        operands = check_operands(header.operands, self._array_table, call.principal_name, may_stream=True)
        refuse, keeps = header.refuse_transfers, header.keep_results
        prepared = call.run(self._execution.prepare(call, header.call, operands, refuse_transfers=refuse, keeps=keeps))
        call.run(self._execution.admit(call, prepared))
        with self._buffers(call, header, prepared) as (results, kept):
            operand_reader = self._operand_reader(call, operands, results.buffers)
            with call.phase("receive"):
                operand_reader.take_inline(header.operands)
                operand_reader.take_chunks(header.operands, requests)
            running = call.run(self._execution.start(call, prepared, results.buffers, report_gathered=True))
            # A failure of the kernel is then reported instead of the header.
            running.wait_for(1)
            sent = call.run(commit(running, kept, prepared.entry.plan)) if kept else results.announced()
            answer = kernel_service_pb2.ExecuteResponse(results=sent, plan=prepared.plan, cache=prepared.entry.answer)
            with call.phase("send"):
                yield kernel_service_pb2.ExecuteStreamResponse(header=answer)
                if not kept:
                    yield from results.chunks(
                        kernel_service_pb2.ExecuteStreamResponse, running, self._settings.max_chunk_bytes
                    )
            running.finish()
        yield kernel_service_pb2.ExecuteStreamResponse(timing=call.finish())

    def CallStream(  # noqa: N802
        self, requests: Iterator[bytes], call: ServerCall
    ) -> Iterator[kernel_service_pb2.ExecuteStreamResponse | bytes]:
        """Refuses call streams."""
        raise CallError(Reason.NOT_SUPPORTED, "this server accepts no call streams; use Execute")
        yield b""

    @contextmanager
    def _buffers(
        self, call: ServerCall, request: kernel_service_pb2.ExecuteRequest, prepared: Prepared
    ) -> Iterator[tuple[Results, list[Reservation]]]:
        """Allocates the buffers of a call, and reserves quota for kept results, during the body."""
        plan, types = prepared.entry.plan, prepared.entry.program.results
        space = request.result_space if request.HasField("result_space") else None
        with (
            reserved(self._array_table, request.lease_id, plan, call.principal_name, keep=request.keep_results) as kept,
            self._buffer_allocator.allocate(
                call, prepared.operands, types, space=space, kept=[item.array_id for item in kept]
            ) as buffers,
        ):
            yield Results(types, buffers), kept

    def _operand_reader(
        self, call: ServerCall, operands: Sequence[OperandSource], buffers: CallBuffers
    ) -> OperandReader:
        return OperandReader(operands, buffers, call, self._settings.max_chunk_bytes)

    def _refuse_large(self, what: str, nbytes: int) -> None:
        if nbytes > self._settings.max_inline_bytes:
            raise CallError(
                Reason.STREAM_REQUIRED,
                f"the {what} have {nbytes} bytes in total and a unary call may have {self._settings.max_inline_bytes}; "
                "use ExecuteStream for this call",
                field=what,
                metadata={"bytes": str(nbytes), "limit": str(self._settings.max_inline_bytes)},
            )


def _check_keeps(request: kernel_service_pb2.ExecuteRequest, call: ServerCall) -> None:
    """Refuses to keep results on the mesh for a caller without the scope for arrays."""
    if request.keep_results:
        check_scope(call.principal, Scope.ARRAYS, "keep_results")
