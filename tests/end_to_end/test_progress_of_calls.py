"""The progress of calls of a real server."""

import itertools
import threading

import numpy as np
import pytest
from client_parts import transport_of
from end_to_end.messages import token_of
from end_to_end.processes import wait_for

import shardcall as sc
from shardcall._src.rpc.deadline import Deadline
from shardcall.v1 import server_info_service_pb2

LONG = 10**12


def progress_rpc(client, request_id):
    """Returns the progress of the calls that the server lists for a client."""
    request = server_info_service_pb2.GetProgressRequest(request_ids=[request_id])
    return list(transport_of(client).unary(transport_of(client).stubs.server.GetProgress, request, Deadline(60)).calls)


def iterations(array):
    progress = array.progress()
    return progress and progress.iteration


@pytest.mark.parametrize("size", [4, 1_000_000])  # by Execute, and by ExecuteStream
def test_calls_outside_the_call_stream_are_reported(server, size):
    reports, seen = [], threading.Event()

    def listen(progress):
        reports.append(progress)
        if (progress.iteration or 0) > 1:
            seen.set()

    with sc.connect(server.address, progress=listen, call_stream=False, shared_memory=False) as client:

        def wait():
            with pytest.raises(sc.ShardcallError):  # it ends with the client
                client.xp.fori_loop(0, LONG, lambda i, s: s + 1, np.zeros(size))

        thread = threading.Thread(target=wait)
        thread.start()
        assert seen.wait(120)
    thread.join(120)
    last = [one for one in reports if one.iteration][-1]
    assert (last.phase, last.iterations, last.what) == ("running", LONG, "graph")
    phases = [phase for phase, _ in itertools.groupby(one.phase for one in reports)]
    assert "upload" not in phases[1:]
    assert (phases[0] == "upload") == (size > 4)


def test_another_principal_sees_nothing(server):
    here, token = server.address, token_of("guest")
    with sc.connect(here) as ours, sc.connect(here, token=token) as guest, sc.connect(here) as same:
        h = ours.xp.fori_loop(0, LONG, lambda i, s: s + 1, np.zeros(4))
        wait_for(lambda: iterations(h))
        assert len(progress_rpc(same, h.handle)) == 1  # another client of the principal
        assert progress_rpc(guest, h.handle) == []


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
        assert after[1:].progress().iterations == LONG


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
