"""Straggler detection: checks of commands and workers that the tests make up."""

from __future__ import annotations

import math
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from rows import rows

from shardcall.v1 import kernel_pb2, mesh_pb2, server_info_service_pb2
from shardcall_core.call_error import Reason
from shardcall_server.frontend.workers.command import Command
from shardcall_server.frontend.workers.exit_reason import StopRequest
from shardcall_server.frontend.workers.straggler import StragglerDetector
from shardcall_worker.v1 import link_pb2

ANSWER = link_pb2.WorkerMessage()
LIMIT_S = 5.0


class Mesh:
    """Workers of a device each, and the commands that they have.

    All do nothing else and are on time, unless a test says by how much of every second they are late or at work.
    """

    def __init__(self, *commands: Command, workers: int = 2) -> None:
        self.commands = list(commands)
        self.late = [0.0] * workers
        self.at_work = [0.0] * workers
        self.workers = [SimpleNamespace(host=f"h{i}", data_link=None) for i in range(workers)]
        self.connections: Any = [
            SimpleNamespace(index=i, worker=worker, heartbeat=link_pb2.Heartbeat())
            for i, worker in enumerate(self.workers)
        ]
        self.ready: Future[link_pb2.Ready] = Future()
        devices = [server_info_service_pb2.Device(id=i, process_index=i) for i in range(workers)]
        self.ready.set_result(link_pb2.Ready(devices=devices, platform="cpu"))
        self.detector = StragglerDetector(self.connections, self.ready, LIMIT_S)

    def checks(self, seconds: int) -> StopRequest | None:
        """Checks once a second, with heartbeats of every worker in between."""
        for _ in range(seconds):
            for connection in self.connections:
                connection.heartbeat = link_pb2.Heartbeat(
                    late_seconds=connection.heartbeat.late_seconds + self.late[connection.index],
                    cpu_seconds=connection.heartbeat.cpu_seconds + self.at_work[connection.index],
                )
            if (stop := self.detector.check(self.commands, 1.0)) is not None:
                return stop
        return None


def run(*device_ids: int, name: str = "execute") -> Command:
    plan = kernel_pb2.Plan(mesh=mesh_pb2.Mesh(device_ids=device_ids)) if device_ids else None
    return Command(name, kernel="diff", plan=plan)


@rows(
    ("command", "answers", "late", "at_work"),
    [
        (run(0), [1], [], []),  # host 0 alone takes part, and the other has no work
        (run(name="start_profile"), [0], [], []),  # its files take as long as they take
        (run(name="stop_profile"), [0], [], []),
        (run(name="prepare"), [0], [], []),  # so do compilations
        (run(0, 1), [], [0.0, 0.3], []),  # a slow network
        (run(0, 1, 2), [], [0.3, 0.8, 0.9], []),  # a busy machine, where all are late alike
        (run(0, 1), [], [0.0, 0.9], [0.0, 0.9]),  # Python's lock is held for long, by what makes a program, say
        (run(0, 1), [], [0.0, 0.0, 1.0], []),  # a host without a part in it
        (None, [], [0.0, 1.0], []),  # no work
    ],
)
def test_nobody_is_stopped_who_keeps_no_other_waiting(command, answers, late, at_work):
    mesh = Mesh(*filter(None, [command]), workers=max(2, len(late)))
    mesh.late[: len(late)], mesh.at_work[: len(at_work)] = late, at_work
    for index in answers:
        command.answers[index] = ANSWER
    assert mesh.checks(100) is None


def test_nobody_is_behind_while_a_disk_is_read():
    reading, behind = run(), run()
    reading.reading |= {0: False, 1: True}
    behind.answers[0] = ANSWER
    mesh = Mesh(reading, behind)
    assert mesh.checks(30) is None
    reading.reading[1] = False
    assert mesh.checks(30) is not None


def test_a_host_that_has_not_answered_what_the_others_have_is_stopped():
    command = run(0, 1)
    mesh = Mesh(command)
    assert mesh.checks(1) is None
    command.answers[0] = ANSWER
    assert mesh.checks(6) is None
    assert mesh.checks(1) == StopRequest("h1 was 6 s behind the other hosts in running kernel diff")


def test_one_that_gets_on_is_not_behind():
    command = run(0, 1)
    mesh = Mesh(command)
    command.answers[0] = ANSWER
    for second in range(20):
        command.gathered_bytes[1] = second
        assert mesh.checks(1) is None
    for parts in range(20):
        mesh.workers[1].data_link = SimpleNamespace(moved_for=lambda call_id, parts=parts: parts)
        assert mesh.checks(1) is None


def test_a_head_that_one_has_answered_is_looked_at_too():
    """With its answer, all results of a worker count as received: more than any number."""
    command = run(0, 1)
    mesh = Mesh(command)
    command.answers[0] = ANSWER
    command.gathered_bytes[0] = math.inf
    assert mesh.checks(6) is None
    assert mesh.checks(3) is not None


def test_a_host_of_half_the_speed_is_no_fault():
    command = run(0, 1)
    mesh = Mesh(command)
    assert mesh.checks(20) is None
    command.answers[0] = ANSWER
    assert mesh.checks(20) is None
    assert mesh.checks(3) is not None


