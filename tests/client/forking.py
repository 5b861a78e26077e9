"""Scenarios of a process that forks, for `test_forks.py`: ``python forking.py`` runs each in a process of its own.

Those are forked from one that has imported everything and has no threads, and no connection.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

import shardcall
from shardcall._src.calls.call_memo import CallMemo
from shardcall._src.device_arrays.lease import Lease
from shardcall._src.display.progress_bars import Bar, _Screen
from shardcall._src.programs.recorded_calls import RecordedBatch
from shardcall._src.programs.sending import _FailedProgram
from shardcall._src.rpc.call_slots import CallSlots
from shardcall._src.rpc.deadline import Deadline
from shardcall._src.services.implicit_gets import ImplicitGets
from shardcall._src.transfer.result_sizes import ResultSizes
from shardcall.aio.threads import Threads
from shardcall.local_server import ServerProcess
from shardcall.v1 import kernel_pb2
from shardcall_core.wire import forks


def forked(deed):
    """Returns the id of a child that does it, and whose exit status is 0 unless it fails."""
    child = os.fork()
    if not child:
        try:
            deed()
            os._exit(0)
        except BaseException:  # noqa: BLE001  # the test reports every failure
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(1)
    return child


def in_child(deed):
    """Runs it in a forked child, which must come to its end."""
    child = forked(deed)
    deadline, status = time.monotonic() + 20, (0, 0)
    while not status[0] and time.monotonic() < deadline:
        status = os.waitpid(child, os.WNOHANG)
        threading.Event().wait(0.01)
    if not status[0]:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise AssertionError("the child hangs")
    assert os.waitstatus_to_exitcode(status[1]) == 0


def a_child_awaits_with_new_threads():
    threads = Threads()

    def run():
        assert asyncio.run(threads.run(lambda: 3)) == 3

    run()
    in_child(run)
    run()
    asyncio.run(threads.close(lambda: None))

    def refuse():
        with pytest.raises(ValueError, match="closed"):
            run()

    in_child(refuse)


def a_child_has_no_lock_held_and_no_slot_taken():
    slots, memo, sizes, screen = CallSlots(1), CallMemo(), ResultSizes(1), _Screen()
    gets = ImplicitGets("allow")
    message = kernel_pb2.KernelCall(kernel="diff")

    def use():
        with slots.one(Deadline(5.0)):
            memo.add("key", message)
            sizes.note(message, [], [8])
            screen.remove(Bar(lambda: None))
            gets.add(SimpleNamespace(nbytes=8))

    with slots.one(Deadline(5.0)), slots._lock, memo._lock, sizes._lock, screen._lock, gets._lock:
        in_child(use)
    use()


def failed_program(resend):
    calls = [SimpleNamespace(reason="INTERNAL", written=None, resend=None, is_unsent=False) for _ in range(2)]
    batch = RecordedBatch(calls)
    batch.kept = {0: None, 1: None}
    program = _FailedProgram(batch, SimpleNamespace(resend=resend))
    for call in calls:
        call.resend = program.send
    return program, calls


def a_child_sends_the_calls_of_a_failed_program():
    sent = []
    program, _ = failed_program(lambda batch, indices: sent.append(indices))

    def send():
        program.send()
        assert sent == [[0, 1]]

    with program._lock:
        in_child(send)
    assert not sent


def calls_of_a_failed_program_that_a_thread_was_about_to_send_fail_in_a_child():
    def fork(batch, indices):
        calls[0].resend, calls[1].is_unsent = None, True
        in_child(check)

    def check():
        assert lost == [1]

    lost = []
    program, calls = failed_program(fork)
    for i, call in enumerate(calls):
        call.lose_in_fork = partial(lost.append, i)
    program.send()
    assert not lost


class LeasedObject:
    """Stands for an array of the caller, and its version, which a lease only keeps and loses."""

    def __init__(self):
        self._version = type("Version", (), {"object": None})()


def a_child_has_another_lease_and_deletes_nothing_of_its_parents():
    deleted = []
    lease = Lease(60.0, lambda lease_id: None, deleted.append)
    kept = lease.hold(b"parent's", LeasedObject)
    lease_id = lease.lease_id

    def begin():
        assert lease.lease_id != lease_id
        assert not lease.delete_dropped(deleted.append)
        array = lease.hold(b"child's", LeasedObject)
        assert lease._thread is not None
        assert lease._thread.is_alive()
        assert lease.close() == ([b"child's"], [array._version])

    with lease._lock:
        in_child(begin)
    assert lease.lease_id == lease_id
    assert lease.close() == ([b"parent's"], [kept._version])
    assert not deleted


READY_SERVER = [sys.executable, "-c", "import sys; print('shardcall ready at here:1', flush=True); sys.stdin.read()"]


def a_child_lets_the_local_server_alone_which_ends_with_its_owner_though_a_child_goes_on():
    server, go = ServerProcess(READY_SERVER), os.pipe()
    assert server.wait_for_ready(20) == "here:1"
    in_child(server.stop)
    assert server.process.poll() is None
    child = forked(lambda: (os.close(go[1]), os.read(go[0], 1)))
    server.process.stdin.close()
    assert server.process.wait(20) == 0
    for end in go:
        os.close(end)
    os.waitpid(child, 0)
    server.stop()


SERVE = """
import sys
from client.conftest import default_info, serving, with_call_streams
from client.stream_server import StreamServer
info, streams = with_call_streams(default_info()), StreamServer()
with serving() as server:
    server.info, server.call_stream = lambda request, context: info, streams.serve
    print(server.address, flush=True)
    for _ in sys.stdin:
        print(len({sent["shardcall-request-id"] for sent in server.metadata}), len(streams.streams), flush=True)
