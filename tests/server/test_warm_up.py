"""Programs compiled ahead on a mesh that answers when the test says so."""

import json
import threading
from concurrent.futures import Future

import pytest
from end_to_end.processes import wait_for
from structlog.testing import capture_logs

from shardcall.v1 import array_pb2, kernel_pb2, server_info_service_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_server.compilation.program_store import StoreCounts
from shardcall_server.frontend.programs.cache_entry import CachedProgram, CacheEntry
from shardcall_server.frontend.programs.counts import StoreTotals
from shardcall_server.frontend.programs.keys import AbstractCall, ProgramKey
from shardcall_server.frontend.programs.warm_up import WarmUp
from shardcall_server.frontend.workers.session import mesh_restarted
from shardcall_server.settings import Settings, SettingsError
from shardcall_worker.v1 import link_pb2

OPERANDS = (array_pb2.ArrayType(element_type=array_pb2.ELEMENT_TYPE_FLOAT64, shape=[8]),)
ENTRY = CacheEntry(
    CachedProgram(ProgramKey("key"), "diff", {}, (), 1),
    kernel_pb2.Plan(),
    kernel_pb2.CacheAnswer(outcome=kernel_pb2.CACHE_OUTCOME_MISS, from_disk=True),
)


class Mesh:
    """Replaces session and programs, since no real mesh compiles as slowly as a test needs.

    Args:
        answer: what it answers to a call; by default, a program when the test says so (`compile`).
    """

    def __init__(self, answer=None) -> None:
        self.ready: Future[link_pb2.Ready] = Future()
        self.ready.set_result(link_pb2.Ready(platform="cpu", devices=[server_info_service_pb2.Device()] * 8))
        self.ended = False
        self.asked: list[str] = []
        self.answers: list[Future[CacheEntry]] = []
        self.answer = answer or (lambda call: self.answers.append(Future()) or self.answers[-1])

    @property
    def compiler(self):
        return self

    def get_or_compile(self, call):
        answer = self.answer(call.call)
        self.asked.append(call.call.kernel)
        return answer

    def wait_for(self, count: int) -> list[str]:
        wait_for(lambda: len(self.asked) >= count)
        return self.asked

    def compile(self, *numbers: int) -> None:
        """Compiles programs, each once it is asked for."""
        for number in numbers:
            self.wait_for(number)
            self.answers[number - 1].set_result(ENTRY)


def done(outcome) -> Future[CacheEntry]:
    future: Future[CacheEntry] = Future()
    future.set_exception(outcome) if isinstance(outcome, Exception) else future.set_result(outcome)
    return future


def warmer(tmp_path, **settings) -> WarmUp:
    return WarmUp(Settings(cache_dir=str(tmp_path / "cache"), **{"warm_up_s": 60.0, **settings}))


def prepared(tmp_path, compiler: Mesh, *kernels: str, **settings) -> WarmUp:
    """A warmer that has prepared a mesh for the calls of a file."""
    operand = {"element_type": "ELEMENT_TYPE_INT8", "shape": [8]}
    calls = [{"call": {"kernel": kernel}, "operands": [operand]} for kernel in kernels]
    (tmp_path / "calls.json").write_text(json.dumps({"format": 1, "calls": calls}))
    named = warmer(tmp_path, warm_up_file=str(tmp_path / "calls.json"), **settings)
    named.prepare(compiler, compiler)
    named.close()
    return named


@pytest.fixture
def used(tmp_path):
    """A warmer of a server that was called before: of "a" most, of "e" least."""
    history_warm_up = warmer(tmp_path)
    history_warm_up.call_history.devices = "cpu 8"
    for times, kernel in enumerate("edcba", 1):
        for _ in range(times):
            history_warm_up.call_history.add(AbstractCall(kernel_pb2.KernelCall(kernel=kernel), OPERANDS))
    yield history_warm_up
    history_warm_up.close()


def test_the_first_mesh_is_ready_when_all_frequent_programs_are(used):
    mesh = Mesh(lambda call: done(ENTRY))
    with capture_logs() as logs:
        used.prepare(mesh, mesh)
    assert mesh.asked == list("abcde")
    (line,) = (entry for entry in logs if "from_disk" in entry)
    assert (line["count"], line["from_disk"], line["left"]) == (5, 5, 0)


