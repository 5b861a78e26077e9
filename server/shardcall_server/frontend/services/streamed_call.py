"""Calls of a call stream: their slots, their operands and their execution."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeAlias

from shardcall.v1 import call_stream_pb2, kernel_pb2, kernel_service_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_server.frontend.access.gate import Gate
from shardcall_server.frontend.access.policy import check_scope
from shardcall_server.frontend.access.principals import Scope
from shardcall_server.frontend.dispatch.array_reader import ArrayReader
from shardcall_server.frontend.dispatch.array_writer import ArrayWriter
from shardcall_server.frontend.dispatch.compiled_call import CallTemplate
from shardcall_server.frontend.dispatch.idempotency import IdempotencyTable
from shardcall_server.frontend.dispatch.kernel_runner import KernelRequest, KernelRunner
from shardcall_server.frontend.dispatch.operand_reader import check_inline
from shardcall_server.frontend.memory.budget import MemoryBudget
from shardcall_server.frontend.memory.call_buffers import OperandSource
from shardcall_server.frontend.memory.resident_array_table import ResidentArray, ResidentArrayTable
from shardcall_server.frontend.observability.call_recorder import CallRecorder
from shardcall_server.frontend.rpc.admission import Admission
from shardcall_server.frontend.rpc.deadline_timer import DeadlineTimer
from shardcall_server.frontend.rpc.drain import Drain
from shardcall_server.frontend.rpc.processor_shares import ProcessorShares
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.rpc.unknown_fields import refuse_unknown_fields
from shardcall_server.frontend.services.item_slot import ItemSlot
from shardcall_server.frontend.services.streamed_arrays import ArrayClaim, StreamedArrays
from shardcall_server.frontend.workers.session import MeshSession
from shardcall_server.link.wire import decode_operand_types

_SHORT_OF_MEMORY = {Reason.RESIDENT_LIMIT, Reason.OUT_OF_DEVICE_MEMORY}


@dataclass(frozen=True)
class StreamServices:
    """The parts of the server that call streams use; those of unary calls.

    Attributes:
        budget: the memory of the front end.
        shares: the processor time of the front end.
        session: returns the current session of the mesh; None if there is none.
    """

    gate: Gate
    admission: Admission
    drain: Drain
    recorder: CallRecorder
    runner: KernelRunner
    reader: ArrayReader
    writer: ArrayWriter
    idempotency: IdempotencyTable
    array_table: ResidentArrayTable
    timer: DeadlineTimer
    budget: MemoryBudget
    shares: ProcessorShares
    session: Callable[[], MeshSession | None]


class PreparedSlot:
    """The assignment of a slot.

    Args:
        message: the message that assigns it.

    Attributes:
        message: the message.
        types: the types of the operands; None for those on the mesh or omitted.
        template: the kernel and its arguments.
        sources: the sources of operands that are in messages or omitted.

    Raises:
        CallError: a type is invalid.
    """

    def __init__(self, message: call_stream_pb2.PrepareCall) -> None:
        self.message = message
        self.types = decode_operand_types(message.operands)
        self.sources = tuple(OperandSource(operand_type) for operand_type in self.types)
        self.template = CallTemplate(
            message.call,
            keeps=message.keep_results,
            lease_id=message.lease_id,
            refuse_transfers=message.refuse_transfers,
        )

    @cached_property
    def digest(self) -> bytes:
        """A digest of all but the slot."""
        message = call_stream_pb2.PrepareCall()
        message.CopyFrom(self.message)
        message.slot = 0
        return hashlib.sha256(message.SerializeToString(deterministic=True)).digest()


CallOutcome: TypeAlias = tuple[kernel_service_pb2.ExecuteResponse, kernel_pb2.Plan | None, kernel_pb2.Plan | None]
"""The outcome of an item: the response without its plan, the plan, and a plan of the transfers.