"""


def python_of_tests(code):
    """Returns a process of Python that imports modules of the tests, and has pipes for its input and output."""
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, **pipes)


@contextlib.contextmanager
def streaming():
    """Yields a client of the server, and a function that counts its RPCs without retries, and its streams."""

    def count():
        SERVER["process"].stdin.write("\n")
        SERVER["process"].stdin.flush()
        return [int(word) for word in SERVER["process"].stdout.readline().split()]

    before = count()
    client = shardcall.connect(SERVER["address"], token="t" * 20)
    yield client, lambda: [now - then for now, then in zip(count(), before, strict=True)]
    client.close()


def call(client):
    for i in range(10):
        assert client.call("echo", float(i)).array == i


def a_fork_ends_the_call_stream_and_a_child_opens_another():
    with streaming() as (client, served):
        call(client)
        in_child(lambda: call(client))
        call(client)
        in_child(lambda: in_child(lambda: call(client)))
        call(client)
        assert served() == [0, 5]
        in_child(client.close)
        call(client)


def a_child_forked_amid_calls_makes_single_rpcs():
    """The thread that forks holds the stream's lock, as a signal handler may."""
    with streaming() as (client, served):
        call(client)
        with client._call_stream._lock:
            in_child(lambda: call(client))
        call(client)
        assert served() == [10, 1]


def a_fork_handler_that_calls_does_not_wait_for_its_fork():
    with streaming() as (client, _):
        forks._forks.pause()
        call(client)
        assert not forks._forks.is_quiet
        forks._forks.resume()


def a_fork_waits_for_an_rpc_in_flight_and_the_next_rpc_for_the_fork():
    is_calling, is_forking, passed = threading.Event(), threading.Event(), []

    def make_two_rpcs():
        with forks.Rpc():
            is_calling.set()
            is_forking.wait(20)
            passed.append("first")
        with forks.Rpc():
            passed.append("second")

    caller = threading.Thread(target=make_two_rpcs)
    caller.start()
    is_calling.wait(20)
    forks._MAX_PAUSE_S = forks._MAX_WAIT_S = 20.0
    ending = type("Ending", (), {"end_rpcs": lambda self, timeout_s: is_forking.set()})()
    forks._forks.ending.add(ending)  # an object with RPCs that a fork ends

    def check():
        assert forks.forked_quietly()
        assert passed == ["first"]

    in_child(check)
    caller.join(20)
    assert passed == ["first", "second"]
    del ending


DEEDS = {name: deed for name, deed in globals().items() if name.startswith(("a_", "calls_of_"))}
"""The scenarios, which are the functions whose names are sentences."""

SERVER = {}


def main():
    """Runs each scenario, and prints a line of JSON for it: its name, and what went wrong."""
    SERVER["process"] = python_of_tests(SERVE)  # which answers a line with its numbers of RPCs and streams
    SERVER["address"] = SERVER["process"].stdout.readline().strip()
    for name, deed in DEEDS.items():
        reading, writing = os.pipe()

        def with_errors_in_the_pipe(deed=deed, writing=writing):
            os.dup2(writing, sys.stderr.fileno())
            os.close(writing)
            deed()

        scenario = forked(with_errors_in_the_pipe)
        os.close(writing)
        with os.fdopen(reading, errors="replace") as stderr:
            said = stderr.read()
        status = os.waitstatus_to_exitcode(os.waitpid(scenario, 0)[1])
        sys.stdout.write(json.dumps([name, f"exit status {status}: {said}" if status else ""]) + "\n")


if __name__ == "__main__":
    main()
