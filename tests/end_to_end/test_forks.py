"""Forked children call by their parent's client, and clients work while their process ends or can start no thread."""

import pytest
from end_to_end.test_exits import run

pytestmark = pytest.mark.long

_FORKED = """
import os
import sys
import threading
import numpy as np
import shardcall as sc

x, small = np.ones((1024, 1024)), np.ones(8)
client = sc.connect(sys.argv[1])
kept = client.put(x)
stop, begun, others = threading.Event(), threading.Barrier(5), []

def call_on(array):
    client.diff(array)
    begun.wait()
    while not stop.is_set():
        client.diff(array)

for array in (small, small, small, x):  # without pause, over the call stream and in shared memory
    others.append(threading.Thread(target=call_on, args=(array,)))
    others[-1].start()
begun.wait()
codes = []
for _ in range(4):
    child = os.fork()
    if not child:
        assert client.diff(small, timeout=20).array.shape == (7,)
        assert client.diff(x, timeout=20).array.shape == (1024, 1023)
        assert client.diff(kept, timeout=20, keep=True).array.get().shape == (1024, 1023)
        client.close()
        sys.exit(3)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
stop.set()
for other in others:
    other.join()
assert codes == [3] * 4, codes
assert kept.get().shape == x.shape
client.close()
print("done")
"""


@pytest.mark.parametrize("closes", [True, False])
def test_children_of_a_process_whose_threads_call(server, closes: bool):
    ended = run(_FORKED if closes else _FORKED.replace("client.close()\n        sys.exit", "sys.exit"), server.address)
    assert ended.stdout == "done\n", ended.stderr


_RESULTS = """
import os
import sys
import time
import numpy as np
import shardcall as sc
from shardcall_core.wire import forks

def read(h, expected, may_be_lost):
    try:
        np.testing.assert_allclose(h.get(timeout=60), expected)
    except sc.ArrayLostError as error:
        assert may_be_lost, error
        assert "call client.synchronize() before the fork" in str(error)
    return 3

with sc.connect(sys.argv[1]) as client:
    for i in range(int(sys.argv[2])):
        x = np.random.default_rng(i).standard_normal((20 + i % 3, 8))
        h = client.put(x)
        h = (h - h.mean()) / h.std()
        expected = (x - x.mean()) / x.std()
        time.sleep(0.005 * (i % 6))  # before, while and after it is sent
        waits = i % 2 == 0
        forks.MAX_FINISH_S = 60.0 if waits else 0.0
        child = os.fork()
        if not child:
            os._exit(read(h, expected, not waits))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3, i
        np.testing.assert_allclose(h.get(), expected)
"""


def test_a_child_has_the_results_of_calls_before_the_fork_or_an_error_that_names_the_remedy(server):
    run(_RESULTS, server.address, "18")


_LOCAL = """
import os
import sys
import numpy as np
import shardcall as sc

with sc.local(devices=2) as client:
    for deed in (client.close, sys.exit):
        child = os.fork()
        if not child:
            deed()
            sys.exit()
        assert os.waitpid(child, 0)[1] == 0
    assert client.diff(np.ones(8)).array.shape == (7,)
"""


def test_children_that_end_leave_a_local_server_to_their_parent():
    run(_LOCAL)


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
    assert ended.stdout == "used\n", ended.stderr
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
    assert run(_NO_THREADS, server.address).stdout == "closed\n"
