"""A command and its answer, which may come before its sender returns, and slices of loops."""

import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from server.fake_calls import FakeServerCall

from shardcall_core.locks import check_held, rlock
from shardcall_server.frontend.dispatch.loop_slices import LoopSlices
from shardcall_server.frontend.dispatch.running_command import RunningCommand
from shardcall_server.frontend.memory.call_buffers import CallBuffers
from shardcall_server.frontend.rpc.promise import Promise
from shardcall_server.frontend.workers.session import LAUNCH_ORDER
from shardcall_worker.v1 import link_pb2, loop_pb2


class Session:
    """Answers every command at once."""

    def __init__(self) -> None:
        self.launch_lock = rlock("the launch lock", LAUNCH_ORDER)
        self.sent = 0

    def command(self, *_: object) -> Promise[link_pb2.WorkerMessage]:
        check_held(self.launch_lock)
        self.sent += 1
        answer: Promise[link_pb2.WorkerMessage] = Promise()
        answer.set_result(link_pb2.WorkerMessage())
        return answer


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def released(session) -> list[bool]:
    """True if the launch lock was held as the grant was released, when other calls may continue."""
    return []


@pytest.fixture
def running(session, released) -> RunningCommand:
    grant = SimpleNamespace(release=lambda: released.append(session.launch_lock.is_held))
    return RunningCommand(FakeServerCall(request_id="r", phases=[]), CallBuffers(), grant)


@pytest.mark.parametrize("fails", [False, True])
def test_the_check_runs_under_the_launch_lock_and_the_grant_is_released_without_it(running, session, released, fails):
    def check() -> None:
        check_held(session.launch_lock)
        if fails:
            raise ValueError("the program is gone")

    with pytest.raises(ValueError, match="gone") if fails else nullcontext():
        running.send(session, link_pb2.FrontEndMessage(), check=check)
    assert session.sent == (0 if fails else 1)
    assert released == [False]


def test_a_wait_for_bytes_ends_without_the_lock_of_the_progress(running) -> None:
    reached: Promise[None] = Promise()
    held: list[bool] = []
    reached.add_done_callback(lambda _: held.append(running._lock.locked()))
    running._reached, running._awaited_bytes = reached, 8
    running.advance(4)
    assert held == []
    running.advance(8)
    assert held == [False]


def executed(ran, *, left=10**9, iteration_s=0.001):
    return link_pb2.Executed(progress=loop_pb2.LoopProgress(left=left, ran=ran, seconds=ran * iteration_s))


def test_slices_are_shorter_for_some_time_after_other_launches(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    slices = LoopSlices(SimpleNamespace(iteration_s=0.0), slice_s=0.5, grants=0)
    assert slices.first().max_iterations == 1
    assert slices.after(executed(1), grants=1).max_iterations == 16
    assert slices.after(executed(1000), grants=2).max_iterations == 500
    assert slices.after(executed(500), grants=5).max_iterations == 10
    now += 0.4
    assert slices.after(executed(10), grants=6).max_iterations == 10
    now += 0.2
    assert slices.after(executed(10), grants=7).max_iterations == 160
    assert slices.after(executed(160, left=0), grants=8) is None
    assert slices.ran == 1 + 1000 + 500 + 10 + 10 + 160
