"""The history of recent calls outlasts the server in a file, and a damaged file costs nothing."""

import json
import os
import stat
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path

import pytest
from end_to_end.processes import wait_for
from rows import rows
from server.damaged_files import NO_JSON_OBJECTS
from structlog.testing import capture_logs

from shardcall.v1 import array_pb2, kernel_pb2
from shardcall_core.wire import private_files
from shardcall_server.frontend.programs import call_history as module
from shardcall_server.frontend.programs.call_history import CallHistory
from shardcall_server.frontend.programs.keys import AbstractCall

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
    assert len(logs) == 1
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
