"""The history of calls outlasts the server in a file, and the programs of frequent calls are compiled ahead."""

import json
import os
import stat
import threading
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest
from end_to_end.processes import wait_for
from rows import rows
from server.conftest import NO_JSON_OBJECTS
from structlog.testing import capture_logs

from shardcall.v1 import array_pb2, kernel_pb2, server_info_service_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_core.wire import private_files
from shardcall_server.compilation.program_store import StoreCounts
from shardcall_server.frontend.programs import call_history as module
from shardcall_server.frontend.programs.cache_entry import CachedProgram, CacheEntry
from shardcall_server.frontend.programs.call_history import CallHistory
from shardcall_server.frontend.programs.counts import StoreTotals
from shardcall_server.frontend.programs.keys import AbstractCall, ProgramKey
from shardcall_server.frontend.programs.warm_up import WarmUp
from shardcall_server.frontend.workers.session import mesh_restarted
from shardcall_server.settings import Settings, SettingsError
from shardcall_worker.v1 import link_pb2

OPERANDS = (array_pb2.ArrayType(element_type=array_pb2.ELEMENT_TYPE_FLOAT64, shape=[8]),)
DEVICES = "cpu 8"


def call(kernel: str) -> AbstractCall:
    parameters = {"axis": kernel_pb2.ParameterValue(int_value=1)}
    return AbstractCall(kernel_pb2.KernelCall(kernel=kernel, parameters=parameters), OPERANDS)


def use(history: CallHistory, kernel: str, times: int = 1) -> None:
    for _ in range(times):
        history.add(call(kernel))


def record(folder: Path, *kernels: str, **limits: int) -> None:
    """Has a server count calls, and ends it."""
    with closing(opened(folder, **limits)) as history:
        for kernel in kernels:
            use(history, kernel)


def opened(folder: Path, **limits: int) -> CallHistory:
    history = CallHistory(str(folder), **limits)
    history.devices = DEVICES
    return history


def kernels_by_frequency(folder: Path) -> list[str]:
    with closing(opened(folder)) as history:
        return [counted.call.call.kernel for counted in history.by_frequency()]


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "cache"


def test_the_next_server_lists_them_by_frequency(folder):
    record(folder, *["diff"] * 2, *["matmul"] * 7, *["roll"] * 4)
    assert [stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()] == [0o600]
    following = opened(folder)
    expected = [call(kernel) for kernel in ("matmul", "roll", "diff")]
    assert [(c.call.call, c.call.operands) for c in following.by_frequency()] == [(c.call, OPERANDS) for c in expected]
    assert [c.call.key for c in following.by_frequency()] == [c.key for c in expected]
    use(following, "diff", 3)  # half of the earlier counts, and these
    following.close()
    assert kernels_by_frequency(folder) == ["diff", "matmul", "roll"]


def test_only_calls_of_the_same_devices_that_were_not_refused_are_listed(folder):
    with closing(opened(folder)) as history:
        for kernel, error in (("diff", None), ("nonesuch", ValueError())):
            compiled: Future = Future()
            history.add_when_compiled(call(kernel), compiled)
            compiled.set_exception(error) if error else compiled.set_result(None)
        history.devices = "cpu 1"
        use(history, "roll")
    assert kernels_by_frequency(folder) == ["diff"]


def test_those_not_used_for_longest_are_left_out_where_there_are_many(folder):
    record(folder, "diff", "roll", "diff", "matmul", max_calls=2)
    assert kernels_by_frequency(folder) == ["diff", "matmul"]


def test_servers_that_share_a_folder_add_to_it_and_what_one_removed_is_gone(folder):
    other = opened(folder)
    record(folder, "diff")
    use(other, "roll")
    other.close()
    assert sorted(kernels_by_frequency(folder)) == ["diff", "roll"]
    with closing(opened(folder)) as third:
        third.remove(call("diff").key)
    assert kernels_by_frequency(folder) == ["roll"]


