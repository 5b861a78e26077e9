"""The way of a call through the front end: its program found, handed to the mesh, waited for."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property

from shardcall._src.types.blocks import device_label
from shardcall.v1 import kernel_pb2, kernel_service_pb2, mesh_pb2
from shardcall_server.errors import CallError, Reason, shorten
from shardcall_server.frontend.dispatch.mesh_queue import LaunchGrant, MeshQueue
from shardcall_server.frontend.dispatch.supervisor import MeshSupervisor, ReadyMesh
from shardcall_server.frontend.dispatch.transfers import check_no_transfers, find_transfers
from shardcall_server.frontend.memory.call_buffers import CallBuffers, OperandSource
from shardcall_server.frontend.memory.resident_array_table import ResidentArray, array_lost
from shardcall_server.frontend.programs.cache_entry import CacheEntry
from shardcall_server.frontend.programs.keys import AbstractCall, RequestKey
from shardcall_server.frontend.programs.known_answers import KnownAnswers
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.workers.running import Running
from shardcall_server.frontend.workers.session import MeshSession, SessionEndedError
from shardcall_server.kernels.layout import ArrayType, MeshAxes, format_spec
from shardcall_server.link.wire import check_counts, decode_mesh, encode_array_type, encode_mesh
from shardcall_server.settings import Settings
from shardcall_worker.v1 import link_pb2

_LARGE_CALL_BYTES = 1 << 20
_MOST_TOLD = 300
_ONE_DEVICE = MeshAxes((("x", 1),))
_NO_TRANSFERS = kernel_pb2.Plan()


@dataclass(frozen=True)
class Prepared:
    """A call whose program is compiled.

    Attributes:
        call: as the mesh knows it, with nothing about the mesh left open.
        operands: the operands as given.
        mesh: the mesh that holds the program.
        found: the program.
        refuse_transfers: whether to refuse a call that would move an operand on the mesh.
        keeps: whether its results stay on the mesh.
    """

    call: kernel_pb2.KernelCall
    operands: tuple[OperandSource, ...]
    mesh: ReadyMesh
    found: CacheEntry
    refuse_transfers: bool = False
    keeps: bool = False

    @cached_property
    def _transfers(self) -> kernel_pb2.Plan:
        """A plan that holds only the transfers of this call."""
        if not any(operand.resident for operand in self.operands):
            return _NO_TRANSFERS
        return kernel_pb2.Plan(transfers=find_transfers(self.found.plan, self.operands, self.mesh.ready))

    @property
    def plan(self) -> kernel_pb2.Plan:
        """The plan of this call, not to be changed."""
        if not self._transfers.transfers:
            return self.found.plan
        plan = kernel_pb2.Plan()
        plan.CopyFrom(self.found.plan)
        plan.MergeFrom(self._transfers)
        return plan

    @property
    def plan_field(self) -> bytes:
        """The plan as the field of an `ExecuteResponse`, to be appended to the bytes of its other fields."""
        if not self._transfers.transfers:
            return self.found.plan_field
        # A message that comes in two pieces is merged by its reader.
        return self.found.plan_field + kernel_service_pb2.ExecuteResponse(plan=self._transfers).SerializeToString()


class Execution:
    """Finds programs and runs them.

    Args:
        supervisor: keeps the mesh.
        queue: gives calls the mesh.
        known_answers: what vouches for programs.
        settings: the server's.
    """

    def __init__(
        self, supervisor: MeshSupervisor, queue: MeshQueue, known_answers: KnownAnswers, settings: Settings
    ) -> None:
        self._supervisor = supervisor
        self._queue = queue
        self._known_answers = known_answers
        self._settings = settings

    def prepare(
        self,
        call: ServerCall,
        kernel_call: kernel_pb2.KernelCall,
        operands: Sequence[OperandSource],
        *,
        refuse_transfers: bool = False,
        keeps: bool = False,
    ) -> Prepared:
        """Finds the program of a call, compiled now if it has not been.

        Args:
            call: whose it is.
            kernel_call: what is to run.
            operands: as given.
            refuse_transfers: whether to refuse a call that would move an operand on the mesh.
            keeps: whether the results stay on the mesh: what the call may have that travels is no limit to them.

        Raises:
            CallError: the call is wrong, or its deadline passed; the compilation then goes on. Or its kernel is
                known to be compiled wrongly.
        """
        self._check_size(operands)
        kinds = tuple(operand.type for operand in operands)
        resident_arrays = [operand.resident for operand in operands if operand.resident is not None]
        stays = keeps or bool(resident_arrays)
        request = RequestKey(kernel_call.SerializeToString(), kinds, stays)
        mesh = self._supervisor.mesh(call)
        if not resident_arrays and (cached := mesh.programs.get(request)) is not None:
            completed, entry = cached
            call.set_program(entry.plan, entry.program.key, entry.answer)
            self._known_answers.check(entry.program)
            self._check_size(operands, () if keeps else entry.program.results)
            return Prepared(completed.call, tuple(operands), mesh, entry, keeps=keeps)
        if kernel_call.kernel in mesh.kernels:
            call.kernel = kernel_call.kernel
        check_counts(kernel_call, len(operands))
        types = [encode_array_type(kind) for kind in _without_trailing(kinds)]
        while True:
            mesh = self._supervisor.mesh(call)
            _check_epoch(resident_arrays, mesh)
            completed = AbstractCall(self._complete(kernel_call, operands, mesh), types, stays)
            call.check("looking for the program")
            try:
                compiled = mesh.programs.get_or_compile(completed, call.owner)
            except SessionEndedError:
                continue  # the next mesh is on its way; the call waits for it
            if isinstance(compiled, Future):
                with call.phase("compile"):
                    entry = call.wait(compiled, "compiling the kernel")
            else:
                entry = compiled
            if not resident_arrays:
                mesh.programs.alias(request, completed)
            call.set_program(entry.plan, entry.program.key, entry.answer)
            self._known_answers.check(entry.program)
            self._check_size(operands, () if keeps else entry.program.results)
            if refuse_transfers:
                check_no_transfers(entry.plan, operands, mesh.ready)
            return Prepared(completed.call, tuple(operands), mesh, entry, refuse_transfers, keeps)

    def start(
        self, call: ServerCall, prepared: Prepared, buffers: CallBuffers, *, report_gathered: bool = False
    ) -> Running:
        """Hands a call whose operands are in place to the mesh.

        If the mesh ended before that, the next one takes it.

        Args:
            call: whose it is.
            prepared: what runs.
            buffers: where operands are and results go; held until the worker has answered.
            report_gathered: whether the results are wanted piece by piece.

        Raises:
            CallError: no memory for the results, or as `prepare`.
        """
        if buffers.region is not None:
            buffers.region.reserve(buffers.region_bytes, lambda: call.check("making room for the results"))
        again = False
        while True:
            grant = self._queue.acquire(call, _device_bytes(prepared), again=again)
            running = Running(call)
            command = link_pb2.Execute(
                key_digest=prepared.found.program.key,
                operands=buffers.operands,
                results=buffers.results,
                report_gathered=report_gathered,
            )
            try:
                _send(prepared, link_pb2.FrontEndMessage(execute=command), buffers, running, grant)
            except _ProgramGoneError:
                again = True
                refuse = prepared.refuse_transfers
                prepared = self.prepare(
                    call, prepared.call, prepared.operands, refuse_transfers=refuse, keeps=prepared.keeps
                )
                continue
            return running

    def admit(self, call: ServerCall, prepared: Prepared) -> None:
        """Refuses a call that the devices cannot have beside the arrays that stay, before it is given any memory.

        So is one whose program the mesh died of again and again. Waits for the known-answer tests of a program.

        Raises:
            CallError: OUT_OF_DEVICE_MEMORY, PROGRAM_REFUSED, KERNEL_FAILED_KNOWN_ANSWERS.
        """
        self._known_answers.require(call, prepared.found.program)
        prepared.mesh.session.quarantine.check(prepared.found.program.key)
        self._queue.check(_device_bytes(prepared))

    def compiled_text(self, call: ServerCall, prepared: Prepared, limit_bytes: int) -> str:
        """The text of a call's compiled program, cut at a number of bytes."""
        while True:
            running = Running(call)
            command = link_pb2.GetCompiledText(key_digest=prepared.found.program.key, max_bytes=limit_bytes)
            try:
                _send(prepared, link_pb2.FrontEndMessage(get_compiled_text=command), CallBuffers(), running)
            except _ProgramGoneError:
                prepared = self.prepare(call, prepared.call, prepared.operands)
                continue
            return running.finish().compiled_text.text

    def _check_size(self, operands: Sequence[OperandSource], results: Sequence[ArrayType] = ()) -> None:
        """Refuses a call of whose arrays too much travels."""
        nbytes = sum(operand.type.nbytes for operand in operands if operand.type and operand.resident is None)
        what = "operands and results" if results else "operands"
        nbytes += sum(result.nbytes for result in results)
        limit = self._settings.max_call_bytes
        if nbytes > limit:
            raise CallError(
                Reason.CALL_TOO_LARGE,
                f"the {what} are {nbytes} bytes together and one call may have {limit}; split the work, leave arrays "
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
        """The call with its mesh filled in, and said in the fewest words: equal calls are equal messages.

        Arrays on the mesh bring their own mesh and specs, where the call leaves these open.
        """
        completed = kernel_pb2.KernelCall()
        completed.CopyFrom(call)
        completed.DiscardUnknownFields()
        completed.strategy = call.strategy or "auto"
        _keep_where_they_lie(completed, operands)
        for given in (completed.in_specs, completed.out_specs):
            while given and not given[-1].HasField("spec"):
                del given[-1]
        if call.kernel in mesh.kernels:
            for info in mesh.kernels[call.kernel].parameters:
                if info.name in call.parameters and info.default_value == call.parameters[info.name]:
                    del completed.parameters[info.name]
        if not completed.HasField("mesh"):
            specs = [*call.in_specs, *call.out_specs]
            large = _bytes_of(operands) >= _LARGE_CALL_BYTES or any(spec.HasField("spec") for spec in specs)
            axes = default_mesh(self._settings, mesh.ready) if large else _ONE_DEVICE
            completed.mesh.CopyFrom(encode_mesh(axes))
        return completed


def _keep_where_they_lie(call: kernel_pb2.KernelCall, operands: Sequence[OperandSource]) -> None:
    if not call.HasField("mesh"):
        _check_same_devices(operands)
    for i, operand in enumerate(operands):
        resident = operand.resident
        if resident is None:
            continue
        if not call.HasField("mesh"):
            call.mesh.CopyFrom(resident.mesh)
        while len(call.in_specs) <= i:
            call.in_specs.add()
        if not call.in_specs[i].HasField("spec") and _axes(call.mesh) == _axes(resident.mesh):
            call.in_specs[i].spec.CopyFrom(resident.placement.spec)


def _check_same_devices(operands: Sequence[OperandSource]) -> None:
    """Arrays that somebody placed move only where somebody says so: a call that names its mesh.

    Raises:
        CallError: INVALID_MESH.
    """
    there = [(i, operand.resident) for i, operand in enumerate(operands) if operand.resident is not None]
    for i, resident in there[1:]:
        first, known = there[0]
        if resident.mesh.device_ids == known.mesh.device_ids:
            continue
        same = set(resident.mesh.device_ids) == set(known.mesh.device_ids)
        raise CallError(
            Reason.INVALID_MESH,
            f"operand {first} lies on {_where(known)} and operand {i} on {_where(resident)}"
            f"{', the same devices in another order' if same else ''}; set the call's mesh to say where they are to "
            "meet, or put one of them again, over the mesh of the other",
            field="mesh",
        )


def _where(resident: ResidentArray) -> str:
    spec = format_spec(tuple(tuple(entry.axis_names) for entry in resident.placement.spec.entries))
    told = f"{decode_mesh(resident.mesh)} of devices {device_label(tuple(resident.mesh.device_ids))} as {spec}"
    return shorten(told, _MOST_TOLD)


def _axes(mesh: mesh_pb2.Mesh) -> list[tuple[str, int]]:
    return [(axis.name, axis.size) for axis in mesh.axes]


def _bytes_of(operands: Sequence[OperandSource]) -> int:
    return sum(operand.type.nbytes for operand in operands if operand.type)


def _check_epoch(resident_arrays: Sequence[ResidentArray], mesh: ReadyMesh) -> None:
    for resident in resident_arrays:
        if resident.epoch != mesh.session.epoch:
            raise array_lost(resident.handle)


def _without_trailing(kinds: Sequence[ArrayType | None]) -> Sequence[ArrayType | None]:
    """The operands' types less those left out at the end."""
    present = [i for i, kind in enumerate(kinds) if kind is not None]
    return kinds[: present[-1] + 1] if present else ()


def default_mesh(settings: Settings, ready: link_pb2.Ready) -> MeshAxes:
    """The server's default mesh: as set, else one axis over all devices."""
    return MeshAxes(settings.mesh_axes or (("x", len(ready.devices)),))


class _ProgramGoneError(Exception):
    """The mesh no longer holds the program: it was evicted, or the mesh ended."""


def _device_bytes(prepared: Prepared) -> int:
    """What a call takes on the devices while it runs, beside the arrays that stay there."""
    there = sum(operand.resident.device_bytes for operand in prepared.operands if operand.resident is not None)
    return max(0, prepared.found.program.device_bytes - there)


def _send(
    prepared: Prepared,
    message: link_pb2.FrontEndMessage,
    buffers: CallBuffers,
    running: Running,
    grant: LaunchGrant | None = None,
) -> None:
    """Sends a command that names a program; the worker then holds the memory until it has answered."""
    session, program = prepared.mesh.session, prepared.found.program
    try:
        with session.launch_lock:
            if program.evicted:
                raise _ProgramGoneError
            plan = prepared.found.plan if message.HasField("execute") else None
            hand_over(session, message, buffers, running, grant, plan)
    except SessionEndedError:
        raise _ProgramGoneError from None
    except _ProgramGoneError:
        if grant is not None:
            grant.release()
        raise


def hand_over(
    session: MeshSession,
    message: link_pb2.FrontEndMessage,
    buffers: CallBuffers,
    running: Running,
    grant: LaunchGrant | None = None,
    plan: kernel_pb2.Plan | None = None,
) -> None:
    """Sends a command; the worker then has its memory and grant until it has answered, whatever becomes of the caller.

    Raises:
        SessionEndedError: the mesh ended before.
    """
    message.request_id = running.request_id
    buffers.acquire()

    def answered(_: object = None) -> None:
        try:
            buffers.release()
        finally:
            if grant is not None:
                grant.release()

    try:
        answer = session.command(message, buffers.memory, running.advance, running.is_wanted, plan)
    except BaseException:
        answered()
        raise
    answer.add_done_callback(answered)
    running.sent(session, answer)
