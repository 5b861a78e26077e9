"""The tests of `test_exits.py` that take long."""

import pytest
from end_to_end.test_exits import run

pytestmark = pytest.mark.long

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
