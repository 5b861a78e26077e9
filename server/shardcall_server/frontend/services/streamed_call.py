"""Calls of a call stream: their slots, their operands and their execution."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shardcall.v1 import call_stream_pb2, kernel_pb2, kernel_service_pb2
from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.access.gate import Gate
from shardcall_server.frontend.access.policy import check_scope
from shardcall_server.frontend.access.principals import Scope
from shardcall_server.frontend.dispatch.idempotency import IdempotencyTable
from shardcall_server.frontend.dispatch.kernel_runner import KernelRequest, KernelRunner
from shardcall_server.frontend.dispatch.operand_reader import check_inline
from shardcall_server.frontend.memory.call_buffers import OperandSource
from shardcall_server.frontend.memory.resident_array_table import ResidentArray, ResidentArrayTable
from shardcall_server.frontend.observability.call_recorder import CallRecorder
from shardcall_server.frontend.rpc.admission import Admission
from shardcall_server.frontend.rpc.deadline_timer import DeadlineTimer
from shardcall_server.frontend.rpc.drain import Drain
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.services.streamed_arrays import ArrayClaim, StreamedArrays
from shardcall_server.frontend.workers.session import MeshSession
from shardcall_server.kernels.layout import ArrayType

_SHORT_OF_MEMORY = {Reason.RESIDENT_LIMIT, Reason.OUT_OF_DEVICE_MEMORY}


@dataclass(frozen=True)
class StreamServices:
    """The parts of the server that call streams use; those of unary calls.

    Attributes:
        session: returns the current session of the mesh; None if there is none.
    """

    gate: Gate
    admission: Admission
    drain: Drain
    recorder: CallRecorder
    runner: KernelRunner
    idempotency: IdempotencyTable
    array_table: ResidentArrayTable
    timer: DeadlineTimer
    session: Callable[[], MeshSession | None]


@dataclass(frozen=True)
class PreparedCall:
    """The assignment of a slot."""

    message: call_stream_pb2.PrepareCall
    types: Sequence[ArrayType | None]


class Ran(NamedTuple):
    """The outcome of a call: the response without its plan, the plan of its program, and a plan of its transfers."""

    response: kernel_service_pb2.ExecuteResponse
    plan: kernel_pb2.Plan
    transfers: kernel_pb2.Plan


async def run_streamed(
    services: StreamServices,
    arrays: StreamedArrays,
    call: ServerCall,
    message: call_stream_pb2.StreamedCall,
    prepared: PreparedCall,
    claim: ArrayClaim,
    reserve: Callable[[int], Awaitable[None]],
) -> Ran:
    """Runs a call of a stream.

    Args:
        services: the parts of the server.
        arrays: the arrays of the stream.
        call: the server call.
        message: the call as it was sent.
        prepared: the assignment of its slot.
        claim: its arrays.
        reserve: waits until as many bytes of results may be computed.

    Raises:
        CallError: the call failed.
    """
    services.recorder.begin(call)
    settings = prepared.message

    async def execute() -> Ran:
        resident_arrays = await claim.resolve(call)
        operands, inline = _operands(message, prepared, resident_arrays)
        request = KernelRequest(
            settings.call,
            operands,
            keeps=settings.keep_results,
            lease_id=settings.lease_id,
            handles=claim.results,
            refuse_transfers=settings.refuse_transfers,
        )
        while True:
            deletion = arrays.next_deletion(claim.number)
            try:
                async with services.admission.working(call):
                    response, ready = await services.runner.run(call, request, inline, claim.launched, reserve)
                return Ran(response, ready.entry.plan, ready.transfers)
            except CallError as error:
                if error.reason not in _SHORT_OF_MEMORY or deletion is None or claim.is_settled:
                    raise
            await call.wait(deletion, "waiting for earlier deletions of arrays")

    try:
        with services.drain.working(call.connection):
            if not settings.keep_results:
                return await execute()
            check_scope(call.principal, Scope.ARRAYS, "keep_results")
            ran = await services.idempotency.once(call, _identity(message, settings), execute)
            claim.finish()
            return ran
    except CallError as error:
        claim.failed(error)
        raise
    except Exception:
        claim.failed(CallError(Reason.INTERNAL, "the call failed"))
        raise


def _operands(
    message: call_stream_pb2.StreamedCall, prepared: PreparedCall, resident_arrays: Sequence[ResidentArray | None]
) -> tuple[list[OperandSource], list[bytes | None]]:
    """Returns the sources of a call's operands and the bytes of those that are in the message.

    Raises:
        CallError: an operand does not have the type that its slot says.
    """
    sources: list[OperandSource] = []
    inline: list[bytes | None] = []
    for i, (operand, kind, resident) in enumerate(zip(message.operands, prepared.types, resident_arrays, strict=True)):
        source = operand.WhichOneof("source")
        data = None
        if source == "handle" and resident is not None:
            if kind is not None and kind != resident.type:
                raise CallError(
                    Reason.INVALID_OPERAND,
                    f"operand {i} is declared as {kind}, and the array on the mesh is {resident.type}; omit the type, "
                    "or correct it",
                    field=f"operand {i}",
                )
            sources.append(OperandSource(resident.type, resident=resident))
        elif (source == "inline") != (kind is not None):
            raise CallError(
                Reason.MALFORMED_REQUEST,
                f"operand {i} {'has a type and no bytes' if kind else 'has bytes and no type'}; send both, or neither "
                "for an omitted operand",
                field=f"operand {i}",
            )
        else:
            if kind is not None:
                data = operand.inline
                check_inline(kind, data, f"operand {i}")
            sources.append(OperandSource(kind))
        inline.append(data)
    return sources, inline


def _identity(
    message: call_stream_pb2.StreamedCall, settings: call_stream_pb2.PrepareCall
) -> call_stream_pb2.CallStreamRequest:
    """Returns all that repetitions of a call have in common."""
    frame = call_stream_pb2.CallStreamRequest()
    frame.items.add().prepare.CopyFrom(settings)
    frame.items[0].prepare.slot = 0
    frame.items.add().call.operands.extend(message.operands)
    frame.items[1].call.result_handles.extend(message.result_handles)
    return frame
