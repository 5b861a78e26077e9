"""A command that the mesh executes, and the progress of its results."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from shardcall.v1 import kernel_pb2
from shardcall_server.frontend.dispatch.mesh_queue import LaunchGrant
from shardcall_server.frontend.memory.call_buffers import CallBuffers
from shardcall_server.frontend.rpc.promise import Promise
from shardcall_server.frontend.rpc.server_call import KeptResult, ServerCall
from shardcall_server.frontend.workers.command import head
from shardcall_server.frontend.workers.session import MeshSession
from shardcall_worker.v1 import link_pb2


class RunningCommand:
    """A command that the mesh executes, for the one thread that handles its call.

    Args:
        call: the call; the worker's phases are added to its timing.
        buffers: the buffers of the command, retained until the worker has answered.
        grant: the grant of the command, released then; None if it needs none.
        doing: the work, for the error of a deadline.

    Attributes:
        execute_s: the time that the devices took, in seconds, once it is answered.
    """

    def __init__(
        self,
        call: ServerCall,
        buffers: CallBuffers,
        grant: LaunchGrant | None = None,
        doing: str = "running the kernel",
    ) -> None:
        self._call = call
        self._doing = doing
        self._buffers = buffers
        self._grant = grant
        self._began = time.monotonic()
        self._answered = math.inf
        self.execute_s = 0.0
        self._accounted = False
        self._session: MeshSession | None = None
        self._answer: Promise[link_pb2.WorkerMessage]
        self._lock = threading.Lock()  # guards the next three; no promise is set under it
        self._gathered: float = 0
        self._awaited_bytes: float = 0
        self._reached: Promise[None] | None = None

    def send(
        self,
        session: MeshSession,
        message: link_pb2.FrontEndMessage,
        plan: kernel_pb2.Plan | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Sends the command; buffers and grant are released when it is answered, even if the caller has left.

        Args:
            plan: the placement of its arrays on the mesh; None if it moves no array.
            check: called before it is sent, while the launch lock is held; if it raises, nothing is sent, and the grant
                is released.

        Raises:
            SessionEndedError: the mesh has ended; the command was not sent, and the grant is released.
            IsolatedError: a program runs alone; likewise.
        """
        message.request_id = self._call.request_id
        buffers = self._buffers
        if buffers.memory:
            buffers.acquire()
        try:
            with session.launch_lock:
                if check is not None:
                    check()
                owner = self._call.owner
                answer = session.command(message, buffers.memory, self.advance, self._is_needed, plan, owner)
        except BaseException:
            self._release()
            raise
        self._session = session
        self._answer = answer
        # Without the launch lock: if the answer has come, the grant is released here, and other calls continue.
        answer.add_done_callback(self._finished)

    def keep(self, results: Sequence[KeptResult]) -> None:
        """Records that the call has left results on the mesh."""
        self._call.kept_results = results

    def _is_needed(self) -> bool:
        return self._call.is_active

    def advance(self, byte_count: float) -> None:
        """Records the number of bytes of the results that are gathered."""
        reached = None
        with self._lock:
            self._gathered = max(self._gathered, byte_count)
            if self._gathered >= self._awaited_bytes:
                reached, self._reached = self._reached, None
        if reached is not None:
            reached.set_result(None)

    def wait_for(self, byte_count: int) -> None:
        """Waits until this many bytes of the results are gathered.

        Raises:
            CallError: the command failed, the deadline passed or the caller left.
        """
        reached: Promise[None] = Promise()
        with self._lock:
            if self._gathered < byte_count:
                self._awaited_bytes, self._reached = byte_count, reached
            else:
                reached.set_result(None)
        self._call.block(reached, self._doing)
        if self._answer.done():
            self._answer.result()

    def finish(self) -> link_pb2.WorkerMessage:
        """Waits for the answer on this thread; as `answer`."""
        return self._call.run(self.answer())

    async def answer(self) -> link_pb2.WorkerMessage:
        """Returns the answer; the first call adds the time spent to the call's timing.

        Raises:
            CallError: as `wait_for`.
        """
        message = None
        try:
            message = await self._call.wait(self._answer, self._doing)
        finally:
            if not self._accounted:
                self._accounted = True
                self._account(message)
        return message

    def _account(self, message: link_pb2.WorkerMessage | None) -> None:
        """Adds the worker's phases; the rest was spent waiting for the mesh, unless the command still executes.

        Args:
            message: the answer; None if there is none.
        """
        worked_s, answered, phases = 0.0, min(self._answered, time.monotonic()), self._call.phases
        if message is not None:
            spent = message.executed
            self.execute_s = spent.execute_seconds
            place_s = spent.place_seconds + message.array_put.place_seconds
            # Consecutive; the last phase ends with the answer.
            parts = ("gather", spent.gather_seconds), ("execute", spent.execute_seconds), ("place", place_s)
            for phase, seconds in parts:
                if seconds:
                    phases.append((phase, seconds, answered - worked_s))
                    worked_s += seconds
        waited_s = max(0.0, answered - self._began - worked_s)
        is_executing = message is None and self._is_executing()
        phases.append(("execute" if is_executing else "queue", waited_s, self._began + waited_s))

    def _is_executing(self) -> bool:
        """Returns whether the devices are executing this command; only the worker knows since when."""
        now = head(self._session.commands()) if self._session is not None else None
        return now is not None and now.answer is self._answer

    @property
    def epoch(self) -> int:
        """The epoch of the session that executes the command."""
        assert self._session is not None
        return self._session.epoch

    @contextmanager
    def deleted_unless_done(self, array_ids: Sequence[int]) -> Iterator[None]:
        """Deletes the arrays that the command keeps on the mesh if the body fails: no client knows their handles."""
        try:
            yield
        except BaseException:
            self.delete_when_done(array_ids)
            raise

    def when_done(self, callback: Callable[[], object]) -> None:
        """Calls back once the command is answered; at once if it was not sent."""
        if self._session is None:
            callback()
        else:
            self._answer.add_done_callback(lambda _: callback())

    def delete_when_done(self, array_ids: Sequence[int]) -> None:
        """Deletes the arrays that the command keeps on the mesh, once it is answered."""
        delete = link_pb2.FrontEndMessage(delete_arrays=link_pb2.DeleteArrays(array_ids=array_ids))
        if (session := self._session) is not None:  # a command sent before the array exists would delete nothing
            self._answer.add_done_callback(lambda _: session.notify(delete))

    def _finished(self, _: object) -> None:
        self._answered = time.monotonic()
        try:
            self._release()
        finally:
            with self._lock:
                self._gathered = math.inf
                reached, self._reached = self._reached, None
            if reached is not None:
                reached.set_result(None)

    def _release(self) -> None:
        try:
            if self._buffers.memory:
                self._buffers.release()
        finally:
            if self._grant is not None:
                self._grant.release()
