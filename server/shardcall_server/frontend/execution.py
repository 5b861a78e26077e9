"""The way of a call through the front end: its program found, its operands taken in, run, handed back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from shardcall.v1 import array_pb2, kernel_pb2
from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.call import Call
from shardcall_server.frontend.programs import CachedProgram, Found
from shardcall_server.frontend.region import MemoryBudget, Region, aligned
from shardcall_server.frontend.session import SessionEndedError
from shardcall_server.frontend.supervisor import Mesh, MeshSupervisor
from shardcall_server.kernels.layout import ArrayType, MeshAxes
from shardcall_server.settings import Settings
from shardcall_server.wire import encode_array_type, encode_mesh
from shardcall_worker.v1 import link_pb2

INLINE_LINK_BYTES = 64 << 10
"""Operands or results of at most this many bytes together go through the link itself."""

_LARGE_CALL_BYTES = 1 << 20
_ONE_DEVICE = MeshAxes((("x", 1),))


@dataclass(frozen=True)
class Prepared:
    """A call whose program is compiled.

    Attributes:
        call: as the mesh knows it, with nothing about the mesh left open.
        operands: the operands' types.
        types: the same as messages.
        mesh: the mesh that holds the program.
        found: the program.
    """

    call: kernel_pb2.KernelCall
    operands: tuple[ArrayType | None, ...]
    types: list[array_pb2.ArrayType]
    mesh: Mesh
    found: Found


@dataclass(frozen=True)
class Storage:
    """Where the arrays of a call lie.

    Attributes:
        region: the call's own memory; None if all go through the link.
        operand_offsets: where each operand begins in the region; None for through the link.
        result_offsets: where each result begins in the region; empty for through the link.
    """

    region: Region | None
    operand_offsets: list[int | None]
    result_offsets: list[int]


class Execution:
    """Finds programs and runs them.

    Args:
        supervisor: keeps the mesh.
        settings: the server's.
        budget: the memory that regions may take.
    """

    def __init__(self, supervisor: MeshSupervisor, settings: Settings, budget: MemoryBudget) -> None:
        self._supervisor = supervisor
        self._settings = settings
        self._budget = budget

    def prepare(self, call: Call, kernel_call: kernel_pb2.KernelCall, operands: Sequence[ArrayType | None]) -> Prepared:
        """Finds the program of a call, compiled now if it has not been.

        Raises:
            CallError: the call is wrong, or its deadline passed; the compilation then goes on.
        """
        types = [encode_array_type(operand) for operand in _without_trailing(operands)]
        self._check_size(operands)
        while True:
            mesh = self._supervisor.mesh(call)
            completed = self._complete(kernel_call, operands, mesh)
            call.check("looking for the program")
            try:
                found = mesh.programs.find(completed, types)
            except SessionEndedError:
                continue  # the next mesh is on its way; the call waits for it
            if isinstance(found, Future):
                with call.phase("compile"):
                    found = call.wait(found, "compiling the kernel")
            return Prepared(completed, tuple(operands), types, mesh, found)

    @contextmanager
    def allocate(self, prepared: Prepared) -> Iterator[Storage]:
        """Makes room for a call's arrays while its body takes operands in, runs and hands results back."""
        operand_bytes = [operand.nbytes if operand else 0 for operand in prepared.operands]
        program = prepared.found.program
        through_link = sum(operand_bytes) <= INLINE_LINK_BYTES
        end = 0
        operand_offsets: list[int | None] = []
        for nbytes in operand_bytes:
            operand_offsets.append(None if through_link or not nbytes else end)
            end += 0 if through_link else aligned(nbytes)
        result_offsets: list[int] = []
        if program.result_bytes > INLINE_LINK_BYTES:
            for result in program.results:
                result_offsets.append(end)
                end += aligned(result.nbytes)
        region = Region(end, self._budget) if end else None
        try:
            yield Storage(region, operand_offsets, result_offsets)
        finally:
            if region is not None:
                region.close()

    def run(
        self, call: Call, prepared: Prepared, storage: Storage, operands: Sequence[link_pb2.TensorData]
    ) -> link_pb2.Executed:
        """Runs a call whose operands are in place and waits for it.

        If the mesh ended before the call was handed to it, the next one takes it.
        """
        region = storage.region
        command = link_pb2.Execute(
            region_bytes=region.nbytes if region else 0,
            operands=operands,
            result_offsets=storage.result_offsets,
        )
        if region is not None:
            region.reserve(region.nbytes, lambda: call.check("making room for the results"))
        while True:
            command.key_digest = prepared.found.program.key
            try:
                answer = _send(prepared, link_pb2.FrontEndMessage(execute=command), region)
            except _ProgramGoneError:
                prepared = self.prepare(call, prepared.call, prepared.operands)
                continue
            if region is not None:
                # The worker reads and writes the region until it answers, whatever becomes of the caller.
                region.hold()
                answer.add_done_callback(lambda _: region.close())
            with _accounted(call) as accounted:
                executed = call.wait(answer, "running the kernel").executed
                accounted(executed)
            return executed

    def compiled_text(self, call: Call, prepared: Prepared, limit_bytes: int) -> str:
        """The text of a call's compiled program, cut at a number of bytes."""
        while True:
            digest = prepared.found.program.key
            command = link_pb2.GetCompiledText(key_digest=digest, max_bytes=limit_bytes)
            try:
                answer = _send(prepared, link_pb2.FrontEndMessage(get_compiled_text=command))
            except _ProgramGoneError:
                prepared = self.prepare(call, prepared.call, prepared.operands)
                continue
            return call.wait(answer, "printing the program").compiled_text.text

    def _check_size(self, operands: Sequence[ArrayType | None]) -> None:
        nbytes = sum(operand.nbytes for operand in operands if operand)
        limit = self._settings.max_call_bytes
        if nbytes > limit:
            raise CallError(
                Reason.CALL_TOO_LARGE,
                f"the operands are {nbytes} bytes together and one call may have {limit}; split the work, or "
                "start the server with a larger --max-call-bytes",
                field="operands",
                metadata={"bytes": str(nbytes), "limit": str(limit)},
            )

    def _complete(
        self,
        call: kernel_pb2.KernelCall,
        operands: Sequence[ArrayType | None],
        mesh: Mesh,
    ) -> kernel_pb2.KernelCall:
        """The call with its mesh filled in, and said in the fewest words: equal calls are equal messages."""
        completed = kernel_pb2.KernelCall()
        completed.CopyFrom(call)
        completed.DiscardUnknownFields()
        completed.strategy = call.strategy or "auto"
        for given in (completed.in_specs, completed.out_specs):
            while given and not given[-1].HasField("spec"):
                del given[-1]
        if call.kernel in mesh.kernels:
            for info in mesh.kernels[call.kernel].parameters:
                if info.name in call.parameters and info.default_value == call.parameters[info.name]:
                    del completed.parameters[info.name]
        if not call.HasField("mesh"):
            specs = [*call.in_specs, *call.out_specs]
            nbytes = sum(operand.nbytes for operand in operands if operand)
            large = nbytes >= _LARGE_CALL_BYTES or any(spec.HasField("spec") for spec in specs)
            axes = default_mesh(self._settings, mesh.ready) if large else _ONE_DEVICE
            completed.mesh.CopyFrom(encode_mesh(axes))
        return completed


