"""A command that the mesh executes, and the progress of its results."""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager

from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.workers.command import head
from shardcall_server.frontend.workers.session import MeshSession
from shardcall_worker.v1 import link_pb2

_DOING = "running the kernel"


class Running:
    """A command that the mesh executes, for the one thread that handles its call.

    Args:
        call: the call; the worker's phases are added to its timing.
    """

    def __init__(self, call: ServerCall) -> None:
        self._call = call
        self._began = time.monotonic()
        self._answered = math.inf
        self._accounted = False
        self._session: MeshSession | None = None
        self._answer: Future[link_pb2.WorkerMessage]
        self._lock = threading.Lock()
        self._gathered: float = 0
        self._wanted: float = 0
        self._reached: Future[None] | None = None

    @property
    def request_id(self) -> str:
        """The request id of the call."""
        return self._call.request_id

    def sent(self, session: MeshSession, answer: Future[link_pb2.WorkerMessage]) -> None:
        """Records that the command was sent, and the future of its answer."""
        self._session = session
        self._answer = answer
        # A strong reference would form a cycle that keeps the call, and gRPC's stream, alive.
        finished = weakref.WeakMethod(self._finished)
        answer.add_done_callback(lambda _: callback() if (callback := finished()) is not None else None)

    def is_wanted(self) -> bool:
        """Returns whether a caller waits for the answer."""
        return self._call.is_wanted

    def advance(self, byte_count: float) -> None:
        """Records the number of bytes of the results that are gathered."""
        with self._lock:
            self._gathered = max(self._gathered, byte_count)
            if self._reached is not None and self._gathered >= self._wanted:
                self._reached.set_result(None)
                self._reached = None

    def wait_for(self, byte_count: int) -> None:
        """Waits until this many bytes of the results are gathered.

        Raises:
            CallError: the command failed, the deadline passed or the caller left.
        """
        reached: Future[None] = Future()
        with self._lock:
            if self._gathered < byte_count:
                self._wanted, self._reached = byte_count, reached
            else:
                reached.set_result(None)
        self._call.run(self._call.wait(reached, _DOING))
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
        try:
            return await self._call.wait(self._answer, _DOING)
        finally:
            if not self._accounted:
                self._accounted = True
                self._account()

    def _account(self) -> None:
        """Adds the worker's phases; the rest was spent waiting for the mesh, unless the command still executes."""
        worked_s, answered = 0.0, min(self._answered, time.monotonic())
        if self._answer.done() and self._answer.exception() is None:
            answer = self._answer.result()
            spent = answer.executed
            phases = {"place": spent.place_seconds, "execute": spent.execute_seconds, "gather": spent.gather_seconds}
            phases["place"] += answer.array_put.place_seconds
            for phase, seconds in reversed(phases.items()):  # consecutive; the last phase ends with the answer
                if not seconds:
                    continue
                self._call.add(phase, seconds, answered - worked_s)
                worked_s += seconds
        waited_s = max(0.0, answered - self._began - worked_s)
        self._call.add("execute" if self._is_executing() else "queue", waited_s, self._began + waited_s)

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
            delete = link_pb2.FrontEndMessage(delete_arrays=link_pb2.DeleteArrays(array_ids=array_ids))
            if (session := self._session) is not None:  # a command sent before the array exists would delete nothing
                self._answer.add_done_callback(lambda _: session.notify(delete))
            raise

    def _finished(self) -> None:
        self._answered = time.monotonic()
        self.advance(math.inf)
