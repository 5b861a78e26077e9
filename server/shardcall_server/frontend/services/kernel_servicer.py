"""The service that runs kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial

import grpc

from shardcall.v1 import kernel_service_pb2
from shardcall_core.call_error import LISTING_OF_KERNELS, CallError, Reason, did_you_mean, shorten
from shardcall_core.wire.chunk_codec import Chunk
from shardcall_server.frontend.access.policy import check_scope
from shardcall_server.frontend.access.principals import Principal, Scope
from shardcall_server.frontend.dispatch.compiled_call import CallTemplate
from shardcall_server.frontend.dispatch.execution import Execution
from shardcall_server.frontend.dispatch.idempotency import HashedChunks, IdempotencyTable
from shardcall_server.frontend.dispatch.kernel_runner import KernelRequest, KernelRunner, check_computed
from shardcall_server.frontend.dispatch.operand_reader import check_operands, check_types, put_inline, read_header
from shardcall_server.frontend.dispatch.results import commit
from shardcall_server.frontend.dispatch.supervisor import MeshSupervisor
from shardcall_server.frontend.memory.call_buffers import OperandSource, count_bytes
from shardcall_server.frontend.memory.resident_array_table import ResidentArrayTable
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.rpc.unknown_fields import refuse_unknown_fields
from shardcall_server.frontend.services.call_streams import CallStreams
from shardcall_server.settings import Settings

_TEXT_RESERVE_BYTES = 64 << 10
_SMALL_RESULT_BYTES = 64 << 10


class KernelServicer:
    """`shardcall.v1.KernelService`; its methods take a `ServerCall` instead of gRPC's context."""

    def __init__(
        self,
        supervisor: MeshSupervisor,
        execution: Execution,
        runner: KernelRunner,
        array_table: ResidentArrayTable,
        idempotency: IdempotencyTable,
        call_streams: CallStreams,
        settings: Settings,
    ) -> None:
        self._supervisor = supervisor
        self._execution = execution
        self._runner = runner
        self._array_table = array_table
        self._idempotency = idempotency
        self._call_streams = call_streams
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
                f"there is no kernel {shorten(request.kernel)!r}; "
                f"{did_you_mean(request.kernel, kernels, LISTING_OF_KERNELS)}",
                field="kernel",
            )
        return kernel_service_pb2.DescribeKernelResponse(kernel=kernels[request.kernel])

    def Plan(  # noqa: N802
        self, request: kernel_service_pb2.PlanRequest, call: ServerCall
    ) -> kernel_service_pb2.PlanResponse:
        """Returns the plan of a call without running it."""
        operands = check_types(request.operands, request.handles, self._array_table, call.principal_name)
        compiled = call.run(self._execution.prepare(call, CallTemplate(request.call), operands))
        return kernel_service_pb2.PlanResponse(plan=compiled.plan, cache=compiled.answer, timing=call.finish())

    def Compile(  # noqa: N802
        self, request: kernel_service_pb2.CompileRequest, call: ServerCall
    ) -> kernel_service_pb2.CompileResponse:
        """Compiles a call ahead of time."""
        operands = check_types(request.operands, request.handles, self._array_table, call.principal_name)
        compiled = call.run(self._execution.prepare(call, CallTemplate(request.call), operands))
        text = ""
        if request.include_text:
            limit_bytes = self._settings.max_message_bytes - _TEXT_RESERVE_BYTES
            text = call.run(self._execution.compiled_text(call, compiled, operands, limit_bytes))
        return kernel_service_pb2.CompileResponse(
            plan=compiled.plan,
            cache=compiled.answer,
            timing=call.finish(),
            compiled_text=text,
        )

    def Execute(  # noqa: N802
        self, request: kernel_service_pb2.ExecuteRequest, call: ServerCall
    ) -> bytes:
        """Runs a kernel on arrays that are small or not sent in messages; returns a serialized response."""
        refuse_unknown_fields(request)

        async def execute() -> bytes:
            with call.phase("receive"):
                inline = _inline(request.operands)
                operands = check_operands(
                    request.operands, self._array_table, call.principal_name, may_stream=False, inline=inline
                )
            response, compiled = await self._runner.run(call, _request(request, operands), inline)
            if compiled.nbytes.results > _SMALL_RESULT_BYTES:  # to be copied once less
                response.MergeFromString(compiled.plan_field)
                return response.SerializeToString()
            return response.SerializeToString() + compiled.plan_field

        if not request.keep_results:
            return call.run(execute())
        check_scope(call.principal, Scope.ARRAYS, "keep_results")
        return call.run(self._idempotency.once(call, request, execute))

    def ExecuteStream(  # noqa: N802
        self, requests: Iterator[Chunk | kernel_service_pb2.ExecuteStreamRequest], call: ServerCall
    ) -> Iterator[kernel_service_pb2.ExecuteStreamResponse | bytes]:
        """Runs a kernel on arrays of any size."""
        header: kernel_service_pb2.ExecuteRequest = read_header(requests)
        if not header.keep_results:
            yield from self._execute_stream(header, requests, call)
            return
        check_scope(call.principal, Scope.ARRAYS, "keep_results")
        chunks = HashedChunks(requests)

        async def execute() -> tuple[kernel_service_pb2.ExecuteStreamResponse | bytes, ...]:
            return tuple(self._execute_stream(header, chunks, call))  # without chunks

        yield from call.run(self._idempotency.once(call, header, execute, chunks))

    def _execute_stream(
        self,
        header: kernel_service_pb2.ExecuteRequest,
        requests: Iterator[Chunk | kernel_service_pb2.ExecuteStreamRequest],
        call: ServerCall,
    ) -> Iterator[kernel_service_pb2.ExecuteStreamResponse | bytes]:
        operands = check_operands(header.operands, self._array_table, call.principal_name, may_stream=True)
        request = _request(header, operands)
        compiled = call.run(self._runner.prepare(call, request))
        with self._runner.buffers(call, request, compiled) as (results, kept):
            operand_reader = self._runner.operand_reader(call, operands, results.buffers)
            with call.phase("receive"):
                put_inline(call, results.buffers, _inline(header.operands))
                operand_reader.take_chunks(header.operands, requests)
            start = self._execution.start(call, compiled, operands, results.buffers, report_gathered=True)
            running, compiled = call.run(start)
            # A failure of the kernel is then reported instead of the header.
            with running.deleted_unless_done([item.array_id for item in kept]) if kept else nullcontext():
                running.wait_for(1)
                call.run(check_computed(call, operands))
            check = partial(check_computed, call, operands)
            untested = self._execution.untested(compiled.entry.program, operands)
            sent = call.run(commit(running, kept, compiled.entry, untested, check)) if kept else results.announced()
            answer = kernel_service_pb2.ExecuteResponse(results=sent, plan=compiled.plan, cache=compiled.answer)
            with call.phase("send"):
                yield kernel_service_pb2.ExecuteStreamResponse(header=answer)
                if not kept:
                    yield from results.chunks(
                        kernel_service_pb2.ExecuteStreamResponse, running, self._settings.max_chunk_bytes
                    )
            running.finish()
        yield kernel_service_pb2.ExecuteStreamResponse(timing=call.finish())

    def CallStream(  # noqa: N802
        self,
        requests: Iterator[bytes],
        context: grpc.ServicerContext,
        principal: Principal | None,
        tokens_version: int,
    ) -> Iterator[bytes]:
        """Runs the calls of a stream; unlike the other methods it takes gRPC's context."""
        return self._call_streams.serve(requests, context, principal, tokens_version)


def _request(request: kernel_service_pb2.ExecuteRequest, operands: Sequence[OperandSource]) -> KernelRequest:
    template = CallTemplate(
        request.call,
        keeps=request.keep_results,
        lease_id=request.lease_id,
        refuse_transfers=request.refuse_transfers,
    )
    space = request.result_space if request.HasField("result_space") else None
    return KernelRequest(template, operands, count_bytes(operands).operands, space=space)


def _inline(operands: Sequence[kernel_service_pb2.Operand]) -> list[bytes | None]:
    return [operand.inline.data if operand.WhichOneof("source") == "inline" else None for operand in operands]
