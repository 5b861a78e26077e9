"""Execution of calls: gets the program of a call, sends the command to the mesh and waits for the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from shardcall.v1 import kernel_pb2, mesh_pb2
from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.layouts.layout import ArrayType, MeshAxes, format_spec
from shardcall_core.types.blocks import device_label
from shardcall_core.types.sizes import exact
from shardcall_server.frontend.dispatch.call_progress import CallProgress
from shardcall_server.frontend.dispatch.compiled_call import NO_TRANSFERS, CallTemplate, CompiledCall
from shardcall_server.frontend.dispatch.loop_slices import LoopSlices
from shardcall_server.frontend.dispatch.mesh_queue import MeshQueue
from shardcall_server.frontend.dispatch.running_command import RunningCommand
from shardcall_server.frontend.dispatch.supervisor import MeshSupervisor, ReadyMesh
from shardcall_server.frontend.dispatch.transfers import check_no_transfers, find_transfers
from shardcall_server.frontend.memory.call_buffers import CallBuffers, CallBytes, OperandSource, count_bytes
from shardcall_server.frontend.memory.leases import UntestedKernel
from shardcall_server.frontend.memory.resident_array_table import ResidentArray, array_lost
from shardcall_server.frontend.programs.cache_entry import CachedProgram
from shardcall_server.frontend.programs.keys import AbstractCall, RequestKey
from shardcall_server.frontend.programs.known_answers import KnownAnswerRunner
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.rpc.unknown_fields import checked_copy
from shardcall_server.frontend.workers.isolation import IsolatedError
from shardcall_server.frontend.workers.session import SessionEndedError
from shardcall_server.link.wire import check_counts, decode_mesh, encode_array_type, encode_mesh
from shardcall_server.settings import Settings
from shardcall_worker.v1 import link_pb2

_LARGE_CALL_BYTES = 1 << 20
_MAX_SHOWN = 300
_ONE_DEVICE = MeshAxes((("x", 1),))


class Execution:
    """Gets the programs of calls and executes them.

    Args:
        known_answers: the verdicts of the known-answer tests.

    Attributes:
        progress: the calls that wait or run in slices.
    """

    def __init__(
        self, supervisor: MeshSupervisor, queue: MeshQueue, known_answers: KnownAnswerRunner, settings: Settings
    ) -> None:
        self._supervisor = supervisor
        self._queue = queue
        self._known_answers = known_answers
        self._settings = settings
        self.progress = CallProgress(queue)

    async def prepare(
        self, call: ServerCall, template: CallTemplate, operands: Sequence[OperandSource]
    ) -> CompiledCall:
        """Gets the program of a call; compiles it if necessary.

        Args:
            template: the kernel and its arguments.

        Raises:
            CallError: the call is invalid, its kernel failed the known-answer tests, or its deadline passed; the
                compilation then continues.
        """
        for i, operand in enumerate(operands):
            if operand.resident is not None and operand.resident.untested:
                self._known_answers.check_array(operand.resident, f"operand {i}")
        compiled = template.recent
        if compiled is None:
            self._check_size(count_bytes(operands))
        mesh = await self._supervisor.mesh(call)
        if compiled is not None and compiled.applies_to(mesh, operands):
            if (history := mesh.programs.call_history) is not None:
                history.touch(compiled.call.key)
        else:
            compiled = await self._resolve(call, template, operands)
            is_hit = compiled.entry.answer.outcome == kernel_pb2.CACHE_OUTCOME_HIT
            template.recent = compiled if is_hit else None
            return compiled
        entry = compiled.entry
        call.set_program(entry.plan, entry.program.key, entry.answer)
        if not entry.program.trusted:
            self._known_answers.check(entry.program)
        return compiled

    async def _resolve(
        self, call: ServerCall, template: CallTemplate, operands: Sequence[OperandSource]
    ) -> CompiledCall:
        """Returns a call whose program is compiled; compiles it if necessary."""
        types = tuple(operand.type for operand in operands)
        resident_arrays = [operand.resident for operand in operands if operand.resident is not None]
        stays = template.keeps or bool(resident_arrays)
        placements = tuple(item.resident.placement_key if item.resident else b"" for item in operands)
        request = RequestKey(template.message, types, stays, placements)
        while True:
            mesh = await self._supervisor.mesh(call)
            version = mesh.programs.table.version
            if (cached := mesh.programs.get(request)) is not None:
                _check_epoch(resident_arrays, mesh)
                completed, entry = cached
                break
            if template.call.kernel in mesh.kernels:
                call.kernel = template.call.kernel
            check_counts(template.call, len(operands))
            _check_epoch(resident_arrays, mesh)
            encoded = [encode_array_type(operand_type) for operand_type in _without_trailing(types)]
            completed = AbstractCall(self._complete(template.call, operands, mesh), encoded, stays)
            call.check("looking for the program")
            try:
                compiled = mesh.programs.get_or_compile(completed, call.owner, call.connection, call.weight)
            except SessionEndedError:
                continue  # the call waits for the next mesh
            if isinstance(compiled, Future):
                compiler = mesh.programs.compiler
                with call.phase("compile"), self.progress.compiling(call, compiler, compiled):
                    try:
                        entry = (await call.wait(compiled, "compiling the kernel")).for_owner(call.owner)
                    except SessionEndedError:
                        continue
                    finally:
                        compiler.leave(compiled)
            else:
                entry = compiled
            mesh.programs.alias(request, completed)
            break
        call.set_program(entry.plan, entry.program.key, entry.answer)
        self._known_answers.check(entry.program)
        nbytes = count_bytes(operands, entry.program.results)
        if not template.keeps:
            self._check_size(nbytes)
        if template.refuse_transfers:
            check_no_transfers(entry.plan, operands, mesh.ready)
        moved = find_transfers(entry.plan, operands, mesh.ready) if resident_arrays else ()
        transfers = kernel_pb2.Plan(transfers=moved) if moved else NO_TRANSFERS
        copied = {transfer.operand for transfer in moved}  # the program takes copies of these
        taken = (r.device_bytes for i, o in enumerate(operands) if (r := o.resident) is not None and i not in copied)
        device_bytes = max(0, entry.program.device_bytes - sum(taken))
        return CompiledCall(
            template=template,
            call=completed,
            types=types,
            placements=placements,
            mesh=mesh,
            version=version,
            entry=entry,
            nbytes=nbytes,
            device_bytes=device_bytes,
            transfers=transfers,
        )

    async def start(
        self,
        call: ServerCall,
        compiled: CompiledCall,
        operands: Sequence[OperandSource],
        buffers: CallBuffers,
        *,
        report_gathered: bool = False,
    ) -> tuple[RunningCommand, CompiledCall]:
        """Sends a call whose operands are complete to the mesh, or to the next mesh if that one has ended.

        Args:
            buffers: the buffers of operands and results, retained until the worker has answered.
            report_gathered: whether the worker reports the progress of the results.

        Returns:
            The command, and the call as it was sent: as it was passed, or prepared again for the next mesh.

        Raises:
            CallError: no memory for the results, or as `prepare`.
        """
        if buffers.region is not None:
            buffers.region.reserve(buffers.region_bytes, lambda: call.check("reserving memory for the results"))
        again = False
        while True:
            share, is_slow = compiled.launch_share, compiled.entry.program.is_slow
            grant = await self._queue.acquire(call, compiled.device_bytes, share=share, is_slow=is_slow, again=again)
            running = RunningCommand(call, buffers, grant)
            command = link_pb2.Execute(
                key_digest=compiled.entry.program.key,
                operands=buffers.operands,
                results=buffers.results,
                report_gathered=report_gathered,
            )
            loop = self._loop(compiled) if compiled.is_sliced else None
            memory = grant
            if loop is not None:
                command.slice.CopyFrom(loop.first())
                memory = grant.memory()
            try:
                _send(compiled, link_pb2.FrontEndMessage(execute=command), running)
                if loop is not None:
                    running = await self._finish_loop(call, compiled, loop, running, command, buffers)
                return running, compiled
            except _ProgramGoneError:
                pass
            except IsolatedError as isolated:
                await _wait_isolated(call, isolated)
            finally:
                if memory is not grant:
                    memory.release()
            again = True
            compiled = await self.prepare(call, compiled.template, operands)
            await self.admit(call, compiled)  # the next mesh may have other known-answer tests

    def _loop(self, compiled: CompiledCall) -> LoopSlices:
        return LoopSlices(compiled.entry.program, self._settings.slice_s, self._queue.grants - 1)

    async def _finish_loop(
        self,
        call: ServerCall,
        compiled: CompiledCall,
        loop: LoopSlices,
        running: RunningCommand,
        command: link_pb2.Execute,
        buffers: CallBuffers,
    ) -> RunningCommand:
        """Launches the slices of a loop behind the first one; returns the last, which has ended.

        Raises:
            CallError: a slice failed, the deadline passed or the caller left.
        """
        session = compiled.mesh.session
        try:
            while (following := loop.after((await running.answer()).executed, self._queue.grants)) is not None:
                self.progress.add_loop(loop, call)
                del command.operands[:]
                command.slice.CopyFrom(following)
                running = await self._start_slice(call, compiled, command, buffers)
        except BaseException:
            loop.drop(session)
            running.delete_when_done([result.array_id for result in command.results if result.array_id])
            raise
        finally:
            self.progress.remove_loop(loop)
        if loop.is_resumed:  # a process without devices of the mesh does not know that it has ended
            loop.drop(session)
        return running

    async def _start_slice(
        self, call: ServerCall, compiled: CompiledCall, command: link_pb2.Execute, buffers: CallBuffers
    ) -> RunningCommand:
        """Launches a slice after the first one, in the loop's memory; the mesh runs the calls that wait before it."""
        share, is_slow = compiled.launch_share, compiled.entry.program.is_slow
        while True:
            grant = await self._queue.acquire(call, share=share, is_slow=is_slow, again=True)
            running = RunningCommand(call, buffers, grant)
            try:
                running.send(compiled.mesh.session, link_pb2.FrontEndMessage(execute=command), compiled.entry.plan)
            except SessionEndedError:
                raise _ProgramGoneError from None
            except IsolatedError as isolated:
                await _wait_isolated(call, isolated)
            else:
                return running

    async def admit(self, call: ServerCall, compiled: CompiledCall) -> None:
        """Checks whether a call can be executed, before memory is reserved for it.

        Has the known-answer tests of its program run, and waits for them if the server is strict. Refuses a call whose
        program is quarantined, or for which the devices have not enough memory beside the resident arrays.

        Raises:
            CallError: OUT_OF_DEVICE_MEMORY, PROGRAM_REFUSED, KERNEL_FAILED_KNOWN_ANSWERS.
        """
        await self._known_answers.require(call, compiled.entry.program)
        compiled.mesh.session.quarantine.check(compiled.entry.program.key, call.owner)
        self._queue.check(compiled.device_bytes)

    def untested(self, program: CachedProgram, operands: Sequence[OperandSource]) -> tuple[UntestedKernel, ...]:
        """Returns the kernels that results depend on and that have not passed their known-answer tests."""
        resident_arrays = [operand.resident for operand in operands if operand.resident is not None]
        return self._known_answers.untested(program, resident_arrays)

    async def compiled_text(
        self, call: ServerCall, compiled: CompiledCall, operands: Sequence[OperandSource], limit_bytes: int
    ) -> str:
        """Returns the text of a call's compiled program, cut at a number of bytes."""
        while True:
            running = RunningCommand(call, CallBuffers(), doing="reading the compiled program")
            command = link_pb2.GetCompiledText(key_digest=compiled.entry.program.key, max_bytes=limit_bytes)
            try:
                _send(compiled, link_pb2.FrontEndMessage(get_compiled_text=command), running)
            except _ProgramGoneError:
                compiled = await self.prepare(call, compiled.template, operands)
                continue
            return (await running.answer()).compiled_text.text

    def _check_size(self, counted: CallBytes) -> None:
        """Refuses a call whose arrays in messages and memory files exceed the size limit."""
        what = "operands and results" if counted.results else "operands"
        nbytes, limit = sum(counted), self._settings.max_call_bytes
        if nbytes > limit:
            raise CallError(
                Reason.CALL_TOO_LARGE,
                f"the {what} are {exact(nbytes)} together and one call may have {exact(limit)}; split the work, leave "
                "arrays "
                "on the mesh (keep=True), or start the server with a larger --max-call-bytes",
                field="operands",
                metadata={"bytes": str(nbytes), "limit": str(limit)},
            )

    def _complete(
        self,
        call: kernel_pb2.KernelCall,
        operands: Sequence[OperandSource],
        mesh: ReadyMesh,
    ) -> kernel_pb2.KernelCall:
        """Returns the call in canonical form, with its mesh filled in: equal calls are equal messages.

        Resident arrays determine the mesh and their specs where the call leaves these unset.

        Raises:
            CallError: NOT_SUPPORTED if the call has unknown fields.
        """
        completed = checked_copy(call)
        completed.strategy = call.strategy or "auto"
        _keep_placements(completed, operands)
        for specs in (completed.in_specs, completed.out_specs):
            while specs and not specs[-1].HasField("spec"):
                del specs[-1]
        if call.kernel in mesh.kernels:
            for info in mesh.kernels[call.kernel].parameters:
                if info.name in call.parameters and info.default_value == call.parameters[info.name]:
                    del completed.parameters[info.name]
        if not completed.HasField("mesh"):
            has_spec = any(spec.HasField("spec") for spec in (*call.in_specs, *call.out_specs))
            large = has_spec or _bytes_of(operands) >= _LARGE_CALL_BYTES
            axes = default_mesh(self._settings, mesh.ready) if large else _ONE_DEVICE
            completed.mesh.CopyFrom(encode_mesh(axes))
        return completed


