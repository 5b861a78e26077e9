"""Segments of clients that are killed, fork or are interrupted, and clients that cannot share memory."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from end_to_end.messages import token_of
from end_to_end.processes import X, is_busy, stopped, wait_for
from end_to_end.test_exits import run
from end_to_end.test_shared_memory import LARGE, shared
from servers import holds_nothing

import shardcall as sc

pytestmark = pytest.mark.long

SEGMENT_BYTES = 32 << 20


def test_an_array_of_empty_is_an_operand_without_a_copy(server_factory):
    server = server_factory("--max-segment-bytes", str(SEGMENT_BYTES), devices=1, why="its segments are small")
    with sc.connect(server.address) as client:
        x = client.empty((20, 128, 1024))  # 20 MiB: there is no space for a copy or for the result
        x[...] = np.arange(x.size, dtype=np.float64).reshape(x.shape) ** 2
        assert shared(x)
        result = client.diff(x, axis=2, prepend=0.0).array
        np.testing.assert_array_equal(result, np.diff(x, axis=2, prepend=0.0))
        assert not shared(result)
        assert SEGMENT_BYTES + x.nbytes <= client.usage().bytes_high_water < SEGMENT_BYTES + x.nbytes * 3 // 2
    with sc.connect(server.address, shared_memory=False) as client:
        client.diff(x, axis=2, prepend=0.0)
        assert client.usage().bytes_high_water >= 2 * x.nbytes


def streams_silently(client: sc.Client, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    x = client.empty(LARGE.shape)
    x[...] = LARGE
    assert not shared(x)
    for _ in range(2):
        result = client.diff(x, axis=0, prepend=0.0).array
        np.testing.assert_array_equal(result, np.diff(LARGE, axis=0, prepend=0.0))
        assert not shared(result)


def test_shared_memory_can_be_turned_off_by_the_server(server_factory, capfd: pytest.CaptureFixture[str]):
    server = server_factory("--no-segments", "--log-level", "warning", devices=1, why="it shares no memory")
    with sc.connect(server.address) as client:
        streams_silently(client, capfd)
        assert client.usage().bytes_high_water < 3 * LARGE.nbytes
    assert capfd.readouterr() == ("", "")


def test_where_the_socket_cannot_be_reached_arrays_are_streamed(
    server_factory, monkeypatch: pytest.MonkeyPatch, tmp_path_factory, capfd: pytest.CaptureFixture[str]
):
    """As in another container, where the path leads elsewhere."""
    theirs = tmp_path_factory.mktemp("theirs")  # its path is short enough for a socket's, unlike that of `tmp_path`
    monkeypatch.setenv("TMPDIR", str(theirs))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    server = server_factory("--log-level", "warning", devices=1, why="its socket is moved")
    assert list(theirs.glob("shardcall-*/segments"))
    theirs.rename(theirs.with_name("gone"))
    with sc.connect(server.address) as client:
        streams_silently(client, capfd)
    assert capfd.readouterr() == ("", "")


_ANOTHER_USER = """
import os, sys
import numpy as np
import shardcall as sc
import shardcall_core.wire.shared_memory
for name in sc.__all__:
    getattr(sc, name)
np.testing.assert_array_equal(1, 1)  # loads all that this user may read
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
with sc.connect(sys.argv[1], token=sys.argv[2]) as client:
    x = client.empty((1024, 1024))
    x[...] = np.arange(x.size).reshape(x.shape)
    np.testing.assert_array_equal(client.diff(x, axis=0).array, np.diff(x, axis=0))
    assert "shardcall-segment" not in open("/proc/self/maps").read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a process as another user")
def test_of_another_user_arrays_are_streamed(limited):
    ended = run(_ANOTHER_USER, limited.address, token_of("guest"))
    assert (ended.stdout, ended.stderr) == ("", "")


_FORKED = """
import os
import sys
import numpy as np
import shardcall as sc
with sc.connect(sys.argv[1]) as client:
    x = np.ones((512, 1024))
    first = client.add(x, x).array
    go = os.pipe()
    child = os.fork()
    if not child:
        os.read(go[0], 1)
        if not (grandchild := os.fork()):
            os._exit(0)
        os.waitpid(grandchild, 0)
        os._exit(0 if (first == 2.0).all() else 1)
    del first
    for value in range(5):
        client.add(x, value)
    os.write(go[1], b"1")
    _, status = os.waitpid(child, 0)
    sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_child_process_keeps_the_results_that_its_parent_lets_go_of(limited):
    run(_FORKED, limited.address)


_INTERRUPTED = """
import sys
import time
import numpy as np
import shardcall as sc
with sc.connect(sys.argv[1], shared_memory=sys.argv[2] == "True") as client:
    x = client.empty((512, 1024))
    x[...] = np.arange(x.size).reshape(x.shape) ** 2
    expected = np.diff(x, axis=0)
    np.testing.assert_array_equal(client.diff(x, axis=0).array, expected)
    print("first", flush=True)
    sys.stdin.readline()
    try:
        client.diff(x, axis=0)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    sys.stdin.readline()
    np.testing.assert_array_equal(client.diff(x, axis=0).array, expected)
    print("second", flush=True)
"""


@pytest.mark.parametrize("shared_memory", [True, False])
def test_ctrl_c_gives_everything_back_and_the_client_goes_on(limited, shared_memory: bool):
    command = [sys.executable, "-c", _INTERRUPTED, limited.address, str(shared_memory)]
    with (
        sc.connect(limited.address) as observer,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=0) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        observer.diff(X, axis=0)
        try:
            assert process.stdout.readline() == "first\n"
            with stopped(limited):
                process.stdin.write("\n")
                wait_for(lambda: is_busy(observer))
                time.sleep(0.5)  # gRPC forgets, and does not end, a call that is interrupted while it is being started
                process.send_signal(signal.SIGINT)
                assert process.stdout.readline() == "interrupted\n"
                wait_for(lambda: not is_busy(observer))
            wait_for(lambda: holds_nothing(observer))
            process.stdin.write("\n")
            assert process.stdout.readline() == "second\n"
            assert process.wait(30) == 0
            wait_for(lambda: holds_nothing(observer))
        finally:
            process.kill()