A read has no plans, and a put no transfers.
"""

Reserve: TypeAlias = Callable[[int], Awaitable[None]]
"""Waits until as many bytes of results may be computed."""


class StreamedWork(Protocol):
    """The part of an item in which calls, reads and puts differ.

    Attributes:
        scope_subject: what needs the scope of arrays, in errors; empty if nothing does.
        finishes: whether it is a read, which a server that drains admits after earlier calls.
    """

    scope_subject: str
    finishes: bool

    async def execute(self, resident_arrays: Sequence[ResidentArray | None], reserve: Reserve) -> CallOutcome:
        """Executes the item, in a call slot.

        Args:
            resident_arrays: its operands on the mesh.
            reserve: awaited with the number of bytes of results in the response, before memory is allocated.

        Raises:
            CallError: the item failed.
        """

    def identity(self) -> bytes:
        """Returns a digest of all that repetitions have in common; empty if the item may be executed again."""


async def run_streamed(
    services: StreamServices,
    arrays: StreamedArrays,
    call: ServerCall,
    work: StreamedWork,
    claim: ArrayClaim | None,
    number: int,
    reserve: Callable[[int], Awaitable[None] | None],
) -> CallOutcome:
    """Runs a call of a stream, a read or a put.

    Args:
        services: the parts of the server.
        arrays: the arrays of the stream.
        call: the server call.
        work: the call, the read or the put.
        claim: its arrays; None if it names none.
        number: its number in the order of the stream.
        reserve: returns the wait until as many bytes of results may be computed; None if they may now.

    Raises:
        CallError: the call failed.
    """
    services.recorder.begin(call)

    async def execute() -> CallOutcome:
        resident_arrays = await claim.resolve(call) if claim is not None else ()
        while True:
            deletion = arrays.next_deletion(number)
            try:
                async with ItemSlot(services.admission.calls, call, reserve) as slot:
                    return await work.execute(resident_arrays, slot.reserve)
            except CallError as error:
                if error.reason not in _SHORT_OF_MEMORY or deletion is None or (claim is not None and claim.is_settled):
                    raise
            await call.wait(deletion, "waiting for earlier deletions of arrays")

    is_counted = False
    try:
        services.drain.enter(call, finishes=work.finishes)
        is_counted = True
        if work.scope_subject:
            check_scope(call.principal, Scope.ARRAYS, work.scope_subject)
        if not (identity := work.identity()):
            return await execute()
        outcome = await services.idempotency.once(call, identity, execute)
        if claim is not None:
            claim.finish()
            claim.succeeded()
        return outcome
    except Exception as error:
        if claim is not None:
            claim.failed(error if isinstance(error, CallError) else CallError(Reason.INTERNAL, "the call failed"))
        raise
    finally:
        if is_counted:
            services.drain.leave(call)


class StreamedCall:
    """A call of a kernel.

    Args:
        runner: runs kernels.
        call: the server call.
        message: the call as it was sent.
        prepared: the assignment of its slot.
        claim: its arrays; None if it names none.
    """

    finishes = False

    def __init__(
        self,
        runner: KernelRunner,
        call: ServerCall,
        message: call_stream_pb2.StreamedCall,
        prepared: PreparedSlot,
        claim: ArrayClaim | None,
    ) -> None:
        self._runner = runner
        self._call = call
        self._message = message
        self._prepared = prepared
        self._launched = claim.launched if claim is not None else None
        self.scope_subject = "keep_results" if prepared.template.keeps else ""

    async def execute(self, resident_arrays: Sequence[ResidentArray | None], reserve: Reserve) -> CallOutcome:
        """Runs the kernel."""
        request, inline = _request(self._message, self._prepared, resident_arrays)
        response, ready = await self._runner.run(self._call, request, inline, self._launched, reserve)
        return response, ready.entry.plan, ready.transfers

    def identity(self) -> bytes:
        """Returns a digest of a call whose results stay on the mesh; the others change nothing."""
        return _identity(self._message, self._prepared) if self._prepared.template.keeps else b""


def _request(
    message: call_stream_pb2.StreamedCall, prepared: PreparedSlot, resident_arrays: Sequence[ResidentArray | None]
) -> tuple[KernelRequest, list[bytes | None]]:
    """Returns the request of a call, and the bytes of the operands that are in the message.

    Raises:
        CallError: an operand does not have the type that its slot says.
    """
    sources: list[OperandSource] | None = None
    inline: list[bytes | None] = []
    nbytes = 0
    for i, operand in enumerate(message.operands):
        source, declared = operand.WhichOneof("source"), prepared.types[i]
        data = None
        if source == "handle" and resident_arrays and (resident := resident_arrays[i]) is not None:
            if declared is not None and declared != resident.type:
                raise CallError(
                    Reason.INVALID_OPERAND,
                    f"operand {i} is declared as {declared}, and the array on the mesh is {resident.type}; omit the "
                    "type, or correct it",
                    field=f"operand {i}",
                )
            if sources is None:
                sources = [*prepared.sources]
            sources[i] = OperandSource(resident.type, resident=resident)
        elif source == "handle":
            raise CallError(
                Reason.MALFORMED_REQUEST,
                f"operand {i} has an empty handle; send that of an array, or no source for an omitted operand",
                field=f"operand {i}",
            )
        elif (source == "inline") != (declared is not None):
            refuse_unknown_fields(operand)  # such as a source
            raise CallError(
                Reason.MALFORMED_REQUEST,
                f"operand {i} {'has a type and no bytes' if declared else 'has bytes and no type'}; send both, or "
                "neither for an omitted operand",
                field=f"operand {i}",
            )
        elif declared is not None:
            data = operand.inline
            check_inline(declared, data, f"operand {i}")
            nbytes += len(data)
        else:
            refuse_unknown_fields(operand)
        inline.append(data)
    return KernelRequest(prepared.template, sources or prepared.sources, nbytes, message.result_handles), inline


def _identity(message: call_stream_pb2.StreamedCall, prepared: PreparedSlot) -> bytes:
    """Returns a digest of all that repetitions of a call have in common."""
    digest = hashlib.sha256(prepared.digest)
    call = call_stream_pb2.StreamedCall(operands=message.operands, result_handles=message.result_handles)
    digest.update(call.SerializeToString(deterministic=True))
    return digest.digest()
