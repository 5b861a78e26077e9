"""An agent: what it logs, its handling of a worker's commands and arrays, and the folder of the server's files."""

import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import grpc
import numpy as np
import pytest
from end_to_end.processes import wait_for
from rows import rows
from structlog.testing import capture_logs

from shardcall_core.access.addresses import parse_address
from shardcall_core.access.tls import Tls
from shardcall_core.access.token import Token
from shardcall_core.call_error import CallError, Reason
from shardcall_core.versions import build_version
from shardcall_core.wire.chunk_codec import Chunk, decode
from shardcall_core.wire.shared_memory import map_file
from shardcall_server.agent import worker_slot as module
from shardcall_server.agent.agent import Agent, AgentSettings, JoinStream
from shardcall_server.agent.array_files import HostFolder
from shardcall_server.agent.worker_slot import WorkerSlot
from shardcall_server.frontend.hosts.hosted_worker import HostedWorker
from shardcall_server.frontend.hosts.relay import RelayedLink
from shardcall_server.link.framing import Link
from shardcall_worker.v1 import host_service_pb2, link_pb2

TOKEN = Token()


def refusal(text: str) -> Any:
    """The error that gRPC raises without a connection."""
    return SimpleNamespace(code=lambda: grpc.StatusCode.UNAVAILABLE, details=lambda: text)


def test_the_reason_of_a_refused_join_is_logged_again_only_when_it_changes_and_an_absent_server_little():
    server = parse_address("server.test:8471")
    agent = Agent(AgentSettings(server, Tls(b"ca"), lambda: TOKEN, "a", "", 1, "", "", False, "info"))
    distrusted, expired = "CERTIFICATE_VERIFY_FAILED: who", "CERTIFICATE_VERIFY_FAILED: certificate has expired"
    with capture_logs() as logs:
        for attempt, details in enumerate([distrusted] * 70 + [expired] * 70 + [distrusted]):
            agent._explain(refusal(details), attempt, TOKEN, joined=False)
        for attempt in range(60):
            agent._explain(refusal("Connection refused"), attempt, TOKEN, joined=False)
    says = ["is not by the authority given", "has expired", "is not by the authority given"]
    assert [line["reason"].partition(";")[0] for line in logs[:3]] == [
        f"the certificate of server.test:8471 {reason}" for reason in says
    ]
    assert [line["log_level"] for line in logs] == ["warning"] * 3 + ["info"] * 2


PATIENCE_S = 60.0
CARRIER: Any = host_service_pb2.JoinRequest


class Process:
    """A worker without a process: the test reads and writes its end of the link."""

    out_of_memory = True

    pid = 12
    cpu_ticks = 3

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.link = Link(ours)
        self.worker = Link(theirs)
        self.frames = self.worker.frames()
        self._gone = threading.Event()

    def wait_status(self) -> int:
        self._gone.wait()
        return -signal.SIGKILL

    def kill(self) -> None:
        self._gone.set()
        self.link.close()
        self.worker.close()

    def command(self) -> tuple[link_pb2.FrontEndMessage, int | None]:
        body, fd = next(self.frames)
        return link_pb2.FrontEndMessage.FromString(body), fd

    def answer(self, **answer: Any) -> None:
        self.worker.send(link_pb2.WorkerMessage(**answer).SerializeToString())


