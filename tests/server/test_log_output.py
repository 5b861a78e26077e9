"""Output of server and worker: where it fails or is not read, lines are lost, and nothing else."""

import errno
import io
import os
import subprocess
import sys

from end_to_end.processes import wait_for

from shardcall_server.frontend.workers.worker_output import WorkerOutput
from shardcall_server.log_output import LogOutput


def test_lines_are_written_in_order():
    reading, writing = os.pipe()
    output = LogOutput(writing)
    print("one", "é\udcff", file=output)
    output.write("two\n")
    output.wait_written(60)
    assert os.read(reading, 1000) == "one é\\udcff\ntwo\n".encode()
    assert output.dropped_lines == 0
    os.set_blocking(writing, False)  # a pipe that does not block is waited for
    output.write("x" * 200_000 + "\n")
    received = 0
    while received < 200_001:
        received += len(os.read(reading, 1 << 16))
    assert output.dropped_lines == 0


def test_lines_that_cannot_be_written_are_dropped_and_counted():
    full = os.open("/dev/full", os.O_WRONLY)
    output = LogOutput(full)
    output.write("1\n2\n")
    output.wait_written(60)
    assert output.dropped_lines == 2
    os.dup2(os.open(os.devnull, os.O_WRONLY), full)
    output.write("written, since there is space again\n")
    output.wait_written(60)
    assert output.dropped_lines == 2


def test_a_pipe_that_is_not_read_delays_nobody():
    reading, writing = os.pipe()
    output = LogOutput(writing)
    for _ in range(10_000):
        output.write(f"{'x' * 100}\n")
    output.wait_written(0.0)
    assert output.dropped_lines > 1000
    os.close(reading)
    wait_for(lambda: output.dropped_lines > 9000)  # the rest fails


def test_what_was_written_last_is_there_after_the_exit_of_the_process():
    code = "import sys; from shardcall_server.log_output import *; use_log_output(); print('last', file=sys.stderr)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120, check=True)
    assert ended.stderr == b"last\n"


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