def test_one_that_failed_while_the_others_wait_for_it_is_the_reason():
    """In a collective, the workers that did not fail cannot answer: they are not behind."""
    command = run(0, 1)
    mesh = Mesh(command)
    failure = link_pb2.Failure(reason="OUT_OF_DEVICE_MEMORY", message="no memory")
    command.answers[0] = link_pb2.WorkerMessage(failure=failure)
    assert mesh.checks(6) is None
    stop: Any = mesh.checks(1)
    assert (stop.reason, stop.culprit, stop.is_program_fault) == ("host h0 alone failed: no memory", command, True)
    assert stop.error.reason is Reason.OUT_OF_DEVICE_MEMORY


@rows("name", ["get_array", "save_array", "write_arrays"])
def test_one_that_failed_while_the_others_read_a_file_is_the_reason(name):
    command = run(0, 1, name=name)
    command.reading |= {0: True, 1: True}
    mesh = Mesh(command)
    assert mesh.checks(30) is None
    failure = link_pb2.Failure(reason="ARRAY_LOST", message="no array")
    command.answers[0] = link_pb2.WorkerMessage(failure=failure)
    stop: Any = mesh.checks(40)
    assert stop.reason == "host h0 alone failed: no array"


def test_where_several_failed_the_one_that_says_nothing_is_the_reason():
    command = run(0, 1, 2)
    mesh = Mesh(command, workers=3)
    failure = link_pb2.Failure(reason="OUT_OF_DEVICE_MEMORY", message="no memory")
    command.answers.update({i: link_pb2.WorkerMessage(failure=failure) for i in (0, 1)})
    assert mesh.checks(6) is None
    assert mesh.checks(1) == StopRequest("h2 was 6 s behind the other hosts in running kernel diff")


def test_a_host_without_cpu_time_is_stopped_though_all_wait_for_it():
    mesh = Mesh(run(0, 1))
    mesh.late[1] = 0.9
    assert mesh.checks(4) is None
    text = "h1 got almost no CPU time (late for 90% of the time) while running kernel diff"
    assert mesh.checks(1) == StopRequest(text)


def test_a_host_that_gets_no_more_cpu_time_is_stopped_as_soon():
    mesh = Mesh(run(0, 1))
    assert mesh.checks(60) is None
    mesh.late[1] = 0.9
    assert mesh.checks(2) is None
    assert mesh.checks(2) is not None


def test_what_one_program_after_the_other_stood_still_is_added_up():
    """Each is answered in time; delays while no call waits do not count."""
    mesh = Mesh()
    mesh.late[1] = 0.9
    for _ in range(4):
        mesh.commands[:] = []
        assert mesh.checks(5) is None
        mesh.commands[:] = [run(0, 1)]
        assert mesh.checks(1) is None
    assert mesh.checks(1) is not None


def test_what_is_late_before_a_command_is_no_trouble_of_that():
    mesh = Mesh()
    mesh.late[1] = 100.0
    assert mesh.checks(1) is None
    mesh.commands[:] = [run(0, 1)]
    mesh.connections[1].heartbeat = link_pb2.Heartbeat(late_seconds=200.0)  # on its way when the command was sent
    mesh.late[1] = 0.0
    assert mesh.checks(100) is None


def test_a_pause_that_the_front_end_shared_is_no_fault():
    """The clock of a worker on the same host has advanced, and only checks count."""
    mesh = Mesh(run(0, 1))
    assert mesh.checks(10) is None
    mesh.late[0] = 100.0
    assert mesh.checks(1) is None
    mesh.late[0] = 0.0
    assert mesh.checks(100) is None


def test_a_single_pause_is_borne_however_long():
    mesh = Mesh(run(0, 1))
    assert mesh.checks(20) is None
    mesh.connections[1].heartbeat = link_pb2.Heartbeat(late_seconds=100.0)
    assert mesh.checks(100) is None


def test_one_that_gets_a_processor_again_in_time_is_kept():
    mesh = Mesh(run(0, 1))
    for _ in range(10):
        mesh.late[1] = 0.9
        assert mesh.checks(2) is None
        mesh.late[1] = 0.0
        assert mesh.checks(10) is None


def test_what_one_was_late_without_having_a_part_is_forgotten():
    mesh = Mesh(run(0, 1), workers=3)
    mesh.late[2] = 0.9
    assert mesh.checks(20) is None
    mesh.late[2] = 0.0
    mesh.commands[:] = [run(0, 1, 2)]
    assert mesh.checks(20) is None


def test_what_was_late_long_ago_is_forgotten():
    mesh = Mesh(run(0, 1))
    mesh.late[1] = 0.9
    assert mesh.checks(4) is None
    mesh.late[1], mesh.commands[:] = 0.0, []
    assert mesh.checks(3600) is None
    mesh.commands[:] = [run(0, 1)]
    assert mesh.checks(100) is None


def test_no_one_is_late_for_longer_than_was_looked():
    """Its heartbeats come once in 4 s, and checks four times a second."""
    mesh = Mesh(run(0, 1))
    for moment in range(1, 200):
        if moment % 16 == 0:
            mesh.connections[1].heartbeat = link_pb2.Heartbeat(late_seconds=moment / 4 * 1.5)
        stop = mesh.detector.check(mesh.commands, 0.25)
        if stop is not None:
            assert "(late for 38% of the time)" in stop.reason
            return
    raise AssertionError("not noticed")


def test_several_that_get_no_processor_are_named():
    mesh = Mesh(run(0, 1, 2), workers=3)
    mesh.late[:] = [0.9, 0.0, 0.75]
    stop: Any = mesh.checks(5)
    assert stop.reason.startswith("h0 and h2 got almost no CPU time (late for 90% and 75% of the time) while")
