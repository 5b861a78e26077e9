"""A worker's output becomes output of the front end, except a misleading message of XLA."""

import errno
import io
import os

from shardcall_server.frontend.workers.worker_output import WorkerOutput

UNTRUE = (
    "E1124 04:54:47.371708   30227 cpu_aot_loader.cc:195] Loading XLA:CPU AOT result. Target machine feature "
    "+prefer-no-{} is not  supported on the host machine. Machine type used for XLA:CPU compilation doesn't match\n"
)
OTHERS = UNTRUE.format("x").replace("+prefer-no-x", "+avx512f") + '{"event": "mesh is ready"}\n' + "no newline"


def test_untrue_lines_are_left_out_and_all_others_copied(capfd):
    reading, writing = os.pipe()
    output = WorkerOutput(os.fdopen(reading, "rb"))
    os.write(writing, (UNTRUE.format("gather") + UNTRUE.format("scatter") + OTHERS).encode())
    os.close(writing)
    output.wait()
    assert capfd.readouterr().err == OTHERS


def test_output_is_read_where_standard_error_fails(monkeypatch):
    """The worker would wait for its pipe, or get an error from it, at its next line."""

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("sys.stderr", Full())
    reading, writing = os.pipe()
    output = WorkerOutput(os.fdopen(reading, "rb"))
    os.write(writing, b"first\n")
    os.write(writing, b"x" * (1 << 20) + b"\nlast\n")
    os.close(writing)
    output.wait()
    assert output.last_line == "last"


def test_output_that_stays_open_is_not_waited_for_forever():
    reading, writing = os.pipe()
    WorkerOutput(os.fdopen(reading, "rb")).wait()
    os.close(writing)
