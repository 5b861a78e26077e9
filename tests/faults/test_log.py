"""A log that cannot be written, and standard streams that are closed, stop neither a call nor the end of the server."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from end_to_end.processes import wait_for
from end_to_end.scraping import scrape

import shardcall as sc

pytestmark = pytest.mark.long

X = np.ones((4, 4))


def test_a_log_that_is_read_no_more_costs_lines_and_no_call(tmp_path, server_factory):
    pipe = tmp_path / "log"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    server = server_factory("--metrics-port", "0", devices=1, log=pipe, why="nobody reads its log")
    lines = (json.loads(line) for line in os.read(reading, 1 << 20).splitlines() if line.startswith(b"{"))
    url = next(line["url"] for line in lines if line["event"] == "metrics")
    os.close(reading)
    with sc.connect(server.address) as client:
        for _ in range(3):
            with pytest.raises(sc.InvalidOperandError):
                client.call("matmul", X, np.ones((3, 3)), timeout=60)
        assert client.diff(X).array.shape == (4, 3)
    wait_for(lambda: scrape(url).total("shardcall_dropped_log_lines_total") >= 3)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == 0


@pytest.mark.parametrize("redirections", [">&- 2>/dev/full", ">/dev/full 2>&-"])
def test_a_server_without_standard_streams_serves_and_stops(tmp_path, redirections):
    socket = tmp_path / "socket"
    command = [sys.executable, "-m", "shardcall.cli", "serve", "--port", "0", "--devices", "1"]
    script = f'exec "$@" --unix-socket {socket} <&- {redirections}'
    server = subprocess.Popen(["sh", "-c", script, "sh", *command])
    try:
        wait_for(lambda: server.poll() is not None or _answers(socket))
        with sc.connect(f"unix:{socket}") as client:
            with pytest.raises(sc.InvalidOperandError):
                client.call("matmul", X, np.ones((3, 3)), timeout=60)
            assert client.diff(X).array.shape == (4, 3)
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    finally:
        server.kill()


def _answers(socket: Path) -> bool:
    try:
        with sc.connect(f"unix:{socket}") as client:
            client.diff(X)
    except sc.ServerUnavailableError:
        return False
    return True


_NEVER_STOPS = """
import threading
from shardcall_server.frontend import serving
from shardcall_server.settings import Settings
from shardcall_worker.v1 import link_pb2

class FrontEnd:
    address, hosts_address = "127.0.0.1:1", ""
    check_warm_up = introduce = introduce_page = lambda *_: None

    def __init__(self, settings):
        pass

    def wait_ready(self, stop):
        return link_pb2.Ready()

    def drain(self):
        threading.Event().wait()

serving.FrontEnd = FrontEnd
serving.serve(Settings(drain_s=0))
"""


def test_a_signal_ends_the_process_when_its_threads_hang():
    with subprocess.Popen(
        [sys.executable, "-c", _NEVER_STOPS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert "ready" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
    assert process.returncode == os.EX_SOFTWARE
    assert '"the server did not stop and is ended"' in log