class Host:
    """A slot with its worker, and its messages to the front end."""

    def __init__(self) -> None:
        self.process = Process()
        self.said: queue.Queue[host_service_pb2.JoinRequest | Chunk] = queue.Queue()
        self.slot = WorkerSlot(
            self.process,  # type: ignore[arg-type]
            host_service_pb2.StartWorker(start_id=4),
            "/programs",
            HostFolder("", "a"),
            lambda message: self.said.put(decode(CARRIER, message)),
        )
        self.regions: Any = self.slot._regions
        self.arena: Any = self.slot._arena
        self.slot.watch()

    def attached(self) -> tuple[int, np.ndarray]:
        """Reads a command to attach memory; returns the memory and its number."""
        command, fd = self.process.command()
        assert fd is not None
        assert command.sequence == 0
        memory = map_file(fd, command.attach_memory.size_bytes, populate=False)
        os.close(fd)
        return command.attach_memory.memory_id, memory

    def heard_answer(self) -> link_pb2.WorkerMessage:
        return link_pb2.WorkerMessage.FromString(self.hear().worker_message)

    def hear(self) -> host_service_pb2.JoinRequest | Chunk:
        return self.said.get(timeout=PATIENCE_S)

    def command(self, call_id: int, operand: bytes = b"", result_bytes: int = 0) -> None:
        """An Execute with one operand and one result in memory, or without; the operand's bytes do not come yet."""
        execute = link_pb2.Execute(key_digest="k")
        begin = -(-len(operand) // 64) * 64
        if operand:
            execute.operands.add().blocks.SetInParent()
        if result_bytes:
            execute.results.add().blocks.offset = begin
        message = link_pb2.FrontEndMessage(call_id=call_id, execute=execute)
        self.take(message, operand_bytes=len(operand), result_begin=begin, result_bytes=result_bytes)

    def begin(self, call_id: int, operand: bytes = b"", result_bytes: int = 0) -> tuple[Any, int, np.ndarray]:
        """Has the worker begin a command; returns it with its memory and the number of that."""
        self.command(call_id, operand, result_bytes)
        memory_id, memory = self.attached()
        self.chunks(operand)
        return self.process.command()[0], memory_id, memory

    def take(self, message: link_pb2.FrontEndMessage, **memory: int) -> None:
        body = message.SerializeToString()
        self.slot.take_command(host_service_pb2.HostCommand(start_id=4, front_end_message=body, **memory))

    def chunks(self, operand: bytes, size: int = 100) -> None:
        data = np.frombuffer(operand, np.uint8)
        for offset in range(0, data.size, size):
            self.slot.take_chunk(offset, data[offset : offset + size])


@pytest.fixture
def host() -> Iterator[Host]:
    opened = Host()
    yield opened
    opened.slot.close()


def test_an_exit_is_reported_after_all_earlier_messages(host):
    """Otherwise a call that was done would be lost, and its program quarantined for another's crash."""
    host.begin(1, result_bytes=1000)
    host.process.answer(call_id=1, executed=link_pb2.Executed())
    host.process.worker.close()
    host.process._gone.set()
    said = [host.hear() for _ in range(4)]
    assert isinstance(said.pop(1), Chunk)
    assert [one.WhichOneof("message") for one in said] == ["results", "worker_message", "worker_ended"]
    ended = host_service_pb2.WorkerEnded(start_id=4, status=-signal.SIGKILL, out_of_memory=True)
    assert said[-1].worker_ended == ended


def test_a_command_goes_to_the_worker_when_its_operands_have_come(host):
    operand = os.urandom(1000)
    host.command(1, operand)
    memory_id, memory = host.attached()
    host.chunks(operand[:900])
    host.command(2)
    assert host.process.command()[0].call_id == 2, "the other waits for its last chunk"
    host.slot.take_chunk(900, np.frombuffer(operand[900:], np.uint8))
    message, _ = host.process.command()
    (data,) = message.execute.operands
    assert (message.call_id, data.blocks.memory_id) == (1, memory_id)
    assert memory[data.blocks.offset :][:1000].tobytes() == operand


def test_results_come_before_their_answer_in_chunks(host, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_BYTES", 100)
    message, _, memory = host.begin(1, result_bytes=250)
    result = os.urandom(250)
    begin = message.execute.results[0].blocks.offset
    memory[begin : begin + 250] = np.frombuffer(result, np.uint8)
    host.process.answer(call_id=1, gathered=link_pb2.Gathered(byte_count=250))
    host.process.answer(call_id=1, executed=link_pb2.Executed(execute_seconds=1.0))
    assert host.hear().results.call_id == 1, "that they are in place there says nothing here"
    chunks = [host.hear() for _ in range(3)]
    assert [chunk.offset for chunk in chunks] == [0, 100, 200]
    assert b"".join(chunk.data.tobytes() for chunk in chunks) == result
    assert host.heard_answer().executed.execute_seconds == 1.0


def test_a_command_that_failed_has_no_results_and_its_memory_is_the_next_ones(host):
    _, memory_id, _ = host.begin(1, b"x" * 10, 250)
    host.process.answer(call_id=1, failure=link_pb2.Failure(reason="INTERNAL"))
    assert host.heard_answer().HasField("failure")
    host.command(2, result_bytes=250)
    message, fd = host.process.command()
    assert (message.call_id, fd) == (2, None), "the worker has that memory already"
    assert message.execute.results[0].blocks.memory_id == memory_id
    assert host.regions.keys() == {2}


def test_what_was_not_used_for_a_while_is_let_go_of(host, monkeypatch):
    _, memory_id, _ = host.begin(1, result_bytes=250)
    host.slot.trim()
    monkeypatch.setattr(module, "_TRIM_AFTER_S", -1.0)
    host.slot.trim()
    assert host.slot._attached, "it is in use"
    host.process.answer(call_id=1, failure=link_pb2.Failure())
    host.hear()
    host.slot.trim()
    detach, _ = host.process.command()
    assert detach.detach_memory.memory_id == memory_id


def test_the_worker_keeps_programs_where_this_host_does(host):
    host.take(link_pb2.FrontEndMessage(start={"platform": "cpu"}))
    message, _ = host.process.command()
    assert (message.start.platform, message.start.program_dir) == ("cpu", "/programs")


@pytest.mark.parametrize("taking", ["acquire", "extend"])
def test_a_host_without_memory_says_so_instead_of_dying_of_it(host, monkeypatch, taking):
    """The others may have started the command, so the mesh ends: by a failure that answers no command."""
    refuse = Mock(side_effect=CallError(Reason.OUT_OF_HOST_MEMORY, "no memory"))
    monkeypatch.setattr(host.arena, taking, refuse)
    host.command(1, b"x" * 10)
    reported = host.heard_answer()
    assert (reported.call_id, reported.failure.message) == (0, "no memory")
    host.chunks(b"x" * 10)
    assert (host.regions, host.arena.in_use) == ({}, 0)


def test_a_slot_that_is_closed_lets_go_of_all_its_memory(host):
    for call_id in range(1, 4):
        host.begin(call_id, b"x" * 10)
    files = [region.fd for region, _, _ in host.regions.values()]
    assert len({os.fstat(fd).st_ino for fd in files}) == 3
    host.process.answer(call_id=1, executed=link_pb2.Executed())
    host.hear()
    host.slot.close()
    assert (host.arena.in_use, host.arena.idle_bytes) == (0, 0)
    for fd in files:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


def test_results_that_arrive_while_the_slot_closes_release_their_memory_too(host):
    host.begin(1, result_bytes=10)
    may_go_on, done = threading.Event(), threading.Event()

    def say(message: bytes) -> None:
        if isinstance(decode(CARRIER, message), Chunk):
            may_go_on.wait()
        elif decode(CARRIER, message).HasField("worker_message"):
            done.set()

    host.slot._send_request = say
    host.process.answer(call_id=1, executed=link_pb2.Executed())
    wait_for(lambda: not host.regions)
    host.slot.close()
    may_go_on.set()
    assert done.wait(PATIENCE_S)
    assert (host.arena.in_use, host.arena.idle_bytes) == (0, 0)


def join_stream() -> JoinStream:
    server = parse_address("127.0.0.1:1")
    settings = AgentSettings(server, None, Token, "a", "127.0.0.1", 1, "", "", False, "info")
    return JoinStream(settings, "127.0.0.1", lambda *_, **__: None)


def test_an_agent_whose_call_has_ended_waits_for_no_reader():
    """Otherwise the thread that would notice the exit might be the one that waits."""
    stream = join_stream()
    said = threading.Thread(target=lambda: [stream._put(b"x") for _ in range(100)], daemon=True)
    said.start()
    said.join(0.2)
    assert said.is_alive(), "no reader takes it"
    stream.stop_sending()
    said.join(PATIENCE_S)
    assert not said.is_alive()
    stream.close()
    _, *rest = stream.outgoing()
    assert rest == []


def test_a_join_call_ends_while_others_take_what_is_left_of_it():
    for _ in range(50):
        stream = join_stream()
        for _ in range(16):
            stream._put(b"x")
        taking = threading.Thread(target=lambda stream=stream: list(stream.outgoing()), daemon=True)
        taking.start()
        stream.close()
        taking.join(PATIENCE_S)
        assert not taking.is_alive()


def test_a_message_of_the_server_that_is_new_ends_the_join_call():
    with pytest.raises(ValueError, match=f"that shardcall {re.escape(build_version())} does not know$"):
        join_stream().handle(host_service_pb2.JoinResponse())


def hosted(pid: int, link: socket.socket) -> HostedWorker:
    started = host_service_pb2.WorkerStarted(start_id=4, pid=pid)
    hello = host_service_pb2.Hello(name="a")
    return HostedWorker(hello, started, RelayedLink(4, 0, lambda _: None), link, lambda: None)


def test_a_worker_that_has_ended_already_is_none():
    ours, theirs = socket.socketpair()
    with theirs, pytest.raises(ProcessLookupError):
        hosted(2**22 + 1, ours)
    assert ours.fileno() == -1


def test_a_worker_of_this_host_is_killed_and_let_go_of():
    """The front end's end of it knows when it is gone, and closes what it opened."""
    before = sorted(os.listdir("/proc/self/fd"))
    ours, theirs = socket.socketpair()
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as process, theirs:
        worker = hosted(process.pid, ours)
        worker.kill()
        worker.set_exited(host_service_pb2.WorkerEnded(status=process.wait(PATIENCE_S)))
        for _ in range(2):
            assert worker.terminate() == -signal.SIGKILL
            worker.kill()
    assert sorted(os.listdir("/proc/self/fd")) == before


@pytest.fixture
def root(tmp_path):
    (tmp_path / "root/ada/a.zarr").mkdir(parents=True)
    (tmp_path / "root/ada/a.npy").write_bytes(b"values")
    (tmp_path / "root/ada/link.npy").symlink_to("a.npy")
    (tmp_path / "root/linked").symlink_to("ada")
    (tmp_path / "secret.npy").write_bytes(b"secret")
    return tmp_path / "root"


def reference(root, entry, **changes):
    return host_service_pb2.OpenFile(**({"path": entry, "inode": os.stat(root / entry).st_ino} | changes))


def test_a_file_is_opened_to_read_or_to_write(root):
    folder = HostFolder(str(root), "b")
    reading, writing = (folder.open(reference(root, "ada/a.npy", is_written=written)) for written in (False, True))
    assert os.read(reading, 9) == b"values"
    os.pwrite(writing, b"V", 0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(reading, b"x")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.read(writing, 1)
    assert (root / "ada/a.npy").read_bytes() == b"Values"
    fd = folder.open(reference(root, "ada/a.zarr", is_folder=True))
    assert os.listdir(fd) == []
    for opened in (reading, writing, fd):
        os.close(opened)


@rows(
    ("entry", "changes"),
    [
        ("ada/a.npy", {"inode": 1}),
        ("ada/a.npy", {"path": "ada/b.npy"}),
        ("ada/a.npy", {"path": ""}),
        ("ada/a.npy", {"path": "ada//a.npy"}),
        ("ada/a.npy", {"path": "ada/a.npy/a.npy"}),
        ("ada/a.npy", {"is_folder": True}),
        ("ada/link.npy", {}),
        ("linked/a.npy", {}),
        ("../secret.npy", {}),
        ("ada/../../secret.npy", {}),
        ("../root", {"path": "../root", "is_folder": True}),
    ],
)
def test_what_is_not_below_the_folder_is_not_seen(entry, changes, root):
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(CallError, match=r"the host b does not see the files of the server.*mount the folder") as error:
        HostFolder(str(root), "b").open(reference(root, entry, **changes))
    assert (error.value.reason, error.value.metadata) == (Reason.FILES_UNAVAILABLE, {"host": "b"})
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_folder_is_recognized_by_its_marker(root):
    folder, zarr = HostFolder(str(root), "b"), root / "ada/a.zarr"
    (zarr / "marker").touch()
    os.close(folder.open(reference(root, "ada/a.zarr", is_folder=True, marker="marker")))
    with pytest.raises(CallError, match="does not see"):
        folder.open(reference(root, "ada/a.zarr", is_folder=True, marker="another"))


def test_an_absolute_path_is_not_seen_and_an_agent_without_a_folder_says_so(root):
    secret = root.parent / "secret.npy"
    with pytest.raises(CallError, match="does not see"):
        HostFolder(str(root), "b").open(reference(root, "ada/a.npy", path=str(secret), inode=secret.stat().st_ino))
    with pytest.raises(CallError, match=r"its agent has no --array-dir.*start its agent with --array-dir"):
        HostFolder("", "b").open(reference(root, "ada/a.npy"))
