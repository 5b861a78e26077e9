"""Processes that end while they use a client, and those that can start no thread: none hangs."""

import subprocess
import sys

import pytest


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


_THREADS = """
import atexit
import sys
import threading
import numpy as np
import shardcall as sc

client = sc.connect(sys.argv[1])
x = np.ones((64, 64))
kept, begun = client.put(x), threading.Barrier(5)

def call_on(call):
    call()
    begun.wait()
    while True:
        call()

calls = [kept.get, lambda: client.diff(x), lambda: (kept * 2.0).get(), lambda: kept + 1.0]
for call in calls:
    threading.Thread(target=call_on, args=(call,), daemon=True).start()
begun.wait()

@atexit.register
def use():
    for call in calls:
        call()
    try:
        client.put(np.ones((1024, 1024))).get()
    except sc.ClientClosedError as error:  # gRPC sends a stream in a thread
        assert sys.version_info[:2] == (3, 12) and "starts no threads any more" in str(error)
    print("used")
"""


@pytest.mark.parametrize("last", ["", "    client.close()\n"])
def test_daemon_threads_and_exit_handlers_may_use_a_client(server, last):
    ended = run(_THREADS + last, server.address)
    assert (ended.returncode, ended.stdout) == (0, "used\n"), ended.stderr
    if not last:  # else the threads raise that the client is closed
        assert not ended.stderr


_NO_THREADS = """
import sys
import threading
import numpy as np
import shardcall as sc

x, client = np.ones(8), sc.connect(sys.argv[1])
start = threading.Thread.start

def refuse(*arguments):
    raise RuntimeError("can't start new thread")

for call in (lambda: client.put(x), lambda: client.diff(x), lambda: client.submit("diff", x)):
    threading.Thread.start = refuse
    try:
        call()
    except sc.ResourceExhaustedError as error:
        assert "a thread of the client cannot be started" in str(error)
    else:
        raise AssertionError("it needs no thread")
    threading.Thread.start = start
    np.testing.assert_array_equal(client.diff(x).array, np.diff(x))
    np.testing.assert_array_equal((client.put(x) + 1.0).get(), x + 1.0)
    client.close()
    client = sc.connect(sys.argv[1])
threading.Thread.start = refuse
try:
    client.server_info()
except sc.ResourceExhaustedError:
    pass
client.close()
print("closed")
"""


def test_a_client_whose_threads_cannot_be_started_works_again_when_they_can_and_can_be_closed(server):
    ended = run(_NO_THREADS, server.address)
    assert (ended.returncode, ended.stdout) == (0, "closed\n"), ended.stderr
