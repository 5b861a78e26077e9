"""A command that the mesh works on, and how far its results are."""

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
    """The answer to come, for the one thread that handles the call.

    Args:
        call: whose it is; the worker's phases are added to its timing.
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
        """The call's."""
        return self._call.request_id

    def sent(self, session: MeshSession, answer: Future[link_pb2.WorkerMessage]) -> None:
        """Tells that the command is with a worker, and what its answer will be in."""
        self._session = session
        self._answer = answer
        # A future keeps its callbacks, and this one that future: together they would keep the call, and gRPC's stream.
        finished = weakref.WeakMethod(self._finished)
        answer.add_done_callback(lambda _: told() if (told := finished()) is not None else None)

    def is_wanted(self) -> bool:
        """Whether anybody waits for the answer."""
        return self._call.is_wanted

    def advance(self, byte_count: float) -> None:
        """Tells how many bytes of the results are in place."""
        with self._lock:
            self._gathered = max(self._gathered, byte_count)
            if self._reached is not None and self._gathered >= self._wanted:
                self._reached.set_result(None)
                self._reached = None

    def wait_for(self, byte_count: int) -> None:
        """Waits until so many bytes of the results are in place.

        Raises:
            CallError: the command failed, the deadline passed or the caller left.
        """
        reached: Future[None] = Future()
        with self._lock:
            if self._gathered < byte_count:
                self._wanted, self._reached = byte_count, reached
            else:
                reached.set_result(None)
        self._call.wait(reached, _DOING)
        if self._answer.done():
            self._answer.result()

    def finish(self) -> link_pb2.WorkerMessage:
        """Waits for the answer, and accounts for the time the first time that it is asked.

        Raises:
            CallError: as `wait_for`.
        """
        try:
            return self._call.wait(self._answer, _DOING)
        finally:
            if not self._accounted:
                self._accounted = True
                self._account()

    def _account(self) -> None:
        """Adds the worker's phases; what it did not use was waiting for the mesh, unless it is at work still."""
        worked_s, answered = 0.0, min(self._answered, time.monotonic())
        if self._answer.done() and self._answer.exception() is None:
            answer = self._answer.result()
            spent = answer.executed
            phases = {"place": spent.place_seconds, "execute": spent.execute_seconds, "gather": spent.gather_seconds}
            phases["place"] += answer.array_put.place_seconds
            for phase, seconds in reversed(phases.items()):  # one after the other, the last until the answer
                self._call.add(phase, seconds, answered - worked_s)
                worked_s += seconds
        waited_s = max(0.0, answered - self._began - worked_s)
        self._call.add("execute" if self._is_under_way() else "queue", waited_s, self._began + waited_s)

    def _is_under_way(self) -> bool:
        """Whether the worker is at this very command; since when, only it knows."""
        now = head(self._session.commands()) if self._session is not None else None
        return now is not None and now.answer is self._answer

    @property
    def epoch(self) -> int:
        """The session that works on it."""
        assert self._session is not None
        return self._session.epoch

    @contextmanager
    def forgotten_unless_done(self, array_ids: Sequence[int]) -> Iterator[None]:
        """Has the mesh forget arrays that the command keeps, if the body fails: nobody would ever name them."""
        try:
            yield
        except BaseException:
            delete = link_pb2.FrontEndMessage(delete_arrays=link_pb2.DeleteArrays(array_ids=array_ids))
            if (session := self._session) is not None:  # a command sent while the array is put would come too early
                self._answer.add_done_callback(lambda _: session.notify(delete))
            raise

    def _finished(self) -> None:
        self._answered = time.monotonic()
        self.advance(math.inf)