def test_calls_of_another_server_stay_where_its_file_cannot_be_read(folder, monkeypatch):
    history = opened(folder)
    record(folder, "diff")
    with monkeypatch.context() as without_files, capture_logs() as logs:
        without_files.setattr(module.private_files, "read_file", Mock(side_effect=OSError("Too many open files")))
        use(history, "roll")
        history.close()
    assert [log["event"] for log in logs] == ["the call history cannot be read, and is not written"]
    assert kernels_by_frequency(folder) == ["diff"]


@rows(
    "content",
    [
        *NO_JSON_OBJECTS,
        b'{"format": 99, "calls": []}',
        b'{"format": 1, "calls": [{"call": "*"}]}',
        b'{"format": 1, "calls": [{"call": {}, "operands": [], "count": "NaN"}]}',
        b'{"format": 1, "calls": [{"call": {}, "operands": [], "count": 1e999}]}',
        b'{"format": 1, "calls": [{"call": {"kernell": "diff"}, "operands": []}]}',
        b'{"format": 1, "calls": [{"call": {"kernel": "diff"}, "operands": [{"shape": [%s]}]}]}' % (b"9" * 400),
        b'{"format": 1, "calls": [{"call": {"kernel": "diff"}}]}',
        b'{"format": 1, "calls": 7}',
    ],
)
def test_a_damaged_file_costs_one_warning_and_is_written_anew(folder, content):
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / "call_history.json").write_bytes(content)
    with capture_logs() as logs:
        record(folder, "diff")
    assert [log["event"].partition(",")[0] for log in logs] == ["the call history is not used"]
    assert kernels_by_frequency(folder) == ["diff"]


def test_a_folder_that_others_may_write_to_is_neither_read_nor_written(folder):
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "call_history.json").write_text('{"format": 1, "calls": []}')
    with capture_logs() as logs:
        record(folder, "diff")
    assert [log["log_level"] for log in logs].count("warning") == 1  # beside what earlier warm-ups say
    assert json.loads((folder / "call_history.json").read_text())["calls"] == []


def test_a_server_without_a_folder_counts_while_it_runs(tmp_path):
    os.chdir(tmp_path)
    history = CallHistory("")
    use(history, "diff", 2)
    assert [counted.count for counted in history.by_frequency()] == [2]
    history.close()
    assert list(tmp_path.iterdir()) == []


def test_a_call_with_resident_arrays_has_the_same_key_after_a_start(folder):
    resident = AbstractCall(call("diff").call, OPERANDS, has_resident_arrays=True)
    with closing(opened(folder)) as history:
        history.add(resident)
    (counted,) = opened(folder).by_frequency()
    assert (counted.call.key, counted.call.has_resident_arrays) == (resident.key, True)


def test_a_file_that_this_server_wrote_is_not_read_again(folder, monkeypatch):
    record(folder, "other")
    history = opened(folder)
    use(history, "diff")
    wait_for(lambda: b"diff" in (folder / "call_history.json").read_bytes())
    with monkeypatch.context() as patch:
        patch.setattr(private_files, "read_file", lambda *_, **__: pytest.fail("the file was read"))
        use(history, "roll")
        history.close()
    assert set(kernels_by_frequency(folder)) == {"other", "diff", "roll"}


@rows(
    ("item", "says"),
    [
        ({"call": {}, "operands": [], "device": "cpu 8"}, "call 1 cannot be read: 'device' is unknown; allowed are"),
        ({"call": {"x" * 10_000: 1}, "operands": []}, "call 1 cannot be read"),
    ],
)
def test_a_call_that_cannot_be_read_is_named_in_a_short_message(item, says):
    with pytest.raises(ValueError, match=says) as caught:
        module.decode_calls(json.dumps({"format": 1, "calls": [item]}).encode())
    assert len(str(caught.value)) < 600


def test_operands_omitted_at_the_end_do_not_change_the_key():
    item = {"call": {"kernel": "diff"}, "operands": [{"element_type": "ELEMENT_TYPE_FLOAT64", "shape": ["8"]}, {}]}
    (counted,) = module.decode_calls(json.dumps({"format": 1, "calls": [item]}).encode())
    assert counted.call.operands == OPERANDS


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
        use(history_warm_up.call_history, kernel, times)
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
