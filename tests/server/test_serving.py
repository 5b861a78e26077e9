"""The threads that serve calls, the exit of a process whose serving thread dies, and the line of a ready server."""

import os
import subprocess
import sys
import threading

import pytest
from rows import rows

from shardcall.v1 import server_info_service_pb2
from shardcall_server.frontend.rpc.call_threads import CallThreads
from shardcall_server.frontend.rpc.counted_threads import CountedThreads
from shardcall_server.frontend.serving import as_options, is_lonely
from shardcall_server.settings import Settings, SettingsError
from shardcall_worker.v1 import link_pb2

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


def test_the_command_has_the_arguments_of_connect():
    assert as_options('"localhost:8470"') == "localhost:8470"
    arguments = '"gpu1:8470", ca_certificate="trust/ca.pem", client_key=…'
    assert as_options(arguments) == "gpu1:8470 --ca-certificate trust/ca.pem --client-key …"


@rows(
    ("count", "platform", "settings", "expected"),
    [
        (1, "cpu", {}, True),
        (1, "cpu", {"devices": 1}, False),
        (8, "cpu", {}, False),
        (1, "gpu", {}, False),
        (1, "cpu", {"hosts": 1}, False),
    ],
)
def test_one_cpu_device_needs_advice(count, platform, settings, expected):
    devices = [server_info_service_pb2.Device(id=i, kind=platform) for i in range(count)]
    assert is_lonely(link_pb2.Ready(devices=devices, platform=platform), Settings(**settings)) is expected
