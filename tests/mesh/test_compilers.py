"""Compilers against processes that end, take too long, or cannot serialize a program."""

import socket
import threading
import time
from multiprocessing.connection import Connection
from types import SimpleNamespace

import numpy as np
import pytest
from mesh.test_commands import WAIT_S, FakeLink, commands_of, preparation
from server.refusals import refusal

from shardcall_core.call_error import CallError, Reason
from shardcall_server.compilation.program_store import ProgramStore
from shardcall_server.mesh import compilers
from shardcall_server.mesh.command_answer import CommandAnswer
from shardcall_server.mesh.commands import Commands
from shardcall_server.mesh.compilers import CompilationJob, ForkedCompiler, LocalCompiler
from shardcall_worker.v1 import link_pb2

REFUSAL = link_pb2.CompilationOutcome(failure=link_pb2.Failure(reason=Reason.COMPILE_FAILED.value, message="no"))


class HeldLink(FakeLink):
    """Receives answers, and blocks their senders while it is held."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = threading.Event()
        self.goes_on.set()

    def send(self, body: bytes, *, more: bool = False) -> None:
        super().send(body, more=more)
        assert self.goes_on.wait(WAIT_S)


class ForkServer:
    """Has the test take the part of the processes."""

    def __init__(self) -> None:
        self.processes: list[Connection] = []

    def fork(self) -> tuple[int, socket.socket]:
        ours, theirs = socket.socketpair()
        self.processes.append(Connection(theirs.detach()))
        return len(self.processes), ours

    def kill(self, pid: int) -> None:
        self.processes[pid - 1].close()


def compile_with(compiler: ForkedCompiler, link: HeldLink) -> CallError:
    """Compiles, which must fail; returns the error."""
    resolved = SimpleNamespace(kernel=SimpleNamespace(name="negative"), strategy=SimpleNamespace(name="gspmd"))
    job = CompilationJob(resolved, link_pb2.Prepare(), CommandAnswer(link, 1), "ann")  # type: ignore[arg-type]
    return refusal(compiler.compile, job)


@pytest.fixture
def link() -> HeldLink:
    return HeldLink()


def forked(forks: ForkServer) -> ForkedCompiler:
    return ForkedCompiler(None, "", forks, WAIT_S)  # type: ignore[arg-type]


def test_a_program_that_ends_its_process_late_has_the_rest_of_the_time_in_another(link, monkeypatch):
    limits = []

    def end_late(process, command, max_seconds):
        limits.append(max_seconds)
        time.sleep(0.01)
        raise EOFError

    monkeypatch.setattr(compilers._CompilerProcess, "run", end_late)
    compiler = forked(ForkServer())
    assert compile_with(compiler, link).reason == Reason.COMPILE_FAILED
    first, second = limits
    assert second < first


def test_a_compilation_that_is_ended_before_it_has_a_process_does_not_begin(link):
    compiler = forked(ForkServer())
    compiler.end(1)
    assert compile_with(compiler, link).reason == Reason.CANCELLED


def test_an_idle_process_that_has_ended_is_not_counted_against_a_client(link):
    forks = ForkServer()
    compiler = forked(forks)
    forks.kill(1)

    def refuse(jobs):
        for _ in range(2):
            jobs.recv_bytes()
            jobs.send_bytes(REFUSAL.SerializeToString())

    def fork_and_refuse():
        forked = ForkServer.fork(forks)
        threading.Thread(target=refuse, args=[forks.processes[-1]], daemon=True).start()
        return forked

    forks.fork = fork_and_refuse  # type: ignore[method-assign]
    for _ in range(2):
        assert compile_with(compiler, link).message == "no"
    assert len(forks.processes) == 2


def prepare(commands: Commands, *call_ids: int) -> None:
    for call_id in call_ids:
        command = preparation("negative", np.ones(4, np.float32))
        commands.handle(link_pb2.FrontEndMessage(call_id=call_id, **command), None)  # type: ignore[arg-type]


def next_answer(link: HeldLink, name: str) -> link_pb2.WorkerMessage:
    while (message := link.answers.get(timeout=WAIT_S)).WhichOneof("answer") != name:
        assert message.HasField("compiling"), message
    return message


def test_a_program_that_cannot_be_serialized_is_not_kept_on_disk(link, tmp_path, monkeypatch):
    def refuse(compiled):
        raise NotImplementedError

    monkeypatch.setattr("jax.experimental.serialize_executable.serialize", refuse)
    store = ProgramStore(tmp_path / "programs", 1 << 20)
    commands = commands_of(link, compiler=LocalCompiler(store, ""))
    prepare(commands, 1)
    assert next_answer(link, "prepared").call_id == 1
    commands.close()
    assert not list((tmp_path / "programs").iterdir())


def test_a_program_stays_if_its_compilation_is_ended_while_it_is_answered(link, monkeypatch):
    compiler, may_end = LocalCompiler(None, ""), threading.Event()
    compiler.can_end = True
    compile_parts = compilers.compile_parts

    def compile_later(*arguments, **how):
        assert may_end.wait(WAIT_S)
        return compile_parts(*arguments, **how)

    monkeypatch.setattr(compilers, "compile_parts", compile_later)
    commands = commands_of(link, compiler=compiler)
    prepare(commands, 1, 2)
    assert link.answers.get(timeout=WAIT_S).HasField("compiling")
    commands._planner.submit(link.goes_on.clear).result(WAIT_S)
    may_end.set()
    answer = next_answer(link, "prepared")  # which is being sent; the other one follows
    assert answer.call_id == 1
    end = link_pb2.EndCompilation(prepare_call_id=2)
    commands.handle(link_pb2.FrontEndMessage(end_compilation=end), None)
    commands._planner.submit(link.goes_on.set).result(WAIT_S)
    text = link_pb2.GetCompiledText(key_digest=answer.prepared.plan.key_digest, max_bytes=100)
    commands.handle(link_pb2.FrontEndMessage(call_id=3, get_compiled_text=text), None)
    answers = [link.answers.get(timeout=WAIT_S) for _ in range(2)]
    assert {answer.call_id: answer.WhichOneof("answer") for answer in answers} == {2: "prepared", 3: "compiled_text"}
    commands.close()
