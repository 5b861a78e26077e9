"""Supervisor of the mesh: starts it, and starts it again when it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol

import structlog

from shardcall.v1 import kernel_pb2, server_info_service_pb2
from shardcall_core.call_error import DEVICES_FAILED, CallError, Reason
from shardcall_core.locks import lock
from shardcall_server.frontend.programs.program_cache import ProgramCache
from shardcall_server.frontend.rpc.promise import Promise
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.workers.exit_reason import ExitReason, StopRequest
from shardcall_server.frontend.workers.mesh_history import MeshHistory
from shardcall_server.frontend.workers.session import QUIET_S, MeshSession
from shardcall_server.frontend.workers.watchdog import Watchdog, WatchLimits
from shardcall_server.frontend.workers.worker import Worker, WorkerSource
from shardcall_worker.v1 import link_pb2

_BACK_OFF_S = (0.0, 0.0, 0.5, 1.0, 2.0, 5.0)
_MAX_FAILED_STARTS = 3  # a mesh that never became ready is misconfigured
_WARM_UP_SHARE = 0.5  # of the time limit of a start

_SPARE_WITHIN_S = 10.0  # when spares start even if the mesh is not quiet
_STARTING = "waiting for the mesh to start"

WarmUp = Callable[[MeshSession, ProgramCache], None]
"""Compiles programs of a new session ahead of calls, on a thread of its own, before the mesh is announced."""


class HostsWatcher(Protocol):
    """The state of the hosts of a mesh."""

    def states(self) -> list[server_info_service_pb2.HostState]:
        """Returns the hosts of the mesh."""

    def missing(self) -> str:
        """Returns the names of missing hosts, as text; empty if none is missing."""

    def check_devices(self, ready: link_pb2.Ready) -> str | None:
        """Records the number of devices of each process; returns the reason for a refusal, if any."""


@dataclass(frozen=True)
class ReadyMesh:
    """A mesh that answers: its session, its `Ready` message and its programs."""

    session: MeshSession
    ready: link_pb2.Ready
    programs: ProgramCache

    @cached_property
    def kernels(self) -> dict[str, kernel_pb2.KernelDescription]:
        """The kernels by name."""
        return {kernel.name: kernel for kernel in self.ready.kernels}


def _do_nothing(mesh: ReadyMesh) -> None:
    pass


def _restore_nothing(_: ReadyMesh) -> Promise[None]:
    restored: Promise[None] = Promise()
    restored.set_result(None)
    return restored


@dataclass(frozen=True)
class SupervisorConfig:
    """Configuration of a `MeshSupervisor`.

    Attributes:
        open_session: starts a session with workers.
        make_programs: creates the program cache of a new session.
        on_change: called with True when the mesh answers and with False when it has ended.
        on_session_end: called with the epoch of a session that has ended.
        limits: the time limits of workers.
        warm_up: called before the mesh is announced.
        hosts: the hosts of the mesh; None for a mesh without several hosts.
        restore: puts arrays on a mesh, which is announced when they are there; on the thread that reads the link.
        adopt: called every second with the mesh that answers.
    """

    open_session: Callable[[Sequence[Worker]], MeshSession]
    make_programs: Callable[[MeshSession], ProgramCache]
    on_change: Callable[[bool], None]
    on_session_end: Callable[[int], None]
    limits: WatchLimits
    warm_up: WarmUp | None = None
    hosts: HostsWatcher | None = None
    restore: Callable[[ReadyMesh], Promise[None]] = _restore_nothing
    adopt: Callable[[ReadyMesh], None] = _do_nothing


class MeshSupervisor:
    """Starts the mesh and starts it again whenever it ends."""

    def __init__(self, workers: WorkerSource, config: SupervisorConfig) -> None:
        self._workers = workers
        self._config = config
        self._hosts = config.hosts
        # Guards the current mesh and the calls that wait for it; no call continues under it. gRPC's health
        # service is set under it.
        self._lock = lock("the lock of the supervisor")
        self._mesh: Future[ReadyMesh] = Future()
        self._waiting: set[Future[None]] = set()  # one for each call that waits for that mesh
        self._last: ReadyMesh | None = None
        self.session: MeshSession | None = None
        """The current session, ready or not."""
        self._mesh_history = MeshHistory()
        self._stopping = threading.Event()  # no other session starts
        self._failures = 0
        self._never_ready = True
        self._ready_s = 0.0  # for which the mesh has been ready, in the watchdog's ticks
        self._watchdog = Watchdog(config.limits, self._tick)
        self._thread = threading.Thread(target=self._supervise, name="mesh-supervisor", daemon=True)
        self._thread.start()

    def state(self) -> server_info_service_pb2.MeshState:
        """Returns the state of the mesh and of its hosts."""
        state = self._mesh_history.state(self._workers.spare_ready)
        if self._hosts is not None:
            state.hosts.extend(self._hosts.states())
            state.missing = self._hosts.missing()
        return state

    def exit_counts(self) -> Mapping[str, int]:
        """Returns the number of exits of the mesh by cause."""
        return {cause.value: count for cause, count in self._mesh_history.exit_counts.items()}

    async def mesh(self, call: ServerCall) -> ReadyMesh:
        """Returns the mesh, once it answers.

        Raises:
            CallError: the last start failed, the server stops, or the call's deadline passed first.
        """
        if (last := self._last) is not None and not last.session.ended:
            return last
        with self._lock:
            if self._mesh.done() and self._mesh.result().session.ended:
                self._mesh = Future()
            current = self._mesh
        if current.done():
            return current.result()
        if self._stopping.is_set():
            raise CallError(Reason.SERVER_DRAINING, "the server is stopping and starts no other mesh; use another")
        with call.phase("queue"):
            missing = self._hosts.missing() if self._hosts is not None else ""
            if self._failures and not missing:
                raise CallError(
                    Reason.MESH_NOT_READY,
                    "the mesh could not be started and is started again; repeat the call later, and see the "
                    "server's log for the reason",
                )
            await self._wait(call, current, f"waiting for the mesh's hosts: {missing}" if missing else _STARTING)
        # Another mesh may have ended the wait.
        return current.result() if current.done() else await self.mesh(call)

    @property
    def answers(self) -> bool:
        """True if `mesh` returns a mesh at once."""
        return (last := self._last) is not None and not last.session.ended

    @property
    def latest(self) -> ReadyMesh | None:
        """The last mesh that answered, even if it has ended; None before the first."""
        return self._last

    def last_mesh(self, call: ServerCall) -> ReadyMesh:
        """Returns the last mesh that answered, even if it has ended; waits for the first one if there was none.

        Raises:
            CallError: as `mesh`.
        """
        return self._last or call.run(self.mesh(call))

    def wait_ready(self, timeout_s: float) -> ReadyMesh:
        """Returns the first mesh, for the start of the server.

        Raises:
            CallError: the mesh ended or did not answer in time.
        """
        return self._mesh.result(timeout_s)

    def refuse(self) -> None:
        """Refuses the calls that wait for a mesh; no other one is started."""
        self._stopping.set()
        self._wake_waiting()

    def stop(self, timeout_s: float) -> None:
        """Stops the mesh for good, after the commands that it has launched."""
        self.refuse()
        with self._lock:
            session = self.session
        if session is not None:
            session.shut_down(timeout_s)
        self._watchdog.close()
        self._workers.close()
        self._thread.join(timeout_s)

    async def _wait(self, call: ServerCall, current: Future[ReadyMesh], doing: str) -> None:
        """Waits for a mesh, possibly for days; a call that leaves meanwhile leaves no reference behind."""
        ours: Future[None] = Future()
        with self._lock:
            if current.done() or self._stopping.is_set():
                return
            self._waiting.add(ours)
        try:
            await call.wait(ours, doing)
        finally:
            with self._lock:
                self._waiting.discard(ours)

    def _wake_waiting(self) -> None:
        """Wakes the calls that wait for the mesh; without the lock, since they continue on this thread."""
        with self._lock:
            waiting, self._waiting = self._waiting, set()
        for one in waiting:
            one.set_result(None)

    def _tick(self, passed_s: float) -> None:
        self._workers.tick(passed_s)
        if (session := self.session) is not None:
            session.quarantine.isolation.wake()
        self._ready_s = self._ready_s + passed_s if self._mesh_history.is_ready else 0.0
        if self._mesh_history.is_ready:
            if self._ready_s > _SPARE_WITHIN_S or (session is not None and session.idle_s > QUIET_S):
                self._workers.start_spares()
            if (mesh := self._last) is not None and not mesh.session.ended:
                self._config.adopt(mesh)

    def _supervise(self) -> None:
        while not self._stopping.is_set():
            error = self._run_session()
            if self._stopping.is_set():
                return
            with self._lock:
                if self._mesh.done():
                    self._mesh = Future()
                elif error and self._gives_up(error):
                    self._mesh.set_exception(error)
                    break
            faults = max(self._failures, self._mesh_history.short_sessions)
            self._stopping.wait(_BACK_OFF_S[min(faults, len(_BACK_OFF_S) - 1)])
        self._wake_waiting()

    def _run_session(self) -> BaseException | None:
        """Runs one session to its end; returns the error if it did not become ready.

        No error may end the supervisor's thread, such as a lack of descriptors or a malformed message of a worker.
        """
        log = structlog.get_logger()
        try:
            workers, stood_by = self._workers.acquire()
            try:
                session = self._config.open_session(workers)
            except BaseException:
                for worker in workers:
                    worker.terminate()
                raise
            with self._lock:
                self.session = session
            if self._stopping.is_set():
                session.shut_down(0.0)
            self._watchdog.watch(session, stood_by=stood_by)
            session.ready.add_done_callback(partial(self._try_to_make_ready, session))
            try:
                reason = session.run()
            finally:
                self._config.on_session_end(session.epoch)
        except Exception as error:
            if not self._stopping.is_set():  # else the source of workers is closed
                log.exception("the mesh failed and is started again")
            self._failures += 1
            self._ended(ExitReason(f"the mesh failed with {type(error).__name__}; the server's log has the details"))
            return error
        self._ended(reason)
        # The loss of a spare says nothing about the next worker, which is a new process.
        failure = None if stood_by else session.ready.exception()
        self._failures = self._failures + 1 if failure else 0
        if not (self._stopping.is_set() or (failure and self._gives_up(failure))):
            of_one = {"pid": session.pid} if self._hosts is None else {}
            log.warning("the mesh ended and is started again", reason=reason.text, **of_one)
        return failure

    def _gives_up(self, error: BaseException) -> bool:
        """Returns whether the first mesh is not started again: devices that fail would fail again."""
        is_final = self._failures >= _MAX_FAILED_STARTS or DEVICES_FAILED in str(error)
        return is_final and self._never_ready and self._hosts is None

    def _ended(self, reason: ExitReason) -> None:
        with self._lock:
            self._mesh_history.record_exit(reason)
            self._config.on_change(False)

    def _try_to_make_ready(self, session: MeshSession, ready: Future[link_pb2.Ready]) -> None:
        try:
            self._make_ready(session, ready)
        except Exception as error:  # noqa: BLE001  # a mesh that is never announced would keep every call waiting
            structlog.get_logger().exception("the mesh could not be made ready")
            session.stop(StopRequest(f"it could not be made ready: {error!r}"))

    def _make_ready(self, session: MeshSession, ready: Future[link_pb2.Ready]) -> None:
        if ready.exception() is not None:
            return
        if self._hosts is not None and (wrong := self._hosts.check_devices(ready.result())) is not None:
            session.stop(StopRequest(wrong))
            return
        mesh = ReadyMesh(session, ready.result(), self._config.make_programs(session))
        timer = self._announce_in_time(mesh)  # a disk that hangs keeps the mesh from no other calls
        self._config.restore(mesh).add_done_callback(lambda _: self._prepare_to_announce(mesh, timer))

    def _announce_in_time(self, mesh: ReadyMesh) -> threading.Timer:
        timer = threading.Timer(self._config.limits.start_s * _WARM_UP_SHARE, self._announce, [mesh])
        timer.daemon = True
        timer.start()
        return timer

    def _prepare_to_announce(self, mesh: ReadyMesh, timer: threading.Timer) -> None:
        if (warm_up := self._config.warm_up) is None:
            timer.cancel()
            self._announce(mesh)
            return
        threading.Thread(target=self._warm_up, args=[warm_up, mesh, timer], name="warm-up", daemon=True).start()

    def _warm_up(self, warm_up: WarmUp, mesh: ReadyMesh, timer: threading.Timer) -> None:
        try:
            warm_up(mesh.session, mesh.programs)
        except Exception as error:  # noqa: BLE001  # the mesh serves without warm-up too
            structlog.get_logger().warning("the warm-up failed", reason=repr(error))
        timer.cancel()
        self._announce(mesh)

    def _announce(self, mesh: ReadyMesh) -> None:
        """Gives the mesh to waiting calls, unless it has ended or was announced already."""
        with self._lock:
            if mesh.session.ended or self._mesh_history.is_ready or mesh.session is not self.session:
                return
            self._never_ready = False
            self._mesh_history.record_ready()
            self._last = mesh
            self._mesh.set_result(mesh)
            self._config.on_change(True)
        self._wake_waiting()
