"""Standard error that fails or is not read costs lines of the log, and nothing else."""

import os
import subprocess
import sys

from end_to_end.processes import wait_for

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
