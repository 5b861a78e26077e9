"""Commands take effect in the order in which they were sent, however late their answers are; compilations that fail."""

import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from itertools import count
from multiprocessing.connection import Connection
from queue import Queue
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from server.conftest import refusal
from structlog.testing import capture_logs

from shardcall.v1 import array_pb2, kernel_pb2, mesh_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_core.layouts.layout import ArrayType, MeshAxes
from shardcall_server.compilation.keys import Platform
from shardcall_server.compilation.program_store import ProgramStore
from shardcall_server.link.wire import encode_array_type, encode_mesh
from shardcall_server.mesh import compiler_process, compilers, executor
from shardcall_server.mesh.command_answer import CommandAnswer
from shardcall_server.mesh.commands import Commands
from shardcall_server.mesh.compilers import CompilationJob, ForkedCompiler, LocalCompiler
from shardcall_server.mesh.failures import failure_of
from shardcall_server.mesh.worker import load_kernels
from shardcall_worker.v1 import link_pb2, measure_pb2

WAIT_S = 60.0
VALUES = np.arange(8.0)
COPIES = 64
ONE_DEVICE = encode_mesh(MeshAxes((("x", 1),)))


class FakeLink:
    """Receives answers."""

    def __init__(self) -> None:
        self.answers: Queue[link_pb2.WorkerMessage] = Queue()

    def send(self, body: bytes, *, more: bool = False) -> None:
        self.answers.put(link_pb2.WorkerMessage.FromString(body))

    def flush(self) -> None:
        pass


def commands_of(link: object, compiler: LocalCompiler | None = None) -> Commands:
    """Returns the commands of a worker that compiles by itself."""
    return Commands(link, load_kernels(), Platform("cpu", "0", ""), compiler or LocalCompiler(None, ""))  # type: ignore[arg-type]


def type_of(values: np.ndarray) -> array_pb2.ArrayType:
    return encode_array_type(ArrayType(values.shape, values.dtype))


def put(array_id: int, values: np.ndarray, mesh: mesh_pb2.Mesh) -> link_pb2.PutArray:
    data = link_pb2.TensorData(inline=values.tobytes())
    return link_pb2.PutArray(array_id=array_id, type=type_of(values), mesh=mesh, data=data)


def preparation(kernel: str, *operands: np.ndarray) -> dict[str, object]:
    call = kernel_pb2.KernelCall(kernel=kernel, strategy="gspmd", mesh=ONE_DEVICE)
    types = [type_of(values) for values in operands]
    return {"prepare": link_pb2.Prepare(call=call, operands=types, max_call_bytes=1 << 30)}


class Worker:
    """The commands of a worker, and the answers to them."""

    def __init__(self) -> None:
        self._link = FakeLink()
        self._ids = count(1)
        self.commands = commands_of(self._link)

    def handle(self, *batch: dict[str, object]) -> None:
        """Sends commands, numbered from 1, as one batch."""
        messages = [link_pb2.FrontEndMessage(call_id=next(self._ids), **command) for command in batch]  # type: ignore[arg-type]
        assert self.commands.handle_batch([(message.SerializeToString(), None) for message in messages])

    def answer(self) -> link_pb2.WorkerMessage:
        return self._link.answers.get(timeout=WAIT_S)

    def answers(self, number: int) -> dict[int, link_pb2.WorkerMessage]:
        """Returns the next answers by the numbers of their commands."""
        return {message.call_id: message for message in (self.answer() for _ in range(number))}

    def prepare(self, kernel: str, *operands: np.ndarray) -> str:
        """Compiles a program; returns its digest."""
        self.handle(preparation(kernel, *operands))
        assert self.answer().HasField("compiling")
        return self.answer().prepared.plan.key_digest

    def put(self, array_id: int, values: np.ndarray) -> None:
        self.handle({"put_array": put(array_id, values, ONE_DEVICE)})
        assert self.answer().HasField("array_put")


@pytest.fixture
def worker() -> Iterator[Worker]:
    created = Worker()
    yield created
    created.commands.close()


def get(array_id: int) -> dict[str, object]:
    return {"get_array": link_pb2.GetArray(array_id=array_id)}


def deletion(array_id: int) -> dict[str, object]:
    return {"delete_arrays": link_pb2.DeleteArrays(array_ids=[array_id])}