def _without_trailing(operands: Sequence[ArrayType | None]) -> Sequence[ArrayType | None]:
    """The operands less those left out at the end."""
    present = [i for i, operand in enumerate(operands) if operand is not None]
    return operands[: present[-1] + 1] if present else ()


def default_mesh(settings: Settings, ready: link_pb2.Ready) -> MeshAxes:
    """The server's default mesh: as set, else one axis over all devices."""
    return MeshAxes(settings.mesh_axes or (("x", len(ready.devices)),))


def read_results(program: CachedProgram, storage: Storage, executed: link_pb2.Executed) -> Iterator[np.ndarray]:
    """Yields each result's bytes, as one-dimensional arrays of them."""
    for i, result in enumerate(program.results):
        if storage.result_offsets:
            assert storage.region is not None
            offset = storage.result_offsets[i]
            yield storage.region.bytes[offset : offset + result.nbytes]
        else:
            yield np.frombuffer(executed.inline_results[i], np.uint8)


class _ProgramGoneError(Exception):
    """The mesh no longer holds the program: it was evicted, or the mesh ended."""


def _send(
    prepared: Prepared, message: link_pb2.FrontEndMessage, region: Region | None = None
) -> Future[link_pb2.WorkerMessage]:
    session, program = prepared.mesh.session, prepared.found.program
    with session.order:
        if program.evicted:
            raise _ProgramGoneError
        try:
            return session.command(message, region.fd if region is not None else None)
        except SessionEndedError:
            raise _ProgramGoneError from None


@contextmanager
def _accounted(call: Call) -> Iterator[Callable[[link_pb2.Executed], None]]:
    """Adds what the worker measured to the call's phases; what it did not account for was waiting for the mesh."""
    began = time.monotonic()
    worked_s = 0.0

    def add(executed: link_pb2.Executed) -> None:
        nonlocal worked_s
        for phase in ("place", "execute", "gather"):
            seconds = getattr(executed, f"{phase}_seconds")
            call.add(phase, seconds)
            worked_s += seconds

    try:
        yield add
    finally:
        call.add("queue", max(0.0, time.monotonic() - began - worked_s))
