"""Processes that end while they use a client, and those that can start no thread: none hangs."""

import subprocess
import sys


def run(source: str, address: str) -> subprocess.CompletedProcess[str]:
    """Runs a program with the address of a server as its argument; returns what it printed."""
    return subprocess.run(
        [sys.executable, "-c", source, address], check=False, capture_output=True, text=True, timeout=120
    )


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
    assert (ended.returncode, ended.stderr) == (0, "")
    refused = ("get", "recorded", "submitted", "put", "call", "record", "server_info", "local")
    assert ended.stdout.splitlines() == [*(f"{name} raised" for name in refused), "close returned"]
