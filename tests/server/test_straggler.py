"""Straggler detection: checks of commands and workers that the tests make up."""

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
FAILED = link_pb2.WorkerMessage(failure=link_pb2.Failure(reason="OUT_OF_DEVICE_MEMORY", message="no memory"))
LIMIT_S = 5.0
IDLE, BUSY = False, True


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
        """Checks once a second, with heartbeats of every worker before each."""
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


@rows(
    ("hosts", "before_s", "answers", "gathered", "borne_s", "behind"),
    [
        (2, 1, {0: ANSWER}, {}, 6, "h1 was 6 s"),
        (2, 20, {0: ANSWER}, {}, 21, "h1 was 21 s"),  # a host of half the speed is no fault
        (2, 0, {0: ANSWER}, {0: math.inf}, 6, "h1 was 6 s"),  # with its answer, all results of a worker are received
        (3, 0, {0: FAILED, 1: FAILED}, {}, 6, "h2 was 6 s"),  # of those that failed, none is the reason
    ],
)
def test_a_host_that_has_not_answered_what_others_have_is_stopped(hosts, before_s, answers, gathered, borne_s, behind):
    command = run(*range(hosts))
    mesh = Mesh(command, workers=hosts)
    assert mesh.checks(before_s) is None
    command.answers.update(answers)
    command.gathered_bytes.update(gathered)
    assert mesh.checks(borne_s) is None
    assert mesh.checks(1) == StopRequest(f"{behind} behind the other hosts in running kernel diff")


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


def test_one_that_failed_while_the_others_wait_for_it_is_the_reason():
    """In a collective, the workers that did not fail cannot answer: they are not behind."""
    command = run(0, 1)
    mesh = Mesh(command)
    command.answers[0] = FAILED
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
    command.answers[0] = FAILED
    stop: Any = mesh.checks(40)
    assert stop.reason == "host h0 alone failed: no memory"


@rows(
    ("what", "steps"),  # of a step: whether a command runs, by how much of every second h1 is late, seconds, the end
    [
        ("late from the beginning", [(BUSY, 0.9, 4, None), (BUSY, 0.9, 1, "h1 got almost no CPU time (late for 90%")]),
        ("late after a while", [(BUSY, 0.0, 60, None), (BUSY, 0.9, 2, None), (BUSY, 0.9, 2, "h1 got")]),
        (
            "late for one program after the other, each of which is answered in time",
            [*[(IDLE, 0.9, 5, None), (BUSY, 0.9, 1, None)] * 4, (BUSY, 0.9, 1, "h1 got")],
        ),
        ("late before a command, by a heartbeat on its way", [(IDLE, 100.0, 1, None), (BUSY, 100.0, 1, None)]),
        ("a single pause, which the front end may have shared", [(BUSY, 0.0, 20, None), (BUSY, 100.0, 1, None)]),
        ("a processor again in time", [(BUSY, 0.9, 2, None), (BUSY, 0.0, 10, None)] * 10),
        ("late long ago", [(BUSY, 0.9, 4, None), (IDLE, 0.0, 3600, None)]),
    ],
)
def test_a_host_without_cpu_time_is_stopped_though_all_wait_for_it(what, steps):
    mesh = Mesh()
    for is_busy, mesh.late[1], seconds, end in steps:
        mesh.commands[:] = [*mesh.commands, run(0, 1)][:1] if is_busy else []
        stop: Any = mesh.checks(seconds)
        assert stop is None if end is None else stop.reason.startswith(end), what
    if steps[-1][-1] is None:
        mesh.commands[:], mesh.late[1] = [run(0, 1)], 0.0
        assert mesh.checks(100) is None, what


def test_what_one_was_late_without_having_a_part_is_forgotten():
    mesh = Mesh(run(0, 1), workers=3)
    mesh.late[2] = 0.9
    assert mesh.checks(20) is None
    mesh.late[2] = 0.0
    mesh.commands[:] = [run(0, 1, 2)]
    assert mesh.checks(20) is None


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
    says = "h0 and h2 got almost no CPU time (late for 90% and 75% of the time) while running kernel diff"
    assert stop == StopRequest(says)