def _keep_placements(call: kernel_pb2.KernelCall, operands: Sequence[OperandSource]) -> None:
    """Fills in the mesh of the committed operands and their specs; those of the others if none is committed."""
    resident_arrays = {i: operand.resident for i, operand in enumerate(operands) if operand.resident is not None}
    kept = {i: resident for i, resident in resident_arrays.items() if i not in call.uncommitted}
    call.ClearField("uncommitted")
    if not call.HasField("mesh") and resident_arrays:
        _check_same_devices(kept)
        largest = max(resident_arrays.values(), key=lambda resident: resident.type.nbytes)  # the first of equals
        call.mesh.CopyFrom(next(iter(kept.values()), largest).mesh)
        kept = kept or resident_arrays
    for i, resident in kept.items():
        while len(call.in_specs) <= i:
            call.in_specs.add()
        if not call.in_specs[i].HasField("spec") and _axes(call.mesh) == _axes(resident.mesh):
            call.in_specs[i].spec.CopyFrom(resident.placement.spec)


def _check_same_devices(committed: Mapping[int, ResidentArray]) -> None:
    """Refuses committed arrays on different devices: they are transferred only if the call names its mesh.

    Raises:
        CallError: INVALID_MESH.
    """
    for i, resident in committed.items():
        first, other = next(iter(committed.items()))
        if resident.mesh.device_ids == other.mesh.device_ids:
            continue
        same = set(resident.mesh.device_ids) == set(other.mesh.device_ids)
        raise CallError(
            Reason.INVALID_MESH,
            f"operand {first} is placed on {_placement(other)} and operand {i} on {_placement(resident)}"
            f"{', the same devices in another order' if same else ''}; set the mesh of the call, or put one of the "
            "arrays again, over the mesh of the other",
            field="mesh",
        )


