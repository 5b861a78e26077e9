"""Keeps a mesh running: starts it, notices its end, starts the next."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property, partial

import structlog

from shardcall.v1 import kernel_pb2
from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.call import Call
from shardcall_server.frontend.programs.cache import ProgramCache
from shardcall_server.frontend.workers.session import MeshSession
from shardcall_worker.v1 import link_pb2

_BACK_OFF_S = (0.0, 0.0, 0.5, 1.0, 2.0, 5.0)
_MAX_FAILED_STARTS = 3  # a mesh that never came up is set up wrongly


@dataclass(frozen=True)
class Mesh:
    """A mesh that answers: its session, what it said of itself, and the programs it holds."""

    session: MeshSession
    ready: link_pb2.Ready
    programs: ProgramCache

    @cached_property
    def kernels(self) -> dict[str, kernel_pb2.KernelDescription]:
        """The kernels by name."""
        return {kernel.name: kernel for kernel in self.ready.kernels}


class MeshSupervisor:
    """Starts the mesh and starts it again whenever it ends.

    One thread starts every worker and lives as long as the front end: Linux ends a worker with the
    *thread* that started it.

    Args:
        open_session: starts a worker.
        make_programs: makes the program cache of a new session.
        on_change: told True when the mesh answers, False when it has ended.
        on_end: told the epoch of a session that has ended.
    """

    def __init__(
        self,
        open_session: Callable[[], MeshSession],
        make_programs: Callable[[MeshSession], ProgramCache],
        on_change: Callable[[bool], None],
        on_end: Callable[[int], None],
    ) -> None:
        self._open_session = open_session
        self._make_programs = make_programs
        self._on_change = on_change
        self._on_end = on_end
        self._lock = threading.Lock()
        self._mesh: Future[Mesh] = Future()
        self.session: MeshSession | None = None
        """The present session, whether it answers yet or not."""
        self._stopping = threading.Event()
        self._failures = 0
        self._never_ready = True
        self._thread = threading.Thread(target=self._supervise, name="mesh-supervisor", daemon=True)
        self._thread.start()

    def mesh(self, call: Call) -> Mesh:
        """The mesh, once it answers.

        Raises:
            CallError: the last start failed, or the call's deadline passed first.
        """
        with self._lock:
            if self._mesh.done() and self._mesh.result().session.ended:
                self._mesh = Future()
            current = self._mesh
        if current.done():
            return current.result()
        with call.phase("queue"):
            if self._failures:
                raise CallError(
                    Reason.MESH_NOT_READY,
                    "the mesh could not be started and is tried again; repeat the call later, and see the "
                    "server's log for the reason",
                )
            return call.wait(current, "waiting for the mesh to start")

    def wait_ready(self, timeout_s: float) -> Mesh:
        """The first mesh, for the start of the server.

        Raises:
            CallError: it ended instead, or did not answer in time.
        """
        return self._mesh.result(timeout_s)

    def stop(self, timeout_s: float) -> None:
        """Ends the mesh for good, after what it has launched."""
        self._stopping.set()
        with self._lock:
            session = self.session
        if session is not None:
            session.shut_down(timeout_s)
        self._thread.join(timeout_s)

    def _supervise(self) -> None:
        while not self._stopping.is_set():
            error = self._run_session()
            if self._stopping.is_set():
                return
            self._failures = self._failures + 1 if error else 0
            with self._lock:
                if self._mesh.done():
                    self._mesh = Future()
                elif error and self._failures == _MAX_FAILED_STARTS and self._never_ready:
                    self._mesh.set_exception(error)
                    return
            self._on_change(False)
            self._stopping.wait(_BACK_OFF_S[min(self._failures, len(_BACK_OFF_S) - 1)])

    def _run_session(self) -> BaseException | None:
        """Runs one session to its end; returns why it never became ready, if it did not.

        Nothing that goes wrong may end the supervisor's thread: no descriptors left, say, or a message of the
        worker's that is none.
        """
        log = structlog.get_logger()
        try:
            session = self._open_session()
            with self._lock:
                self.session = session
            session.ready.add_done_callback(partial(self._announce, session))
            try:
                status = session.run()
            finally:
                self._on_end(session.epoch)
        except Exception as error:
            log.exception("the mesh failed and is started again")
            return error
        if not self._stopping.is_set():
            log.warning("the mesh ended and is started again", exit_status=status, pid=session.pid)
        return session.ready.exception()

    def _announce(self, session: MeshSession, ready: Future[link_pb2.Ready]) -> None:
        if ready.exception() is not None:
            return
        with self._lock:
            self._never_ready = False
            self._mesh.set_result(Mesh(session, ready.result(), self._make_programs(session)))
        self._on_change(True)
