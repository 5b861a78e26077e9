"""Runs kernels on small arrays, for unary calls and for the items of call streams."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import NamedTuple, TypeVar

from shardcall.v1 import kernel_service_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_core.types.sizes import exact
from shardcall_server.frontend.dispatch.compiled_call import CallTemplate, CompiledCall
from shardcall_server.frontend.dispatch.execution import Execution
from shardcall_server.frontend.dispatch.operand_reader import OperandReader, put_inline
from shardcall_server.frontend.dispatch.results import Results, add_inline_results, commit
from shardcall_server.frontend.memory.call_buffers import BufferAllocator, CallBuffers, OperandSource, count_moved
from shardcall_server.frontend.memory.resident_array_table import (
    Reservation,
    ResidentArray,
    ResidentArrayTable,
    array_lost,
)
from shardcall_server.frontend.programs.cache_entry import CacheEntry
from shardcall_server.frontend.rpc.promise import Promise
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.settings import Settings

T = TypeVar("T")
_SLOW_S = 0.01
_NO_PHASE = nullcontext()  # a few bytes are copied at once


class KernelRequest(NamedTuple):
    """A call of a kernel.

    Attributes:
        template: the kernel and its arguments.
        operands: the sources of the operands.
        nbytes: the bytes of those that arrive in messages.
        handles: the handles of results that stay; empty if the server chooses them.
        space: the part of the caller's segment that receives the results.
    """

    template: CallTemplate
    operands: Sequence[OperandSource]
    nbytes: int
    handles: Sequence[bytes] = ()
    space: kernel_service_pb2.SegmentSpace | None = None


class KernelRunner:
    """Runs kernels.

    Args:
        execution: gets the programs and launches them.
        buffer_allocator: allocates the buffers of calls.
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
        self._max_inline_bytes = settings.max_inline_bytes
        self._max_chunk_bytes = settings.max_chunk_bytes

    async def run(
        self,
        call: ServerCall,
        request: KernelRequest,
        inline: Sequence[bytes | None],
        launched: Callable[[Sequence[ResidentArray]], None] | None = None,
        reserve: Callable[[int], Awaitable[None]] | None = None,
        *,
        limit_bytes: int | None = None,
    ) -> tuple[kernel_service_pb2.ExecuteResponse, CompiledCall]:
        """Runs a kernel on arrays in one message.

        Args:
            inline: the bytes of the operands that are in the message; None for the others.
            launched: called when the mesh has been sent the call, with the results that have handles of the client.
                These are in the table of arrays before they are computed.
            reserve: awaited with the number of bytes of the results in the response, before memory is allocated.
            limit_bytes: the most bytes of operands, and of results; None for those of a unary call.

        Returns:
            The response without its plan, and the compiled call, which has the plan.

        Raises:
            CallError: the call failed, or an operand that was being computed did.
        """
        try:
            limit_bytes = self._max_inline_bytes if limit_bytes is None else limit_bytes
            return await self._run(call, request, inline, launched, reserve, limit_bytes)
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
        limit_bytes: int,
    ) -> tuple[kernel_service_pb2.ExecuteResponse, CompiledCall]:
        buffers: CallBuffers | None = None
        kept: Sequence[Reservation] = ()
        try:
            _refuse_large("operands", request.nbytes, limit_bytes)
            compiled = await self._execution.prepare(call, request.template, request.operands)
            program, nbytes = compiled.entry.program, compiled.nbytes
            if not program.trusted:
                await self._execution.admit(call, compiled)
            if request.template.keeps:
                kept = self._reserve(call, request, compiled.entry)
            elif reserve is not None:
                _refuse_large("results", nbytes.results, limit_bytes)
                await reserve(nbytes.results)
            buffers = self._buffer_allocator.allocate(
                call,
                request.operands,
                nbytes,
                program.results,
                space=request.space,
                kept=[item.array_id for item in kept] if kept else (),
            )
            if not kept and not buffers.segment_id:
                _refuse_large("results", nbytes.results, limit_bytes)
            with call.phase("receive") if buffers.region is not None else _NO_PHASE:
                put_inline(call, buffers, inline)
            running, compiled = await self._execution.start(call, compiled, request.operands, buffers)
            if launched is not None and not request.handles:
                launched(())
            response = kernel_service_pb2.ExecuteResponse(cache=compiled.answer)
            if kept:
                on_launch = launched if request.handles else None
                check = partial(check_computed, call, request.operands)
                untested = self._execution.untested(compiled.entry.program, request.operands)
                sent = await commit(running, kept, compiled.entry, untested, check, request.handles, on_launch)
                response.results.extend(sent)
            else:
                entry, executed = compiled.entry, (await running.answer()).executed
                add_inline_results(response, entry.plan.results, entry.program.results, buffers, executed)
                if compiled.uses_resident_arrays:
                    await check_computed(call, request.operands)
            if running.execute_s:
                compiled.entry.program.is_slow = running.execute_s > _SLOW_S
            count_moved(call, nbytes, buffers, keeps=bool(kept))
        finally:
            for reservation in kept:
                reservation.cancel()
            if buffers is not None:
                self._buffer_allocator.release(buffers)
        response.timing.CopyFrom(call.finish())
        return response, compiled

    async def prepare(self, call: ServerCall, request: KernelRequest) -> CompiledCall:
        """Returns a call whose program is compiled and may run now; raises CallError as `Execution` does."""
        compiled = await self._execution.prepare(call, request.template, request.operands)
        await self._execution.admit(call, compiled)
        return compiled

    @contextmanager
    def buffers(
        self, call: ServerCall, request: KernelRequest, compiled: CompiledCall
    ) -> Iterator[tuple[Results, Sequence[Reservation]]]:
        """Allocates the buffers of a call, and reserves quota for kept results, during the body."""
        types = compiled.entry.program.results
        kept = self._reserve(call, request, compiled.entry) if request.template.keeps else ()
        ids = [item.array_id for item in kept]
        try:
            with self._buffer_allocator.allocated(
                call, request.operands, types, space=request.space, kept=ids
            ) as buffers:
                yield Results(types, buffers), kept
        finally:
            for reservation in kept:
                reservation.cancel()

    def _reserve(self, call: ServerCall, request: KernelRequest, entry: CacheEntry) -> list[Reservation]:
        """Reserves device memory for results that stay on the mesh.

        Raises:
            CallError: RESIDENT_LIMIT; or the client chose too few or too many handles.
        """
        count = len(entry.device_bytes)
        if request.handles and len(request.handles) != count:
            raise CallError(
                Reason.MALFORMED_REQUEST,
                f"{len(request.handles)} result handles came, and kernel {entry.plan.kernel!r} has {count} results; "
                "send one handle for each result",
                field="result_handles",
            )
        kept: list[Reservation] = []
        try:
            for nbytes in entry.device_bytes:
                reservation = self._array_table.reserve(request.template.lease_id, nbytes, call.principal_name)
                kept.append(reservation)
        except BaseException:
            for reservation in kept:
                reservation.cancel()
            raise
        return kept

    def operand_reader(
        self, call: ServerCall, operands: Sequence[OperandSource], buffers: CallBuffers
    ) -> OperandReader:
        """Returns the reader of a call's operands."""
        return OperandReader(operands, buffers, call, self._max_chunk_bytes)


def _refuse_large(what: str, nbytes: int, limit_bytes: int) -> None:
    """Refuses arrays that are too large for one message.

    Raises:
        CallError: STREAM_REQUIRED.
    """
    if nbytes > limit_bytes:
        raise CallError(
            Reason.STREAM_REQUIRED,
            f"the {what} have {exact(nbytes)} in total and a unary call may have {exact(limit_bytes)}; use "
            "ExecuteStream for this call",
            field=what,
            metadata={"bytes": str(nbytes), "limit": str(limit_bytes)},
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


async def wait_computed(call: ServerCall, computed: Promise[T], handle: bytes, field: str) -> T:
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
        failure = computed.exception() if computed.done() else None
        call.is_dependent = isinstance(failure, CallError) and failure.message == error.message
        if call.is_dependent and error.reason is Reason.MESH_RESTARTED:
            raise array_lost(handle, field) from None
        raise