def test_an_array_is_copied_though_it_is_deleted_before_the_copy_begins(worker: Worker):
    worker.handle({"put_array": put(7, VALUES, encode_mesh(MeshAxes((("x", 8),)), tuple(range(8))))})
    assert worker.answer().HasField("array_put")
    worker.handle(*[get(7)] * COPIES, deletion(7))
    answers = [worker.answer() for _ in range(COPIES)]
    assert {answer.WhichOneof("answer") for answer in answers} == {"executed"}
    assert {answer.executed.inline_results[0] for answer in answers} == {VALUES.tobytes()}
    worker.handle(get(7))
    assert worker.answer().failure.reason == "ARRAY_LOST"


def test_a_command_that_is_new_is_answered(worker: Worker):
    worker.handle({})
    assert worker.answer().failure.message == "the worker received a command of an unknown kind"


@pytest.mark.parametrize("side", [8, 512])
def test_a_batch_runs_a_chain_of_resident_arrays(worker: Worker, side: int):
    ones = np.ones((side, side))
    digest = worker.prepare("add", ones, ones[0, 0])
    worker.put(1, ones)
    chain: list[dict[str, object]] = []
    for array_id in range(1, 41):
        operands = [link_pb2.TensorData(array_id=array_id), link_pb2.TensorData(inline=ones[0, 0].tobytes())]
        results = [link_pb2.ResultDestination(array_id=array_id + 1)]
        execute = link_pb2.Execute(key_digest=digest, operands=operands, results=results)
        chain += ({"execute": execute}, deletion(array_id))
    worker.handle(*chain, get(41), get(40))
    answers = worker.answers(42)
    last, deleted = (answers.pop(call_id) for call_id in sorted(answers)[-2:])
    assert last.executed.inline_results[0] == (41 * ones).tobytes()
    assert deleted.failure.reason == "ARRAY_LOST"
    assert {message.WhichOneof("answer") for message in answers.values()} == {"executed"}
    assert not any(message.executed.inline_results for message in answers.values())


def test_two_programs_are_compiled_at_a_time(worker: Worker, monkeypatch):
    both, compile_parts = threading.Barrier(2), compilers.compile_parts

    def compile_together(resolved, **how):
        both.wait(WAIT_S)
        return compile_parts(resolved, **how)

    monkeypatch.setattr(compilers, "compile_parts", compile_together)
    worker.handle(*(preparation("negative", VALUES[:size]) for size in (3, 4)))
    answers = [worker.answer().WhichOneof("answer") for _ in range(4)]
    assert sorted(answers) == ["compiling", "compiling", "prepared", "prepared"]


def test_every_command_of_a_batch_is_answered_with_its_results(worker: Worker, monkeypatch):
    def execution(values: np.ndarray) -> dict[str, object]:
        operands, results = [link_pb2.TensorData(inline=values.tobytes())], [link_pb2.ResultDestination()]
        return {"execute": link_pb2.Execute(key_digest=digest, operands=operands, results=results)}

    digest = worker.prepare("diff", VALUES)
    operands = {call_id: VALUES**2 * call_id for call_id in range(2, 42)}
    worker.handle(*map(execution, operands.values()))
    answers = worker.answers(40)
    for call_id, values in operands.items():
        assert answers[call_id].executed.inline_results[0] == np.diff(values).tobytes()
    worker.put(7, VALUES)
    worker.handle(execution(VALUES), get(7), deletion(7), get(7))
    last = worker.answers(3)
    assert [last[call_id].WhichOneof("answer") for call_id in (43, 44, 46)] == ["executed", "executed", "failure"]
    assert last[44].executed.inline_results[0] == VALUES.tobytes()
    shutdown = link_pb2.FrontEndMessage(shutdown=link_pb2.Shutdown()).SerializeToString()
    assert not worker.commands.handle_batch([(shutdown, None)])
    with monkeypatch.context() as patch:
        patch.setattr(executor, "_is_ready", Mock(side_effect=RuntimeError("nobody knows")))
        worker.handle(execution(VALUES), execution(2 * VALUES))
        for values in (VALUES, 2 * VALUES):
            assert worker.answer().executed.inline_results[0] == np.diff(values).tobytes()