def test_a_few_are_compiled_at_once_so_that_callers_do_not_wait_for_all(used):
    mesh = Mesh()
    thread = threading.Thread(target=used.prepare, args=[mesh, mesh])
    thread.start()
    assert mesh.wait_for(2) == ["a", "b"]
    mesh.compile(2)
    assert mesh.wait_for(3) == ["a", "b", "c"]
    mesh.compile(3, 4, 5, 1)
    thread.join(60)
    assert not thread.is_alive()


def test_a_mesh_serves_when_its_time_is_up_and_the_rest_is_compiled_meanwhile(tmp_path, used):
    used.close()
    slow = warmer(tmp_path, warm_up_s=0.05)
    mesh = Mesh()
    slow.prepare(mesh, mesh)  # returns, with nothing made
    mesh.compile(*range(1, 6))
    slow.close()


def test_a_mesh_that_restarts_serves_at_once(used):
    first = Mesh(lambda call: done(ENTRY))
    used.prepare(first, first)
    mesh = Mesh()
    used.prepare(mesh, mesh)  # returns, though nothing is made
    assert mesh.wait_for(2) == ["a", "b"]
    mesh.compile(*range(1, 6))


def test_a_program_that_ended_a_mesh_is_not_compiled_ahead_on_the_next(used):
    def fatal(call):
        mesh.ended = call.kernel == "a"
        return done(mesh_restarted()) if mesh.ended else done(ENTRY)

    mesh = Mesh(fatal)
    used.prepare(mesh, mesh)
    assert mesh.asked[0] == "a"
    assert [counted.call.call.kernel for counted in used.call_history.by_frequency()] == list("bcde")


def test_nothing_is_compiled_without_time_or_without_earlier_calls(tmp_path):
    mesh = Mesh(lambda call: done(ENTRY))
    for warm_up in (warmer(tmp_path), warmer(tmp_path, warm_up_s=0.0)):
        warm_up.prepare(mesh, mesh)
        warm_up.close()
    assert mesh.asked == []


def test_a_call_of_a_file_that_its_kernel_refuses_is_reported_and_the_rest_is_compiled(tmp_path):
    refused = CallError(Reason.KERNEL_NOT_FOUND, "there is no kernel 'dif'")
    mesh = Mesh(lambda call: done(refused if call.kernel == "dif" else ENTRY))
    named = prepared(tmp_path, mesh, "dif", "diff")
    assert mesh.asked == ["dif", "diff"]
    with pytest.raises(SettingsError, match=r"calls.json, call 1 \(dif\): there is no kernel 'dif'"):
        named.check()


def test_a_call_of_a_file_that_could_not_be_compiled_just_now_does_not_keep_the_server_from_starting(tmp_path):
    mesh = Mesh(lambda call: done(CallError(Reason.OUT_OF_DEVICE_MEMORY, "no memory")))
    with capture_logs() as logs:
        named = prepared(tmp_path, mesh, "diff")
    named.check()
    assert "warning" in [entry["log_level"] for entry in logs]  # among what threads of other tests may log


def test_a_call_of_a_file_without_a_mesh_is_compiled_for_the_default_mesh(tmp_path):
    seen: list[kernel_pb2.KernelCall] = []
    mesh = Mesh(lambda call: seen.append(call) or done(ENTRY))
    for settings in ({}, {"mesh": "a=4,b=2"}):
        prepared(tmp_path, mesh, "diff", **settings)
    assert [[(axis.name, axis.size) for axis in call.mesh.axes] for call in seen] == [[("x", 8)], [("a", 4), ("b", 2)]]


def test_counts_of_workers_are_added_up_whichever_of_their_messages_comes_first():
    use = StoreTotals()
    use.update(1, link_pb2.ProgramStoreCounts(hits=3, misses=2))
    use.update(1, link_pb2.ProgramStoreCounts(hits=2, misses=2))
    use.update(2, link_pb2.ProgramStoreCounts(hits=1, damaged=1))
    use.update(2, link_pb2.ProgramStoreCounts(hits=4, damaged=1, evicted=9))
    assert use.counts == StoreCounts(hits=7, misses=2, damaged=1, evicted=9)
