"""Processes that end while they use a client, and those of a server, which signals that mean nothing to it end not."""

import os
import signal
import subprocess
import sys

import numpy as np
from servers import alive, children

import shardcall as sc


def run(source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a program with arguments, which succeeds; returns what it printed."""
    command = [sys.executable, "-c", source, *arguments]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    return ended


_FINALIZERS = """
import os
import sys
import numpy as np
import shardcall as sc

client = sc.connect(sys.argv[1])
x = np.ones(8)
client.diff(x)
kept, recorded, submitted = client.put(x), client.put(x) + 1.0, client.submit("diff", x)
calls = {
    "get": kept.get,
    "recorded": recorded.get,
    "submitted": submitted.get,
    "put": lambda: client.put(x),
    "call": lambda: client.diff(x),
    "record": lambda: kept * 2.0,
    "server_info": client.server_info,
    "local": sc.local,
    "close": client.close,
}

class Caller:
    def __del__(self, calls=calls, closed=sc.ClientClosedError, write=os.write):
        for name, call in calls.items():
            try:
                call()
                write(1, f"{name} returned\\n".encode())
            except closed as error:
                assert "Python exits" in str(error)
                write(1, f"{name} raised\\n".encode())

caller = Caller()
"""


def test_calls_of_finalizers_at_exit_raise_and_closing_returns(server):
    ended = run(_FINALIZERS, server.address)
    assert ended.stderr == ""
    refused = ("get", "recorded", "submitted", "put", "call", "record", "server_info", "local")
    assert ended.stdout.splitlines() == [*(f"{name} raised" for name in refused), "close returned"]


_BLOCK = """
import os
import sys
import numpy as np
import shardcall as sc

with sc.connect(sys.argv[1]) as client, client.put(np.ones(8)) as kept:
    child = os.fork()
    if not child:
        with client.put(np.ones(8)) as own:
            pass
        sys.exit(0 if own.lost else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert kept.get().shape == (8,)
"""


def test_a_child_that_leaves_its_parents_block_deletes_nothing_of_it(server):
    run(_BLOCK, server.address)


def test_signals_that_mean_nothing_to_a_server_end_none_of_its_processes(server):
    with sc.connect(server.address) as client:
        client.diff(np.arange(5.0))  # so that there is a compiler
        pids = [server.process.pid, *server.worker_pids()]
        for pid in pids:  # which grows
            pids += children(pid) if pid != server.process.pid else []
        assert len(pids) >= 4
        restarts = client.usage().mesh.restarts
        for pid in pids:
            for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
                os.kill(pid, number)
        np.testing.assert_array_equal(client.diff(np.arange(11.0)).array, np.ones(10))
        assert all(map(alive, pids))
        assert client.usage().mesh.restarts == restarts