def test_a_program_is_timed_once_or_as_often_as_its_limits_allow(worker: Worker):
    digest = worker.prepare("diff", VALUES)
    for max_runs, max_seconds, runs in ((5, WAIT_S, 5), (5, 0.0, 1)):
        limits = measure_pb2.Measure(key_digest=digest, max_runs=max_runs, max_seconds=max_seconds)
        worker.handle({"measure": limits})
        seconds = worker.answer().measured.run_seconds
        assert (len(seconds), min(seconds) > 0) == (runs, True)
    worker.handle({"discard_trial_blocks": measure_pb2.DiscardTrialBlocks()})


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

    def __init__(self, status: int = 0) -> None:
        self.processes: list[Connection] = []
        self.status = status

    def fork(self) -> tuple[int, socket.socket]:
        ours, theirs = socket.socketpair()
        self.processes.append(Connection(theirs.detach()))
        return len(self.processes), ours

    def kill(self, pid: int) -> int:
        self.processes[pid - 1].close()
        return self.status


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
    assert compile_with(forked(ForkServer()), link).reason == Reason.COMPILE_FAILED
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
    assert [compile_with(compiler, link).message for _ in range(2)] == ["no"] * 2
    assert len(forks.processes) == 2


@pytest.mark.parametrize(
    ("error", "status", "processes"),
    [
        (EOFError, -signal.SIGSEGV, 2),
        (EOFError, -signal.SIGKILL, 1),
        (EOFError, 1, 1),
        (TimeoutError, -signal.SIGKILL, 1),
    ],
)
def test_a_known_answer_test_fails_where_it_crashes_twice_and_else_has_not_run(monkeypatch, error, status, processes):
    forks = ForkServer(status)
    compiler = forked(forks)
    forks.processes.clear()
    forks.kill = lambda pid: status  # type: ignore[method-assign]
    monkeypatch.setattr(compilers._CompilerProcess, "run", Mock(side_effect=error))
    if processes == 2:
        run = compiler.test("sums", ["sum", "mean"])
        assert {failure.kernel: failure.detail for failure in run.failures} == dict.fromkeys(
            ["sum", "mean"], "the test ended its process by SIGSEGV"
        )
    else:
        assert "was ended, or was slow" in refusal(compiler.test, "sums", ["sum"]).message
    assert len(forks.processes) == processes


def prepare(commands: Commands, *call_ids: int) -> None:
    for call_id in call_ids:
        command = preparation("negative", np.ones(4, np.float32))
        commands.handle(link_pb2.FrontEndMessage(call_id=call_id, **command), None)  # type: ignore[arg-type]


def next_answer(link: HeldLink, name: str) -> link_pb2.WorkerMessage:
    while (message := link.answers.get(timeout=WAIT_S)).WhichOneof("answer") != name:
        assert message.HasField("compiling"), message
    return message


def test_a_program_that_cannot_be_serialized_is_not_kept_on_disk(link, tmp_path, monkeypatch):
    monkeypatch.setattr("jax.experimental.serialize_executable.serialize", Mock(side_effect=NotImplementedError))
    commands = commands_of(link, compiler=LocalCompiler(ProgramStore(tmp_path / "programs", 1 << 20), ""))
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
    commands.handle(link_pb2.FrontEndMessage(end_compilation={"prepare_call_id": 2}), None)
    commands._planner.submit(link.goes_on.set).result(WAIT_S)
    text = link_pb2.GetCompiledText(key_digest=answer.prepared.plan.key_digest, max_bytes=100)
    commands.handle(link_pb2.FrontEndMessage(call_id=3, get_compiled_text=text), None)
    answers = [link.answers.get(timeout=WAIT_S) for _ in range(2)]
    assert {answer.call_id: answer.WhichOneof("answer") for answer in answers} == {2: "prepared", 3: "compiled_text"}
    commands.close()


def test_a_command_that_did_not_begin_before_the_server_stops_is_no_unexpected_failure():
    with capture_logs() as logs:
        failure = failure_of(CancelledError())
    assert (failure.reason, logs) == (Reason.SERVER_DRAINING.value, [])


def test_other_errors_are_logged_with_the_id_of_the_answer():
    with capture_logs() as logs:
        failure = failure_of(RuntimeError("secret"))
    assert failure.reason == Reason.INTERNAL.value
    assert "secret" not in failure.message
    assert [entry["error_id"] for entry in logs] == [failure.metadata["error_id"]]


def test_the_program_that_warms_a_compiler_process_up_is_compiled():
    outcome = compiler_process.warm_up(load_kernels(), Platform("cpu", "0", ""), 1 << 40)
    assert outcome.WhichOneof("outcome") == "program"
