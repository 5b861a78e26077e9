"""Checkpoints of arrays with names, which are on the mesh again after a restart of the mesh or of the server."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

import structlog

from shardcall.v1 import mesh_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_server.frontend.dispatch.array_writer import device_bytes_of, plan_of
from shardcall_server.frontend.dispatch.host_resources import HostResources
from shardcall_server.frontend.dispatch.kernel_runner import wait_computed
from shardcall_server.frontend.dispatch.running_command import RunningCommand
from shardcall_server.frontend.dispatch.supervisor import ReadyMesh
from shardcall_server.frontend.files.array_folder import ArrayFolder
from shardcall_server.frontend.files.checkpoint_folder import (
    Checkpoint,
    CheckpointArray,
    ends_at,
    file_bytes,
    is_expired,
    new_file,
)
from shardcall_server.frontend.files.npy_header import header_of
from shardcall_server.frontend.memory.array_names import check_name, no_array
from shardcall_server.frontend.memory.call_buffers import CallBuffers
from shardcall_server.frontend.memory.open_file import OpenFile
from shardcall_server.frontend.memory.resident_array_table import Reservation, ResidentArray, array_lost
from shardcall_server.frontend.rpc.promise import Promise
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.workers.session import SessionEndedError, mesh_restarted
from shardcall_server.link.wire import decode_array_type, encode_array_type
from shardcall_worker.v1 import link_pb2

MAX_NAMES = 1024
"""The most names of one request."""

_LEASE_ID_BYTES = 16
_DECLARED_AT_ONCE = 256  # arrays of a command to the worker


class _Moment(NamedTuple):
    """The moment of a checkpoint: its time, in seconds since 1970, and the deletions before it during its save."""

    time_s: float
    deletions: int


class _Countdown:
    """A promise that is done when others are, of which `end` follows the last."""

    def __init__(self) -> None:
        self.done: Promise[None] = Promise()
        self._pending = 1  # until `end`
        self._lock = threading.Lock()  # guards `_pending`

    def add(self, answer: Promise[link_pb2.WorkerMessage]) -> None:
        with self._lock:
            self._pending += 1
        answer.add_done_callback(lambda _: self.end())

    def end(self) -> None:
        with self._lock:
            self._pending -= 1
            is_last = not self._pending
        if is_last:
            self.done.set_result(None)


class Checkpoints:
    """Writes checkpoints, and restores the last ones on each mesh.

    Args:
        folder: the files.
        host_resources: the table of arrays, and the files of commands.
        mesh: returns the mesh, once it answers.
    """

    def __init__(
        self, folder: ArrayFolder, host_resources: HostResources, mesh: Callable[[ServerCall], Awaitable[ReadyMesh]]
    ) -> None:
        self._files = folder
        self._folder = folder.checkpoints
        self._host_resources = host_resources
        self._table = host_resources.array_table
        self._mesh = mesh
        self._lock = threading.Lock()  # guards `_writing`
        self._writing: dict[str, Promise[None]] = {}  # done when a checkpoint of the principal is written
        self._begun_epoch = self._restored_epoch = 0  # the meshes whose restoration has begun, and is complete

    async def save(self, call: ServerCall, names: Sequence[str]) -> Checkpoint:
        """Writes a checkpoint of the caller; returns it.

        Args:
            names: the names whose arrays change in it; none for all, which replaces it.

        Raises:
            CallError: ARRAY_LOST, INVALID_PARAMETER, FILE_LIMIT, FILES_UNAVAILABLE; the error of a call that should
                have computed an array; the deadline passed or the caller left.
        """
        owner = call.principal_name
        _check_names(names)
        used_bytes = self._files.used_bytes(owner)
        done = await self._next_of(call, owner)
        running = RunningCommand(call, buffers := CallBuffers())
        new: list[str] = []
        is_entered = False
        try:
            mesh = await self._mesh(call)
            self._check_restored(mesh)
            buffers.memory.append(file := self._opened_folder())
            try:
                moment, named, arrays = self._begin(mesh, running, file, owner, names, used_bytes, new)
            finally:
                file.release()
            if new:
                await self._written(call, running, named)
            checkpoint = self._enter(owner, moment, arrays, new, keeps_others=bool(names))
            is_entered = True
            return checkpoint
        finally:
            running.when_done(partial(self._end, owner, done, () if is_entered else new))

    def _opened_folder(self) -> OpenFile:
        return self._host_resources.open_file(self._folder.fd, self._folder.path, marker=self._folder.marker)

    def _check_restored(self, mesh: ReadyMesh) -> None:
        """Refuses to replace a checkpoint whose arrays are not on the mesh yet."""
        if self._restored_epoch != mesh.session.epoch:
            raise CallError(
                Reason.FILES_UNAVAILABLE,
                "the checkpoints belong to another server, which has the same --array-dir, or are being restored; save "
                "them there, or again when it has ended",
            )

    async def _next_of(self, call: ServerCall, owner: str) -> Promise[None]:
        """Waits for the saves of a principal before: they are one after another, in the order of their moments."""
        done: Promise[None] = Promise()
        while True:
            with self._lock:
                before = self._writing.setdefault(owner, done)
            if before is done:
                self._folder.begin_save(owner)
                return done
            await call.wait(before, "waiting for another checkpoint")

    def _end(self, owner: str, done: Promise[None], files: Sequence[str]) -> None:
        """Ends a save of a principal, after which the next may begin; removes files that no checkpoint has."""
        self._folder.remove(files)
        self._folder.end_save(owner)
        with self._lock:
            del self._writing[owner]
        done.set_result(None)

    def _begin(
        self,
        mesh: ReadyMesh,
        running: RunningCommand,
        file: OpenFile,
        owner: str,
        names: Sequence[str],
        used_bytes: int,
        new: list[str],
    ) -> tuple[_Moment, list[ResidentArray], list[CheckpointArray]]:
        """Sends the command that writes the arrays that have changed.

        Args:
            used_bytes: the bytes of the other files of the principal.
            new: gets the names of the new files.

        Returns:
            The moment of the checkpoint, the arrays on the mesh, and as they are in it.
        """
        with mesh.session.launch_lock:  # between the choice of the arrays and the command no other one is sent
            moment = _Moment(time.time(), self._folder.deletions(owner))
            named = self._named(owner, names)
            if mesh.session.ended:  # before its names are removed, so that none is missing here
                raise mesh_restarted()
            arrays = [self._described(resident) for resident in named]
            others = self._others(owner, arrays, keeps_others=bool(names))
            self._files.check_checkpoint(owner, sum(map(file_bytes, [*arrays, *others])), used_bytes)
            command = link_pb2.WriteArrays(memory_id=file.memory_id)
            for resident, array in zip(named, arrays, strict=True):
                if not self._folder.has(owner, resident.name, resident.handle):
                    if resident.epoch != mesh.session.epoch:
                        raise array_lost(resident.handle)
                    command.files.add(array_id=resident.array_id, name=array.file, header=header_of(resident.type))
            new.extend(written.name for written in command.files)
            if command.files:
                try:
                    running.send(mesh.session, link_pb2.FrontEndMessage(write_arrays=command))
                except SessionEndedError:
                    raise mesh_restarted() from None
        return moment, named, arrays

    def _named(self, owner: str, names: Sequence[str]) -> list[ResidentArray]:
        there = {resident.name: resident for resident in self._table.of_names(owner) if not resident.guest}
        for name in names:
            if name not in there:
                raise no_array(name, self._folder.note(owner, name))
        return [there[name] for name in (dict.fromkeys(names) or there)]

    def _described(self, resident: ResidentArray) -> CheckpointArray:
        """Returns an array as a checkpoint has it: in the file of the last one, or else in a new one."""
        ends_at_seconds = ends_at(resident.expires_at - self._table.now())
        before = self._folder.find(resident.owner, resident.name)
        if before is not None and before.handle == resident.handle:
            array = CheckpointArray()
            array.CopyFrom(before)
            array.ends_at_seconds = ends_at_seconds
            return array
        return CheckpointArray(
            name=resident.name,
            handle=resident.handle,
            type=encode_array_type(resident.type),
            mesh=resident.mesh,
            spec=resident.placement.spec,
            file=new_file(),
            offset=len(header_of(resident.type)),
            ends_at_seconds=ends_at_seconds,
        )

    def _others(self, owner: str, arrays: Sequence[CheckpointArray], *, keeps_others: bool) -> list[CheckpointArray]:
        """Returns the arrays of the last checkpoint that stay beside others: those that could not be restored do."""
        names, handles = {array.name for array in arrays}, {array.handle for array in arrays}
        return [
            array
            for array in self._folder.last(owner).arrays
            if (keeps_others or (owner, array.name) in self._folder.unrestored)
            and not (array.name in names or array.handle in handles or is_expired(array))
        ]

    async def _written(self, call: ServerCall, running: RunningCommand, named: Sequence[ResidentArray]) -> None:
        try:
            await running.answer()
        except CallError:
            for resident in named:  # that an array was not computed explains more
                if resident.computed is not None:
                    await wait_computed(call, resident.computed, resident.handle, "names")
            raise

    def _enter(
        self, owner: str, moment: _Moment, arrays: Sequence[CheckpointArray], new: Sequence[str], *, keeps_others: bool
    ) -> Checkpoint:
        """Makes arrays that are on the disk the last checkpoint, without those that were deleted meanwhile."""
        with self._folder.changing():
            there = [array for array in arrays if not self._folder.was_deleted(owner, array, moment.deletions)]
            there += self._others(owner, arrays, keeps_others=keeps_others)
            there.sort(key=lambda array: array.name)
            checkpoint = Checkpoint(time_seconds=moment.time_s, arrays=there)
            self._folder.write(owner, checkpoint)
            self._folder.remove(set(new) - {array.file for array in there})
            for array in arrays:
                self._folder.unrestored.pop((owner, array.name), None)
        return checkpoint

    def adopt(self, mesh: ReadyMesh) -> None:
        """Restores the checkpoints of another server that has ended, or what a fault has left of a restoration."""
        if self._restored_epoch != mesh.session.epoch:
            with contextlib.suppress(SessionEndedError):  # the next mesh gets them
                self.restore(mesh)

    def restore(self, mesh: ReadyMesh) -> Promise[None]:
        """Declares the arrays of the last checkpoints on a mesh, which reads each when it is first used.

        Returns:
            A promise that is done when all hosts have them, or are known not to see the files.
        """
        answers = _Countdown()
        try:
            if not self._folder.take():
                return answers.done
            if self._begun_epoch != mesh.session.epoch:
                self._begun_epoch = mesh.session.epoch
                self._folder.end_mesh()
                self._folder.unrestored.clear()
            self._restore(mesh, answers)
        except CallError as error:  # `adopt` tries again
            structlog.get_logger().warning("the checkpoints are not restored yet", reason=error.message)
        else:
            self._restored_epoch = mesh.session.epoch
        finally:
            answers.end()
        return answers.done

    def _restore(self, mesh: ReadyMesh, answers: _Countdown) -> None:
        file = self._opened_folder()
        try:
            # The largest first: the limit of one principal is a share of what the others leave.
            for owner in sorted(self._folder.owners(), key=self._folder.nbytes, reverse=True):
                arrays = [array for array in self._folder.last(owner).arrays if self._is_missing(owner, array)]
                for begin in range(0, len(arrays), _DECLARED_AT_ONCE):
                    self._declare(mesh, file, owner, arrays[begin : begin + _DECLARED_AT_ONCE], answers)
        finally:
            file.release()

    def _is_missing(self, owner: str, array: CheckpointArray) -> bool:
        """Returns whether an array is to be declared: it has not ended, and was not declared before a fault."""
        there = self._table.handle_of(owner, array.name)
        return not is_expired(array) and there != array.handle

    def _declare(
        self,
        mesh: ReadyMesh,
        file: OpenFile,
        owner: str,
        arrays: Sequence[CheckpointArray],
        answers: _Countdown,
    ) -> None:
        command = link_pb2.DeclareArrays(memory_id=file.memory_id)
        with ExitStack() as stack:
            declared: list[tuple[CheckpointArray, Reservation]] = []
            for array in arrays:
                try:
                    reservation = self._reserved(mesh, owner, array, command)
                except CallError as error:
                    self._leave_out(owner, array, error)
                else:
                    declared.append((array, stack.enter_context(reservation)))
            if not declared:
                return
            message = link_pb2.FrontEndMessage(declare_arrays=command)
            self._folder.declare(written.name for written in command.files)
            file.acquire()
            try:
                answer = mesh.session.command(message, [file])
            except BaseException:
                file.release()
                raise
            answer.add_done_callback(lambda _: file.release())
            restored: list[tuple[CheckpointArray, ResidentArray]] = []
            for (array, reservation), written in zip(declared, command.files, strict=True):
                try:
                    resident = self._commit(mesh, owner, array, reservation, written.array)
                except CallError as error:
                    self._leave_out(owner, array, error)
                else:
                    restored.append((array, resident))
        answer.add_done_callback(partial(self._withdraw_if_failed, mesh, owner, restored))
        answers.add(answer)

    def _withdraw_if_failed(
        self,
        mesh: ReadyMesh,
        owner: str,
        restored: Sequence[tuple[CheckpointArray, ResidentArray]],
        answer: Promise[link_pb2.WorkerMessage],
    ) -> None:
        """Withdraws arrays that a host does not have, since it does not see the files."""
        error = answer.exception()
        if mesh.session.ended or not isinstance(error, CallError):
            return
        for array, resident in restored:
            self._leave_out(owner, array, error)
            self._table.withdraw(resident)

    def _reserved(
        self, mesh: ReadyMesh, owner: str, array: CheckpointArray, command: link_pb2.DeclareArrays
    ) -> Reservation:
        """Reserves memory for an array, and adds it to the command."""
        put = link_pb2.PutArray(type=array.type, mesh=array.mesh, spec=mesh_pb2.OptionalPartitionSpec(spec=array.spec))
        array_type = decode_array_type(array.type, "type")
        nbytes = device_bytes_of(array_type, plan_of(array_type, put, len(mesh.ready.devices)))
        reservation = self._table.reserve(secrets.token_bytes(_LEASE_ID_BYTES), nbytes, owner)
        put.array_id = reservation.array_id
        command.files.add(array=put, name=array.file, offset=array.offset)
        return reservation

    def _commit(
        self,
        mesh: ReadyMesh,
        owner: str,
        array: CheckpointArray,
        reservation: Reservation,
        put: link_pb2.PutArray,
    ) -> ResidentArray:
        array_type = decode_array_type(array.type, "type")
        plan = plan_of(array_type, put, len(mesh.ready.devices))
        nbytes, epoch = reservation.device_bytes, mesh.session.epoch
        resident = reservation.commit(epoch, array_type, plan.mesh, plan.results[0], nbytes, array.handle)
        keep_s = max(array.ends_at_seconds - time.time(), 1e-3) if array.ends_at_seconds else 0.0
        try:
            self._table.name(array.handle, array.name, owner, keep_s=keep_s)
        except CallError:
            self._table.withdraw(resident)
            raise
        return resident

    def _leave_out(self, owner: str, array: CheckpointArray, error: CallError) -> None:
        self._folder.unrestored[owner, array.name] = f"it could not be restored: {error.message}"
        structlog.get_logger().warning(
            "an array of a checkpoint is not restored", principal=owner, name=array.name, reason=error.message
        )


def _check_names(names: Sequence[str]) -> None:
    if len(names) > MAX_NAMES:
        raise CallError(
            Reason.MALFORMED_REQUEST,
            f"the request has {len(names)} names; give at most {MAX_NAMES}, or none for all names",
            field="names",
            metadata={"names": str(len(names)), "allowed": str(MAX_NAMES)},
        )
    for name in names:
        check_name(name)
