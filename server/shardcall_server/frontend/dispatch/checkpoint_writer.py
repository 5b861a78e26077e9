"""Checkpoints of arrays with names, which one command to the workers writes."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from shardcall.v1 import array_service_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_server.frontend.dispatch.checkpoint_restorer import CheckpointRestorer, opened_folder
from shardcall_server.frontend.dispatch.host_resources import HostResources
from shardcall_server.frontend.dispatch.kernel_runner import wait_computed
from shardcall_server.frontend.dispatch.running_command import RunningCommand
from shardcall_server.frontend.dispatch.supervisor import ReadyMesh
from shardcall_server.frontend.files.array_folder import ArrayFolder
from shardcall_server.frontend.files.checkpoint_folder import (
    Checkpoint,
    CheckpointArray,
    CheckpointFolder,
    ends_at,
    file_bytes,
    is_expired,
    new_file,
)
from shardcall_server.frontend.files.npy_header import header_of
from shardcall_server.frontend.memory.array_names import check_name, no_array
from shardcall_server.frontend.memory.call_buffers import CallBuffers
from shardcall_server.frontend.memory.name_versions import check_seen
from shardcall_server.frontend.memory.resident_array_table import ResidentArray, ResidentArrayTable, array_lost
from shardcall_server.frontend.rpc.promise import Promise
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.workers.session import SessionEndedError, mesh_restarted
from shardcall_server.link.wire import encode_array_type
from shardcall_worker.v1 import link_pb2

MAX_NAMES = 1024
"""The most names of one request."""


class CheckpointWriter:
    """Writes the checkpoints of principals, those of one principal one after another.

    Args:
        files: the files of arrays, with the checkpoints.
        host_resources: the table of arrays, and the files of commands.
        restorer: knows whether the arrays of the checkpoint before are on the mesh.
        mesh: returns the mesh, once it answers.
    """

    def __init__(
        self,
        files: ArrayFolder,
        host_resources: HostResources,
        restorer: CheckpointRestorer,
        mesh: Callable[[ServerCall], Awaitable[ReadyMesh]],
    ) -> None:
        self._files = files
        self._folder = files.checkpoints
        self._host_resources = host_resources
        self._restorer = restorer
        self._mesh = mesh
        self._lock = threading.Lock()  # guards `_writing`
        self._writing: dict[str, Promise[None]] = {}  # done when a checkpoint of the principal is written

    async def save(
        self, call: ServerCall, names: Sequence[str], seen: Mapping[str, array_service_pb2.NameVersion]
    ) -> Checkpoint:
        """Writes a checkpoint of the caller; returns it.

        Args:
            names: the names whose arrays change in it; none for all, which replaces it.
            seen: by name, the version that the caller has seen, which no restart may have lost.

        Raises:
            CallError: ARRAY_LOST, INVALID_PARAMETER, FILE_LIMIT, FILES_UNAVAILABLE; the error of a call that should
                have computed an array; the deadline passed or the caller left.
        """
        owner = call.principal_name
        _check_names(names)
        used_bytes = self._files.used_bytes(owner)
        done = await self._next_of(call, owner)
        running = RunningCommand(call, buffers := CallBuffers(), doing="saving the checkpoint")
        save = _Save(self._folder, self._host_resources.array_table, owner, names, seen)
        try:
            mesh = await self._mesh(call)
            self._restorer.check_restored(mesh)
            buffers.memory.append(file := opened_folder(self._folder, self._host_resources))
            try:
                with mesh.session.launch_lock:  # between the choice of the arrays and the command no other one is sent
                    save.choose(mesh)
                    free_bytes = self._files.check_checkpoint(owner, save.nbytes, used_bytes)
                    save.send(mesh, running, file.memory_id)
            finally:
                file.release()
            if save.new_files:
                await _written(call, running, save.resident_arrays)
                save.add_checksums(call)
            return save.enter(free_bytes)
        finally:
            running.when_done(partial(self._end, owner, done, save))

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

    def _end(self, owner: str, done: Promise[None], save: _Save) -> None:
        """Ends a save of a principal, after which the next may begin; removes files that no checkpoint has."""
        if not save.is_entered:
            self._folder.remove(save.new_files)
        self._folder.end_save(owner)
        with self._lock:
            del self._writing[owner]
        done.set_result(None)


class _Save:
    """A checkpoint that is being written.

    Args:
        owner: the principal.
        names: as in `CheckpointWriter.save`.
        seen: likewise.

    Attributes:
        resident_arrays: its arrays on the mesh.
        new_files: the names of the files that are written for it.
        is_entered: whether it is the last checkpoint.
    """

    def __init__(
        self,
        folder: CheckpointFolder,
        table: ResidentArrayTable,
        owner: str,
        names: Sequence[str],
        seen: Mapping[str, array_service_pb2.NameVersion],
    ) -> None:
        self._folder, self._table, self._owner, self._names, self._seen = folder, table, owner, names, seen
        self._time_s = 0.0
        self._deletions = 0  # during the save and before its moment
        self._arrays: list[CheckpointArray] = []  # `resident_arrays`, as they are in the checkpoint
        self.resident_arrays: list[ResidentArray] = []
        self.new_files: list[str] = []
        self.is_entered = False

    def choose(self, mesh: ReadyMesh) -> None:
        """Chooses the moment and the arrays.

        Raises:
            CallError: ARRAY_LOST, MESH_RESTARTED.
        """
        self._time_s, self._deletions = time.time(), self._folder.deletions(self._owner)
        self.resident_arrays = self._named()
        if mesh.session.ended:  # before its names are removed, so that none is missing here
            raise mesh_restarted()
        self._arrays = [self._described(resident) for resident in self.resident_arrays]

    @property
    def nbytes(self) -> int:
        """The bytes of all files of the checkpoint."""
        return sum(map(file_bytes, [*self._arrays, *self._others()]))

    def send(self, mesh: ReadyMesh, running: RunningCommand, memory_id: int) -> None:
        """Sends the command that writes the arrays that have changed, if there are any.

        Args:
            memory_id: the id of the folder.

        Raises:
            CallError: ARRAY_LOST, MESH_RESTARTED.
        """
        command = link_pb2.WriteArrays(memory_id=memory_id)
        for resident, array in zip(self.resident_arrays, self._arrays, strict=True):
            if not self._folder.has(self._owner, resident.name, resident.handle):
                if resident.epoch != mesh.session.epoch:
                    raise array_lost(resident.handle)
                command.files.add(array_id=resident.array_id, name=array.file, header=header_of(resident.type))
        self.new_files = [written.name for written in command.files]
        if self.new_files:
            try:
                running.send(mesh.session, link_pb2.FrontEndMessage(write_arrays=command))
            except SessionEndedError:
                raise mesh_restarted() from None

    def add_checksums(self, call: ServerCall) -> None:
        """Adds their checksums to the arrays that were written.

        Raises:
            CallError: FILES_UNAVAILABLE; the deadline passed or the caller left.
        """
        new_files = {*self.new_files}
        for array in self._arrays:
            if array.file in new_files:
                self._folder.add_checksums(array)
                call.check("saving the checkpoint")

    def enter(self, free_bytes: int) -> Checkpoint:
        """Makes the arrays, which are on the disk, the last checkpoint, without those that were deleted meanwhile.

        Args:
            free_bytes: the bytes that the checkpoint before may have.

        Raises:
            CallError: FILE_LIMIT, FILES_UNAVAILABLE.
        """
        folder, owner = self._folder, self._owner
        with folder.changing():
            there = [array for array in self._arrays if not folder.was_deleted(owner, array, self._deletions)]
            there += self._others()
            there.sort(key=lambda array: array.name)
            checkpoint = Checkpoint(time_seconds=self._time_s, arrays=there)
            folder.write(owner, checkpoint)
            folder.limit_before(owner, free_bytes)
            folder.remove(set(self.new_files) - {array.file for array in there})
            for array in self._arrays:
                folder.unrestored.pop((owner, array.name), None)
        self.is_entered = True
        return checkpoint

    def _named(self) -> list[ResidentArray]:
        there = {resident.name: resident for resident in self._table.of_names(self._owner) if not resident.guest}
        for name in self._names:
            if name not in there:
                raise no_array(name, self._folder.note(self._owner, name))
        chosen = [there[name] for name in (dict.fromkeys(self._names) or there)]
        for resident in chosen:
            if resident.name in self._seen and resident.history is not None:
                check_seen(resident.name, resident.history, self._seen[resident.name])
        return chosen

    def _described(self, resident: ResidentArray) -> CheckpointArray:
        """Returns an array as a checkpoint has it: in the file of the last one, or else in a new one."""
        assert resident.history is not None  # it has a name
        before = self._folder.find(resident.owner, resident.name)
        array = CheckpointArray()
        if before is not None and before.handle == resident.handle:
            array.CopyFrom(before)
        else:
            array = CheckpointArray(
                name=resident.name,
                handle=resident.handle,
                type=encode_array_type(resident.type),
                mesh=resident.mesh,
                spec=resident.placement.spec,
                file=new_file(),
                offset=len(header_of(resident.type)),
                created_at_seconds=self._time_s - (self._table.now() - resident.created_at),
            )
        array.ends_at_seconds = ends_at(resident.expires_at - self._table.now())
        array.time_seconds = self._time_s
        array.history.CopyFrom(resident.history)
        array.ClearField("untested")
        for untested in resident.untested:
            array.untested.add(known_answer=bytes.fromhex(untested.digest), kernel=untested.kernel)
        return array

    def _others(self) -> list[CheckpointArray]:
        """Returns the arrays of the last checkpoint that stay beside these: those that could not be restored do."""
        names, handles = {array.name for array in self._arrays}, {array.handle for array in self._arrays}
        return [
            array
            for array in self._folder.last(self._owner).arrays
            if (self._names or (self._owner, array.name) in self._folder.unrestored)
            and not (array.name in names or array.handle in handles or is_expired(array))
        ]


async def _written(call: ServerCall, running: RunningCommand, resident_arrays: Sequence[ResidentArray]) -> None:
    try:
        await running.answer()
    except CallError:
        for resident in resident_arrays:  # that an array was not computed explains more
            if resident.computed is not None:
                await wait_computed(call, resident.computed, resident.handle, "names")
        raise


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
