"""Runs kernels on small arrays, for unary calls and for the items of call streams."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from shardcall.v1 import kernel_pb2, kernel_service_pb2
from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.dispatch.execution import Execution, Prepared
from shardcall_server.frontend.dispatch.operand_reader import OperandReader
from shardcall_server.frontend.dispatch.results import Results, commit, reserved
from shardcall_server.frontend.memory.call_buffers import BufferAllocator, CallBuffers, OperandSource
from shardcall_server.frontend.memory.resident_array_table import (
    Reservation,
    ResidentArray,
    ResidentArrayTable,
    array_lost,
)
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.settings import Settings

T = TypeVar("T")


@dataclass(frozen=True)
class KernelRequest:
    """A call of a kernel.

    Attributes:
        call: the kernel and its arguments.
        operands: the sources of the operands.
        keeps: whether the results stay on the mesh.
        lease_id: the lease of results that stay.
        handles: the handles of results that stay; empty if the server chooses them.
        refuse_transfers: whether to refuse a call that would transfer an operand between devices.
        space: the part of the caller's segment that receives the results.
    """

    call: kernel_pb2.KernelCall
    operands: Sequence[OperandSource]
    keeps: bool = False
    lease_id: bytes = b""
    handles: Sequence[bytes] = ()
    refuse_transfers: bool = False
    space: kernel_service_pb2.SegmentSpace | None = None


class KernelRunner:
    """Runs kernels.

    Args:
        execution: gets the programs and launches them.
        buffer_allocator: allocates the buffers of calls.
        array_table: the resident arrays.
        settings: the settings of the server.
    """

    def __init__(
        self,
        execution: Execution,
        buffer_allocator: BufferAllocator,
        array_table: ResidentArrayTable,
        settings: Settings,
    ) -> None:
        self._execution = execution
        self._buffer_allocator = buffer_allocator
        self._array_table = array_table
        self._settings = settings

    async def run(
        self,
        call: ServerCall,
        request: KernelRequest,
        inline: Sequence[bytes | None],
        launched: Callable[[Sequence[ResidentArray]], None] | None = None,
        reserve: Callable[[int], Awaitable[None]] | None = None,
    ) -> tuple[kernel_service_pb2.ExecuteResponse, Prepared]:
        """Runs a kernel on arrays in one message.

        Args:
            call: the server call.
            request: the call.
            inline: the bytes of the operands that are in the message; None for the others.
            launched: called when the mesh has been sent the call, with the results that have handles of the client.
                These are in the table of arrays before they are computed.
            reserve: awaited with the number of bytes of the results in the response, before it is launched.

        Returns:
            The response without its plan, and the prepared call, which has the plan.

        Raises:
            CallError: the call failed, or an operand that was being computed did.
        """
        try:
            return await self._run(call, request, inline, launched, reserve)
        except CallError:
            await check_computed(call, request.operands)
            raise

    async def _run(
        self,
        call: ServerCall,
        request: KernelRequest,
        inline: Sequence[bytes | None],
        launched: Callable[[Sequence[ResidentArray]], None] | None,
        reserve: Callable[[int], Awaitable[None]] | None,
    ) -> tuple[kernel_service_pb2.ExecuteResponse, Prepared]:
        self.refuse_large("operands", sum(operand.travelling_bytes for operand in request.operands))
        prepared = await self.prepare(call, request)
        with self.buffers(call, request, prepared) as (results, kept):
            self.refuse_large("results", results.travelling_bytes)
            if reserve is not None:
                await reserve(results.travelling_bytes)
            if inline.count(None) < len(inline):
                with call.phase("receive"):
                    self.operand_reader(call, request.operands, results.buffers).take_inline(inline)
            running = await self._execution.start(call, prepared, results.buffers)
            if launched is not None and not request.handles:
                launched(())
            if kept:
                on_launch = launched if request.handles else None
                check = partial(check_computed, call, request.operands)
                sent = await commit(running, kept, prepared.entry.plan, check, request.handles, on_launch)
            else:
                sent = results.inline((await running.answer()).executed)
                await check_computed(call, request.operands)
        answer = kernel_service_pb2.ExecuteResponse(results=sent, cache=prepared.entry.answer, timing=call.finish())
        return answer, prepared

    async def prepare(self, call: ServerCall, request: KernelRequest) -> Prepared:
        """Returns a call whose program is compiled and may run now; raises CallError as `Execution` does."""
        prepared = await self._execution.prepare(
            call, request.call, request.operands, refuse_transfers=request.refuse_transfers, keeps=request.keeps
        )
        await self._execution.admit(call, prepared)
        return prepared

    @contextmanager
    def buffers(
        self, call: ServerCall, request: KernelRequest, prepared: Prepared
    ) -> Iterator[tuple[Results, list[Reservation]]]:
        """Allocates the buffers of a call, and reserves quota for kept results, during the body."""
        plan, types = prepared.entry.plan, prepared.entry.program.results
        if request.handles and len(request.handles) != len(types):
            raise CallError(
                Reason.MALFORMED_REQUEST,
                f"{len(request.handles)} result handles came, and kernel {plan.kernel!r} has {len(types)} results; "
                "send one handle for each result",
                field="result_handles",
            )
        with (
            reserved(self._array_table, request.lease_id, plan, call.principal_name, keep=request.keeps) as kept,
            self._buffer_allocator.allocate(
                call, prepared.operands, types, space=request.space, kept=[item.array_id for item in kept]
            ) as buffers,
        ):
            yield Results(types, buffers), kept

    def operand_reader(
        self, call: ServerCall, operands: Sequence[OperandSource], buffers: CallBuffers
    ) -> OperandReader:
        """Returns the reader of a call's operands."""
        return OperandReader(operands, buffers, call, self._settings.max_chunk_bytes)

    def refuse_large(self, what: str, nbytes: int) -> None:
        """Refuses arrays that are too large for one message.

        Raises:
            CallError: STREAM_REQUIRED.
        """
        if nbytes > self._settings.max_inline_bytes:
            raise CallError(
                Reason.STREAM_REQUIRED,
                f"the {what} have {nbytes} bytes in total and a unary call may have {self._settings.max_inline_bytes}; "
                "use ExecuteStream for this call",
                field=what,
                metadata={"bytes": str(nbytes), "limit": str(self._settings.max_inline_bytes)},
            )


async def check_computed(call: ServerCall, operands: Sequence[OperandSource]) -> None:
    """Waits for the operands that were still being computed when the call was launched.

    Raises:
        CallError: that of the call that should have computed an operand; ARRAY_LOST if its mesh ended.
    """
    for i, operand in enumerate(operands):
        resident = operand.resident
        if resident is not None and resident.computed is not None:
            await wait_computed(call, resident.computed, resident.handle, f"operand {i}")


async def wait_computed(call: ServerCall, computed: Future[T], handle: bytes, field: str) -> T:
    """Returns the outcome of the call that makes an array, once it is known.

    Args:
        call: the call that needs it.
        computed: the outcome of the other call.
        handle: the handle of the result.
        field: the operand, for the error message.

    Raises:
        CallError: that of the other call; ARRAY_LOST if its mesh ended.
    """
    try:
        return await call.wait(computed, "waiting for an operand")
    except CallError as error:
        if error.reason is Reason.MESH_RESTARTED:
            raise array_lost(handle, field) from None
        raise
