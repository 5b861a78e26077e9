"""Processor time in a worker's heartbeats."""

import os
import signal
import socket
import subprocess
import sys
import time
from itertools import islice

from end_to_end.processes import stop

from shardcall_server.link.framing import Link
from shardcall_worker.v1 import link_pb2

_BEATING = """
import socket, sys, time
from shardcall_server.link.framing import Link
from shardcall_server.mesh.heartbeat import start_heartbeats
start_heartbeats(Link(socket.socket(fileno=int(sys.argv[1]))), alone=False)
time.sleep(60)
"""


def test_a_process_that_was_stopped_says_for_how_long_and_that_it_did_not_work():
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen([sys.executable, "-c", _BEATING, str(theirs.fileno())], pass_fds=[theirs.fileno()])
    link = Link(ours)
    try:
        heartbeats = (link_pb2.WorkerMessage.FromString(body).heartbeat for body, _ in link.frames())
        assert next(heartbeats).late_seconds == 0.0
        before = next(heartbeats)
        stop(process.pid)
        stopped = time.monotonic()
        time.sleep(0.5)
        stopped_s = time.monotonic() - stopped
        os.kill(process.pid, signal.SIGCONT)
        # Some may have been on their way before; and a nap may have been nearly over, or not.
        late_s = before.late_seconds + stopped_s - 0.1
        after = next((heartbeat for heartbeat in islice(heartbeats, 30) if heartbeat.late_seconds > late_s), None)
        assert after is not None, "none of 30 reports it"
        assert 0 < after.cpu_seconds - before.cpu_seconds < stopped_s
    finally:
        process.kill()
        process.wait()
        link.close()
