"""When a worker is too far behind the others: by looks at commands and workers that the tests make up."""

from __future__ import annotations

import math
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from shardcall.v1 import kernel_pb2, mesh_pb2, server_info_service_pb2
from shardcall_server.frontend.workers.command import Command
from shardcall_server.frontend.workers.ends import Stop
from shardcall_server.frontend.workers.lag import Lag
from shardcall_worker.v1 import link_pb2

ANSWER = link_pb2.WorkerMessage()
LIMIT_S = 5.0


class Mesh:
    """Two workers of a device each, and the commands that they have; all work unless the test says otherwise."""

    def __init__(self, *commands: Command, platform: str = "cpu", workers: int = 2) -> None:
        self.commands = list(commands)
        self.workers = [SimpleNamespace(host=f"h{i}", cpu_ticks=0, data_link=None) for i in range(workers)]
        self.members: Any = [SimpleNamespace(index=i, worker=worker, heard=0) for i, worker in enumerate(self.workers)]
        self.ready: Future[link_pb2.Ready] = Future()
        devices = [server_info_service_pb2.Device(id=i, process_index=i) for i in range(workers)]
        self.ready.set_result(link_pb2.Ready(devices=devices, platform=platform))
        self.lag = Lag(self.members, self.ready, LIMIT_S)
        self.ticks_per_s = 100
        self.beat_every_s = 1
        self._looks = 0

    def looks(self, seconds: int) -> Stop | None:
        for _ in range(seconds):
            self._looks += 1
            self.workers[-1].cpu_ticks += self.ticks_per_s
            self.members[0].heard += 1
            self.members[-1].heard = self._looks // self.beat_every_s
            if (stop := self.lag.look(self.commands, 1.0)) is not None:
                return stop
        return None


def run(*device_ids: int, kind: str = "execute") -> Command:
    plan = kernel_pb2.Plan(mesh=mesh_pb2.Mesh(device_ids=device_ids)) if device_ids else None
    return Command(kind, kernel="diff", plan=plan)


def test_one_that_has_not_answered_what_the_others_have_is_given_up():
    command = run(0, 1)
    mesh = Mesh(command)
    assert mesh.looks(1) is None
    command.answers[0] = ANSWER
    assert mesh.looks(6) is None
    assert mesh.looks(1) == Stop("h1 was 6 s behind the other hosts in running kernel diff")


def test_one_that_takes_no_part_is_not_waited_for():
    """Nor does its answer say that the others are behind: it had nothing to do."""
    command = run(0)
    mesh = Mesh(command)
    command.answers[1] = ANSWER
    assert mesh.looks(100) is None


def test_one_that_gets_on_is_not_behind():
    command = run(0, 1)
    mesh = Mesh(command)
    command.answers[0] = ANSWER
    for second in range(20):
        command.in_place[1] = second
        assert mesh.looks(1) is None
    for parts in range(20):
        mesh.workers[1].data_link = SimpleNamespace(moved_for=lambda call_id, parts=parts: parts)
        assert mesh.looks(1) is None


def test_a_head_that_one_has_answered_is_looked_at_too():
    """With its answer, all that comes from a worker counts as in place: more than any number."""
    command = run(0, 1)
    mesh = Mesh(command)
    mesh.ticks_per_s, mesh.beat_every_s = 0, 3
    command.answers[0] = ANSWER
    command.in_place[0] = math.inf
    assert mesh.looks(6) is None
    assert mesh.looks(3) is not None


def test_a_host_of_half_the_speed_is_no_fault():
    command = run(0, 1)
    mesh = Mesh(command)
    assert mesh.looks(20) is None
    command.answers[0] = ANSWER
    assert mesh.looks(20) is None
    assert mesh.looks(3) is not None


def test_compilations_take_as_long_as_they_take():
    command = run(kind="prepare")
    mesh = Mesh(command)
    command.answers[0] = ANSWER
    assert mesh.looks(100) is None


def test_a_host_without_a_processor_is_given_up_though_all_wait_for_it():
    mesh = Mesh(run(0, 1))
    mesh.ticks_per_s, mesh.beat_every_s = 1, 3
    assert mesh.looks(6) is None
    assert mesh.looks(1) == Stop("h1 got almost no processor for 6 s, and all wait in running kernel diff")


def test_hosts_that_wait_for_a_slow_network_are_left_alone():
    mesh = Mesh(run(0, 1))
    mesh.ticks_per_s = 1
    assert mesh.looks(100) is None


def test_what_one_program_after_the_other_stood_still_is_added_up():
    mesh = Mesh(run(0, 1))
    mesh.ticks_per_s, mesh.beat_every_s = 1, 3
    assert mesh.looks(4) is None
    mesh.commands[:] = [run(0, 1)]
    assert mesh.looks(3) is None
    assert mesh.looks(1) is not None


def test_quick_programs_are_not_added_up():
    mesh = Mesh()
    mesh.ticks_per_s = 0
    for _ in range(50):
        mesh.commands[:] = [run(0, 1)]
        assert [mesh.lag.look(mesh.commands, 0.4) for _ in range(2)] == [None, None]


def test_a_program_at_which_one_works_may_take_its_time():
    mesh = Mesh(run(0, 1))
    mesh.ticks_per_s, mesh.beat_every_s = 3, 3
    assert mesh.looks(100) is None


def test_what_other_devices_do_is_not_seen_in_processor_time():
    mesh = Mesh(run(0, 1), platform="gpu")
    mesh.ticks_per_s, mesh.beat_every_s = 0, 3
    assert mesh.looks(100) is None


def test_a_mesh_without_work_may_stand_still():
    mesh = Mesh()
    mesh.ticks_per_s = 0
    assert mesh.looks(100) is None
    mesh.commands.append(run(0, 1))
    assert mesh.looks(6) is None


def test_one_worker_alone_is_behind_nobody():
    mesh = Mesh(run(0), workers=1)
    mesh.ticks_per_s = 0
    assert mesh.looks(100) is None
