"""Errors of calls while there is no mesh; threads of the test stand for the workers."""

import gc
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from server.conftest import refusal
from server.fake_calls import FakeServerCall, RunningStage
from server.fake_workers import PATIENCE_S, FakeWorker, but

from shardcall_core.call_error import CallError, Reason
from shardcall_server.frontend.dispatch.supervisor import MeshSupervisor, SupervisorConfig
from shardcall_server.frontend.rpc.coroutines import Waiting
from shardcall_server.frontend.workers.quarantine import Quarantine
from shardcall_server.frontend.workers.session import MeshSession
from shardcall_server.frontend.workers.watchdog import WatchLimits
from shardcall_worker.v1 import link_pb2

LIMITS = WatchLimits(silence_s=600, start_s=600, execute_s=600, compile_s=600, grace_s=600)
WAITED_FOR: list[weakref.ref[Any]] = []


class Leaver(FakeServerCall):
    """A call that leaves when it has to wait."""

    def block(self, waiting: Waiting) -> None:
        WAITED_FOR.append(weakref.ref(waiting[0]))
        raise CallError(Reason.DEADLINE_EXCEEDED, waiting[1])


CALL: Any = Leaver()


class Source:
    """Starts one worker, which dies before it is ready, and then none."""

    spare_ready = False

    def __init__(self) -> None:
        self.waits = threading.Event()
        self._closed = threading.Event()
        self._left = [FakeWorker("a", but("start"))]

    def acquire(self) -> tuple[Sequence[Any], bool]:
        if self._left:
            self._left[0].die(1)
            return [self._left.pop()], False
        self.waits.set()
        self._closed.wait()
        raise RuntimeError

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Ticks, and starts of spares, are of no use here."""
        return lambda *_: None

    def close(self) -> None:
        self._closed.set()


@pytest.fixture
def hosts() -> Any:
    """The hosts of a mesh, of which some are missing if ``gone`` says so."""
    hosts: Any = SimpleNamespace(gone="", states=list, check_devices=lambda ready: None)
    hosts.missing = lambda: hosts.gone
    return hosts


@pytest.fixture
def supervisor(hosts) -> Iterator[MeshSupervisor]:
    source = Source()
    config = SupervisorConfig(
        open_session=lambda workers: MeshSession(workers, [link_pb2.Start()], Quarantine()),
        make_programs=lambda session: pytest.fail("no mesh is ready"),
        on_change=lambda ready: None,
        on_session_end=lambda epoch: None,
        limits=LIMITS,
        hosts=hosts,
    )
    started = MeshSupervisor(source, config)
    assert source.waits.wait(PATIENCE_S)
    yield started
    started.stop(PATIENCE_S)


def test_calls_wait_for_hosts_though_a_start_without_them_failed_and_leave_nothing_behind(supervisor, hosts):
    hosts.gone = "b (gone for 3 s)"
    with pytest.raises(CallError, match=r"^waiting for the mesh's hosts: b \(gone for 3 s\)$"):
        CALL.run(supervisor.mesh(CALL))
    gc.collect()
    assert WAITED_FOR.pop()() is None


def test_calls_that_wait_for_a_mesh_are_refused_when_the_server_stops(supervisor, hosts):
    hosts.gone = "b"
    waiting = RunningStage(supervisor.mesh(FakeServerCall()))
    assert not waiting.result.done()
    supervisor.refuse()
    assert waiting.result.exception(PATIENCE_S).reason is Reason.SERVER_DRAINING
    assert refusal(CALL.run, supervisor.mesh(CALL)).reason is Reason.SERVER_DRAINING


def test_calls_are_refused_where_all_hosts_are_there_and_the_mesh_does_not_start(supervisor):
    assert refusal(CALL.run, supervisor.mesh(CALL)).reason is Reason.MESH_NOT_READY
