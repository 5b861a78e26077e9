"""The tests of `test_progress_of_calls.py` that take long."""

import threading

import numpy as np
import pytest
from end_to_end.processes import wait_for
from end_to_end.test_progress_of_calls import LONG, iterations

import shardcall as sc

pytestmark = pytest.mark.long


def test_the_iterations_of_a_loop_grow_and_end(server):
    with sc.connect(server.address, progress=False) as client:
        h = client.xp.fori_loop(0, LONG, lambda i, s: s + 1, np.zeros(4))
        after = h + 1
        wait_for(lambda: iterations(h))
        first = h.progress()
        assert (first.phase, first.iterations, first.queue_position) == ("running", LONG, None)
        wait_for(lambda: h.progress().iteration > first.iteration)
        assert after.progress().iteration >= first.iteration  # of the call that it waits for
        done = client.xp.fori_loop(0, 5, lambda i, s: s + 1, np.zeros(4))
        done.get()
        assert done.progress() is None
        copy = after[1:].progress()
        assert copy.iterations == LONG


def test_a_function_gets_reports_while_a_thread_waits(server):
    reports, seen = [], threading.Event()

    def listen(progress):
        reports.append(progress)
        ran = [one.iteration for one in reports if one.iteration]
        if len(set(ran)) > 2:
            seen.set()

    with sc.connect(server.address, progress=listen) as client:
        h = client.xp.fori_loop(0, LONG, lambda i, s: s + 1, np.zeros(4))

        def wait():
            with pytest.raises(sc.ShardcallError):  # it ends with the client
                h.get(timeout=None)

        thread = threading.Thread(target=wait)
        thread.start()
        assert seen.wait(120)
    thread.join(120)
    ran = [one.iteration for one in reports if one.iteration]
    assert ran == sorted(ran)
