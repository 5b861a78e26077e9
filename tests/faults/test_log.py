"""The end of a server whose threads hang."""

import os
import signal
import subprocess
import sys

_NEVER_STOPS = """
import threading
from shardcall_server.frontend import serving
from shardcall_server.settings import Settings
from shardcall_worker.v1 import link_pb2

class FrontEnd:
    address, hosts_address = "127.0.0.1:1", ""
    check_warm_up = introduce = introduce_page = lambda *_: None

    def __init__(self, settings):
        pass

    def wait_ready(self, stop):
        return link_pb2.Ready()

    def drain(self):
        threading.Event().wait()

serving.FrontEnd = FrontEnd
serving.serve(Settings(drain_s=0))
"""


def test_a_signal_ends_the_process_when_its_threads_hang():
    with subprocess.Popen(
        [sys.executable, "-c", _NEVER_STOPS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert "ready" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
    assert process.returncode == os.EX_SOFTWARE
    assert '"the server did not stop and is ended"' in log
