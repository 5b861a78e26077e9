"""Arrays with names on a new mesh, which reads them from their checkpoints when they are used."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

import structlog

from shardcall.v1 import mesh_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_server.frontend.dispatch.array_writer import device_bytes_of, plan_of
from shardcall_server.frontend.dispatch.host_resources import HostResources
from shardcall_server.frontend.dispatch.supervisor import ReadyMesh
from shardcall_server.frontend.files.checkpoint_folder import CheckpointArray, CheckpointFolder, is_expired, time_of
from shardcall_server.frontend.memory.leases import UntestedKernel
from shardcall_server.frontend.memory.name_versions import restored_history
from shardcall_server.frontend.memory.open_file import OpenFile
from shardcall_server.frontend.memory.resident_array_table import Reservation, ResidentArray
from shardcall_server.frontend.rpc.promise import Promise
from shardcall_server.frontend.workers.session import SessionEndedError
from shardcall_server.link.wire import decode_array_type
from shardcall_worker.v1 import link_pb2

_LEASE_ID_BYTES = 16
_DECLARED_AT_ONCE = 256  # arrays of a command to the worker


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


def opened_folder(folder: CheckpointFolder, host_resources: HostResources) -> OpenFile:
    """Returns the folder for commands to the workers; its caller is its first user."""
    return host_resources.open_file(folder.fd, folder.path, marker=folder.marker)


class CheckpointRestorer:
    """Restores the last checkpoints of all principals on each mesh.

    Args:
        folder: the checkpoints.
        host_resources: the table of arrays, and the files of commands.
    """

    def __init__(self, folder: CheckpointFolder, host_resources: HostResources) -> None:
        self._folder = folder
        self._host_resources = host_resources
        self._table = host_resources.array_table
        self._begun_epoch = 0  # the mesh whose restoration has begun

    def check_restored(self, mesh: ReadyMesh) -> None:
        """Refuses to replace a checkpoint whose arrays are not on the mesh yet.

        Raises:
            CallError: FILES_UNAVAILABLE.
        """
        if self._folder.restored_epoch != mesh.session.epoch:
            raise CallError(
                Reason.FILES_UNAVAILABLE,
                "the checkpoints belong to another server, which has the same --array-dir, or are being restored; save "
                "them there, or again when it has ended",
            )

    def adopt(self, mesh: ReadyMesh) -> None:
        """Restores the checkpoints of another server that has ended, or what a fault has left of a restoration."""
        if self._folder.restored_epoch != mesh.session.epoch:
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
            self._folder.restored_epoch = mesh.session.epoch
        finally:
            answers.end()
        return answers.done

    def _restore(self, mesh: ReadyMesh, answers: _Countdown) -> None:
        file = opened_folder(self._folder, self._host_resources)
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
        self._folder.check_file(array)
        put = link_pb2.PutArray(type=array.type, mesh=array.mesh, spec=mesh_pb2.OptionalPartitionSpec(spec=array.spec))
        array_type = decode_array_type(array.type, "type")
        nbytes = device_bytes_of(array_type, plan_of(array_type, put, len(mesh.ready.devices)))
        reservation = self._table.reserve(secrets.token_bytes(_LEASE_ID_BYTES), nbytes, owner)
        put.array_id = reservation.array_id
        command.files.add(
            array=put,
            name=array.file,
            offset=array.offset,
            block_checksums=array.block_checksums,
            array_name=array.name,
        )
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
        age_s = max(time.time() - array.created_at_seconds, 0.0) if array.created_at_seconds else 0.0
        untested = tuple(UntestedKernel(item.known_answer.hex(), item.kernel) for item in array.untested)
        resident = reservation.commit(
            epoch, array_type, plan.mesh, plan.results[0], nbytes, array.handle, age_s=age_s, untested=untested
        )
        keep_s = max(array.ends_at_seconds - time.time(), 1e-3) if array.ends_at_seconds else 0.0
        history = restored_history(array.history, time_of(array, self._folder.last(owner)))
        try:
            self._table.name(array.handle, array.name, owner, keep_s=keep_s, history=history)
        except CallError:
            self._table.withdraw(resident)
            raise
        return resident

    def _leave_out(self, owner: str, array: CheckpointArray, error: CallError) -> None:
        self._folder.unrestored[owner, array.name] = f"it could not be restored: {error.message}"
        structlog.get_logger().warning(
            "an array of a checkpoint is not restored", principal=owner, name=array.name, reason=error.message
        )
