"""Signals to a server that drains, whose log cannot be written, or whose threads hang."""

import ctypes
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from end_to_end.processes import X, wait_for
from end_to_end.scraping import scrape
from faults.test_draining import ADMITTING, CLIENTS, connected, in_flight, is_refused
from servers import alive

import shardcall as sc

pytestmark = pytest.mark.long

AT_ONCE = 200


def test_a_second_signal_ends_two_hundred_calls_at_once(server_factory):
    server = server_factory(*ADMITTING, why="it drains")
    with connected(server.address, CLIENTS, retries=False) as clients, ThreadPoolExecutor(AT_ONCE) as pool:
        (worker,) = server.worker_pids()[:1]
        with in_flight(server, clients, pool, AT_ONCE) as calls:
            server.process.send_signal(signal.SIGTERM)
            wait_for(lambda: is_refused(clients[0]))
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(60) == 128 + signal.SIGTERM
            wait_for(lambda: not alive(worker))
        for call in calls:
            with pytest.raises(sc.ServerUnavailableError):
                call.result(60)


def test_signals_that_another_thread_takes_count_too(server_factory):
    """Linux gives a signal to any thread; Python's handler runs in the main one, which nothing wakes then."""

    def signal_another_thread() -> None:
        pid = server.process.pid
        other = sorted(map(int, os.listdir(f"/proc/{pid}/task")))[1]  # there since the start
        assert ctypes.CDLL(None).tgkill(pid, other, signal.SIGTERM) == 0

    server = server_factory(devices=1, why="it drains")
    with sc.connect(server.address, retries=False) as client, ThreadPoolExecutor(1) as pool:
        client.diff(X, axis=0)
        os.kill(server.worker_pids()[0], signal.SIGSTOP)
        last = pool.submit(client.diff, X, axis=0, timeout=120)
        wait_for(lambda: client.usage().calls == 1)
        signal_another_thread()
        wait_for(lambda: is_refused(client))
        signal_another_thread()
        assert server.process.wait(60) == 128 + signal.SIGTERM
        with pytest.raises(sc.ServerUnavailableError):
            last.result(60)


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
        assert client.diff(X).array.shape == (64, 3)
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
            assert client.diff(X).array.shape == (64, 3)
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

    def __init__(self, *_):
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
