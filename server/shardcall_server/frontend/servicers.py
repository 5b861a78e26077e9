"""The services: what a method does, in terms of an execution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardcall.v1 import (
    array_pb2,
    kernel_service_pb2,
    server_info_service_pb2,
)
from shardcall_server.errors import CallError, Reason, did_you_mean, shorten
from shardcall_server.frontend.call import Call
from shardcall_server.frontend.execution import Execution, Storage, default_mesh, read_results
from shardcall_server.frontend.intake import Intake, check_operands
from shardcall_server.frontend.programs import Found
from shardcall_server.frontend.supervisor import MeshSupervisor
from shardcall_server.kernels.layout import ArrayType
from shardcall_server.settings import Settings
from shardcall_server.wire import MAX_RANK, check_counts, decode_operand_types, encode_array_type, encode_mesh

_TEXT_RESERVE_BYTES = 64 << 10


class KernelServicer:
    """`shardcall.v1.KernelService`; methods take a `Call` where gRPC's own take a context.

    Args:
        supervisor: keeps the mesh.
        execution: finds and runs programs.
        settings: the server's.
    """

    def __init__(self, supervisor: MeshSupervisor, execution: Execution, settings: Settings) -> None:
        self._supervisor = supervisor
        self._execution = execution
        self._settings = settings

    def ListKernels(  # noqa: N802  # the contract's name
        self, request: kernel_service_pb2.ListKernelsRequest, call: Call
    ) -> kernel_service_pb2.ListKernelsResponse:
        """Tells which kernels there are."""
        return kernel_service_pb2.ListKernelsResponse(kernels=self._supervisor.mesh(call).ready.kernels)

    def DescribeKernel(  # noqa: N802
        self, request: kernel_service_pb2.DescribeKernelRequest, call: Call
    ) -> kernel_service_pb2.DescribeKernelResponse:
        """Tells all about one kernel."""
        kernels = self._supervisor.mesh(call).kernels
        if request.kernel not in kernels:
            raise CallError(
                Reason.KERNEL_NOT_FOUND,
                f"there is no kernel {shorten(request.kernel)!r}; {did_you_mean(request.kernel, kernels)}",
                field="kernel",
            )
        return kernel_service_pb2.DescribeKernelResponse(kernel=kernels[request.kernel])

    def Plan(  # noqa: N802
        self, request: kernel_service_pb2.PlanRequest, call: Call
    ) -> kernel_service_pb2.PlanResponse:
        """Tells what a call would do."""
        check_counts(request.call, len(request.operands))
        prepared = self._execution.prepare(call, request.call, decode_operand_types(request.operands))
        found = prepared.found
        return kernel_service_pb2.PlanResponse(plan=found.plan, cache=found.answer, timing=call.finish())

    def Compile(  # noqa: N802
        self, request: kernel_service_pb2.CompileRequest, call: Call
    ) -> kernel_service_pb2.CompileResponse:
        """Compiles a call ahead of time."""
        check_counts(request.call, len(request.operands))
        operands = decode_operand_types(request.operands)
        prepared = self._execution.prepare(call, request.call, operands)
        text = ""
        if request.include_text:
            limit_bytes = self._settings.max_message_bytes - _TEXT_RESERVE_BYTES
            text = self._execution.compiled_text(call, prepared, limit_bytes)
        return kernel_service_pb2.CompileResponse(
            plan=prepared.found.plan,
            cache=prepared.found.answer,
            timing=call.finish(),
            compiled_text=text,
        )

    def Execute(  # noqa: N802
        self, request: kernel_service_pb2.ExecuteRequest, call: Call
    ) -> kernel_service_pb2.ExecuteResponse:
        """Runs a kernel on small arrays."""
        _refuse_kept(request)
        check_counts(request.call, len(request.operands))
        with call.phase("receive"):
            operands = check_operands(request.operands, may_stream=False)
        self._refuse_large("operands", sum(operand.nbytes for operand in operands if operand))
        prepared = self._execution.prepare(call, request.call, operands)
        program = prepared.found.program
        self._refuse_large("results", program.result_bytes)
        with self._execution.allocate(prepared) as storage:
            intake = self._intake(call, operands, storage)
            with call.phase("receive"):
                intake.take_inline(request.operands)
            executed = self._execution.run(call, prepared, storage, intake.data)
            results = [
                kernel_service_pb2.Result(
                    type=encode_array_type(result),
                    inline=kernel_service_pb2.InlineTensor(data=data.tobytes()),
                )
                for result, data in zip(program.results, read_results(program, storage, executed), strict=True)
            ]
        return kernel_service_pb2.ExecuteResponse(
            results=results, plan=prepared.found.plan, cache=prepared.found.answer, timing=call.finish()
        )

    def ExecuteStream(  # noqa: N802
        self, requests: Iterator[kernel_service_pb2.ExecuteStreamRequest], call: Call
    ) -> Iterator[kernel_service_pb2.ExecuteStreamResponse]:
        """Runs a kernel on arrays of any size."""
        first = next(requests, None)
        if first is None or first.WhichOneof("message") != "header":
            raise CallError(
                Reason.MALFORMED_REQUEST, "a stream begins with its header; send that first", field="header"
            )
        header = first.header
        _refuse_kept(header)
        check_counts(header.call, len(header.operands))
        operands = check_operands(header.operands, may_stream=True)
        prepared = self._execution.prepare(call, header.call, operands)
        with self._execution.allocate(prepared) as storage:
            intake = self._intake(call, operands, storage)
            with call.phase("receive"):
                intake.take_inline(header.operands)
                intake.take_chunks(header.operands, requests)
            executed = self._execution.run(call, prepared, storage, intake.data)
            program = prepared.found.program
            with call.phase("send"):
                yield _stream_header(prepared.found)
                for index, data in enumerate(read_results(program, storage, executed)):
                    for offset in range(0, data.size, self._settings.max_chunk_bytes):
                        piece = data[offset : offset + self._settings.max_chunk_bytes].tobytes()
                        chunk = array_pb2.TensorChunk(index=index, offset=offset, data=piece)
                        yield kernel_service_pb2.ExecuteStreamResponse(chunk=chunk)
        yield kernel_service_pb2.ExecuteStreamResponse(timing=call.finish())

    def _intake(self, call: Call, operands: Sequence[ArrayType | None], storage: Storage) -> Intake:
        return Intake(operands, storage.operand_offsets, storage.region, call, self._settings.max_chunk_bytes)

    def _refuse_large(self, what: str, nbytes: int) -> None:
        if nbytes > self._settings.max_inline_bytes:
            raise CallError(
                Reason.STREAM_REQUIRED,
                f"the {what} are {nbytes} bytes together and a unary call takes {self._settings.max_inline_bytes}; "
                "send the same call by ExecuteStream",
                field=what,
                metadata={"bytes": str(nbytes), "limit": str(self._settings.max_inline_bytes)},
            )


class ServerInfoServicer:
    """`shardcall.v1.ServerInfoService`.

    Args:
        supervisor: keeps the mesh.
        settings: the server's.
    """

    def __init__(self, supervisor: MeshSupervisor, settings: Settings) -> None:
        self._supervisor = supervisor
        self._settings = settings

    def GetServerInfo(  # noqa: N802
        self, request: server_info_service_pb2.GetServerInfoRequest, call: Call
    ) -> server_info_service_pb2.GetServerInfoResponse:
        """Tells the devices, limits and versions."""
        mesh = self._supervisor.mesh(call)
        settings = self._settings
        return server_info_service_pb2.GetServerInfoResponse(
            devices=mesh.ready.devices,
            platform=mesh.ready.platform,
            default_mesh=encode_mesh(default_mesh(settings, mesh.ready)),
            limits=server_info_service_pb2.Limits(
                max_message_bytes=settings.max_message_bytes,
                max_inline_bytes=settings.max_inline_bytes,
                max_chunk_bytes=settings.max_chunk_bytes,
                max_call_bytes=settings.max_call_bytes,
                max_call_seconds=settings.max_call_s,
                max_rank=MAX_RANK,
                max_concurrent_calls=settings.max_concurrent_calls,
                max_cached_programs=settings.max_cached_programs,
            ),
            versions=mesh.ready.versions,
            epoch=mesh.session.epoch,
        )


def _refuse_kept(request: kernel_service_pb2.ExecuteRequest) -> None:
    if request.keep_results:
        raise CallError(
            Reason.NOT_SUPPORTED,
            "this server does not keep results on the mesh yet; leave keep_results unset",
            field="keep_results",
        )


def _stream_header(found: Found) -> kernel_service_pb2.ExecuteStreamResponse:
    results = [
        kernel_service_pb2.Result(type=result.type, streamed=kernel_service_pb2.StreamedTensor())
        for result in found.plan.results
    ]
    header = kernel_service_pb2.ExecuteResponse(results=results, plan=found.plan, cache=found.answer)
    return kernel_service_pb2.ExecuteStreamResponse(header=header)
