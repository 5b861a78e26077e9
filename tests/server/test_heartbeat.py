"""Processor time in a worker's heartbeats."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

from end_to_end.processes import wait_for

from shardcall_server.link.framing import Link
from shardcall_worker.v1 import link_pb2

_BEATING = """
import socket, sys, time
from shardcall_server.link.framing import Link
from shardcall_server.mesh.heartbeat import start_heartbeats
start_heartbeats(Link(socket.socket(fileno=int(sys.argv[1]))), alone=False)
time.sleep(60)
"""


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_process_that_was_stopped_says_for_how_long_and_that_it_did_not_work():
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-c", _BEATING, str(theirs.fileno())]
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
    link = Link(ours)
    try:
        heartbeats = (link_pb2.WorkerMessage.FromString(body).heartbeat for body, _ in link.frames())
        assert next(heartbeats).late_seconds == 0.0
        before = next(heartbeats)
        os.kill(process.pid, signal.SIGSTOP)
        wait_for(lambda: _state(process.pid) == "T")  # till then SIGCONT would have it never stop
        stopped = time.monotonic()
        time.sleep(0.5)
        stopped_s = time.monotonic() - stopped
        os.kill(process.pid, signal.SIGCONT)
        # Some may have been on their way before; and a nap may have been nearly over, or not.
        late = (
            heartbeat
            for heartbeat in islice(heartbeats, 30)
            if heartbeat.late_seconds - before.late_seconds > stopped_s - 0.1
        )
        after = next(late, None)
        assert after is not None, "none of 30 reports it"
        assert 0 < after.cpu_seconds - before.cpu_seconds < stopped_s
    finally:
        process.kill()
        process.wait()
        link.close()
