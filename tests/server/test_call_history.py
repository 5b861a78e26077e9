"""Which calls came lately, and how often, outlasts the server in a file that costs nothing when it is damaged."""

from __future__ import annotations

import json
import os
import stat
from concurrent.futures import Future
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from shardcall.v1 import array_pb2, kernel_pb2
from shardcall_server.frontend.programs import call_history as module
from shardcall_server.frontend.programs.call_history import CallHistory
from shardcall_server.frontend.programs.keys import AbstractCall, CallKey

OPERANDS = (array_pb2.ArrayType(element_type=array_pb2.ELEMENT_TYPE_FLOAT64, shape=[8]),)
DEVICES = "cpu 8"


def call(kernel: str) -> AbstractCall:
    parameters = {"axis": kernel_pb2.ParameterValue(int_value=1)}
    return AbstractCall(kernel_pb2.KernelCall(kernel=kernel, parameters=parameters), OPERANDS)


def use(hot: CallHistory, kernel: str, times: int = 1) -> CallKey:
    for _ in range(times):
        hot.add(call(kernel))
    return call(kernel).key


def opened(folder: Path) -> CallHistory:
    hot = CallHistory(str(folder))
    hot.devices = DEVICES
    return hot


def hottest(folder: Path) -> list[str]:
    hot = opened(folder)
    kernels = [item.call.kernel for _, item in hot.hottest()]
    hot.close()
    return kernels


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "cache"


def test_the_next_server_knows_them_the_most_frequent_first(folder):
    hot = opened(folder)
    for kernel, times in (("diff", 2), ("matmul", 7), ("roll", 4)):
        use(hot, kernel, times)
    hot.close()
    following = opened(folder)
    assert [(item.call, item.operands) for _, item in following.hottest()] == [
        (call(kernel).call, OPERANDS) for kernel in ("matmul", "roll", "diff")
    ]
    assert next(digest for digest, _ in following.hottest()) == call("matmul").key
    use(following, "diff", 3)  # half of the earlier counts, and these
    following.close()
    assert hottest(folder) == ["diff", "matmul", "roll"]


def test_only_those_of_the_same_devices_are_told(folder):
    hot = opened(folder)
    use(hot, "diff")
    hot.devices = "cpu 1"
    use(hot, "roll")
    hot.close()
    assert hottest(folder) == ["diff"]


def test_only_this_user_may_read_the_file(folder):
    hot = opened(folder)
    use(hot, "diff")
    hot.close()
    assert [stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()] == [0o600]


def test_what_a_client_asked_for_and_was_refused_is_not_hot(folder):
    hot = opened(folder)
    for kernel, error in (("diff", None), ("nonesuch", ValueError())):
        found: Future = Future()
        hot.add_when_compiled(call(kernel), found)
        found.set_exception(error) if error else found.set_result(None)
    hot.close()
    assert hottest(folder) == ["diff"]


def test_those_not_used_for_longest_are_left_out_where_there_are_many(folder, monkeypatch):
    monkeypatch.setattr(module, "_MAX_CALLS", 2)
    hot = opened(folder)
    for kernel in ("diff", "roll", "diff", "matmul"):
        use(hot, kernel)
    hot.close()
    assert hottest(folder) == ["diff", "matmul"]


def test_servers_that_share_a_folder_add_to_it_and_what_one_forgot_is_gone(folder):
    one, other = opened(folder), opened(folder)
    digest = use(one, "diff")
    one.close()
    use(other, "roll")
    other.close()
    assert sorted(hottest(folder)) == ["diff", "roll"]
    third = opened(folder)
    third.forget(digest)
    third.close()
    assert hottest(folder) == ["roll"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"format": 99, "calls": []}',
        b'{"format": 1, "calls": [{"call": "*"}]}',
        b'{"format": 1, "calls": [{"call": "", "operands": [], "count": "NaN", "used": 0, "devices": ""}]}',
        b'{"format": 1, "calls": [{"call": "AAAA", "operands": [], "count": 1, "used": 0, "devices": ""}]}',
        b'{"format": 1, "calls": 7}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_file_costs_one_warning_and_is_written_anew(folder, content):
    folder.mkdir(mode=0o700)
    (folder / "hot.json").write_bytes(content)
    with capture_logs() as logs:
        hot = opened(folder)
        assert hot.hottest() == []
        use(hot, "diff")
        hot.close()
    assert [log["event"] for log in logs] == ["what was called before is not known, and made ready when it is called"]
    assert hottest(folder) == ["diff"]


def test_a_folder_that_others_may_write_to_is_neither_read_nor_written(folder):
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "hot.json").write_text('{"format": 1, "calls": []}')
    with capture_logs() as logs:
        hot = opened(folder)
        use(hot, "diff")
        hot.close()
    assert len(logs) == 1
    assert json.loads((folder / "hot.json").read_text())["calls"] == []


def test_a_server_without_a_folder_remembers_while_it_runs(tmp_path):
    os.chdir(tmp_path)
    hot = CallHistory("")
    use(hot, "diff", 2)
    assert [item.count for _, item in hot.hottest()] == [2]
    hot.close()
    assert list(tmp_path.iterdir()) == []