def _placement(resident: ResidentArray) -> str:
    spec = format_spec(tuple(tuple(entry.axis_names) for entry in resident.placement.spec.entries))
    placement = f"{decode_mesh(resident.mesh)} of devices {device_label(tuple(resident.mesh.device_ids))} as {spec}"
    return shorten(placement, _MAX_SHOWN)


def _axes(mesh: mesh_pb2.Mesh) -> list[tuple[str, int]]:
    return [(axis.name, axis.size) for axis in mesh.axes]


def _bytes_of(operands: Sequence[OperandSource]) -> int:
    return sum(operand.type.nbytes for operand in operands if operand.type)


def _check_epoch(resident_arrays: Sequence[ResidentArray], mesh: ReadyMesh) -> None:
    for resident in resident_arrays:
        if resident.epoch != mesh.session.epoch:
            raise array_lost(resident.handle)


def _without_trailing(types: Sequence[ArrayType | None]) -> Sequence[ArrayType | None]:
    """Returns the types of the operands without those omitted at the end."""
    present = [i for i, operand_type in enumerate(types) if operand_type is not None]
    return types[: present[-1] + 1] if present else ()


def default_mesh(settings: Settings, ready: link_pb2.Ready) -> MeshAxes:
    """Returns the default mesh: the configured one, else one axis over all devices."""
    return MeshAxes(settings.mesh_axes or (("x", len(ready.devices)),))


async def _wait_isolated(call: ServerCall, isolated: IsolatedError) -> None:
    """Waits until a command may be tried again that was not sent, since a program runs alone."""
    with call.phase("queue"):
        await call.wait(isolated.changed, "waiting while a program that may end the mesh runs alone")


class _ProgramGoneError(Exception):
    """The mesh does not hold the program any more: it was evicted, or the mesh ended."""


def _send(compiled: CompiledCall, message: link_pb2.FrontEndMessage, running: RunningCommand) -> None:
    """Sends a command that names a program; releases the grant of the command if that is gone."""
    program, table = compiled.entry.program, compiled.mesh.programs.table

    def check() -> None:
        if program.evicted:
            raise _ProgramGoneError
        table.touch(program)

    plan = compiled.entry.plan if message.HasField("execute") else None
    try:
        running.send(compiled.mesh.session, message, plan, check)
    except SessionEndedError:
        raise _ProgramGoneError from None
