"""The threads that serve calls: started with the server, and the exit of the process where gRPC's own thread dies."""

import os
import subprocess
import sys
import threading

import pytest

from shardcall_server.frontend.rpc.call_threads import CallThreads
from shardcall_server.frontend.rpc.counted_threads import CountedThreads
from shardcall_server.settings import SettingsError

_SERVES_AND_DIES = """
import grpc
from concurrent.futures import ThreadPoolExecutor
from shardcall_server.frontend.serving import exit_with_serving_thread

class NoThreads(ThreadPoolExecutor):
    def submit(self, *_):
        raise RuntimeError("can't start new thread")

def answer(request, context):
    return b""

exit_with_serving_thread()
server = grpc.server(NoThreads(1))
handler = grpc.unary_unary_rpc_method_handler(answer)
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a", {"B": handler}),))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary("/a/B")(b"", timeout=60)
"""


def _starts_no_more(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_calls_start_no_threads(monkeypatch: pytest.MonkeyPatch):
    threads = CallThreads(7)
    handler = threads.refusing(lambda _: pytest.fail("no call is to be refused"))
    pools = [threads, handler.stream_unary.experimental_thread_pool]
    monkeypatch.setattr(threading.Thread, "start", _starts_no_more)
    everywhere = threading.Barrier(8)
    waiting = [threads.submit(everywhere.wait, 60) for _ in range(7)]
    everywhere.wait(60)
    for future in waiting:
        future.result(60)
    assert [pool.submit(int).result(60) for pool in pools] == [0, 0]


def test_threads_that_cannot_be_started_are_reported_at_startup(monkeypatch: pytest.MonkeyPatch):
    start, started = threading.Thread.start, []

    def start_three(self: threading.Thread) -> None:
        if len(started) == 3:
            _starts_no_more(self)
        started.append(self)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", start_three)
    with pytest.raises(SettingsError, match=r"started 3 of 5 threads named call; raise the limit on processes"):
        CountedThreads(5, 5, "call")


def test_a_server_whose_serving_thread_dies_exits():
    ended = subprocess.run([sys.executable, "-c", _SERVES_AND_DIES], capture_output=True, timeout=120, check=False)
    assert ended.returncode == os.EX_SOFTWARE, ended.stderr
    assert b"the thread that serves connections died" in ended.stdout + ended.stderr
