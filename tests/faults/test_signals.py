"""Handlers of signals that raise at random moments of calls: the client continues, with the right results."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from faults import signalled_calls
from servers import ServerProcess

from shardcall_core import locks

pytestmark = pytest.mark.long

_COUNT = 800


def test_signal_handlers_that_raise_in_calls_leave_the_client_usable(server: ServerProcess):
    command = [sys.executable, signalled_calls.__file__, server.address, str(_COUNT), "1"]
    # A checked lock is taken and released by Python code, in which a handler may raise.
    environment = {name: value for name, value in os.environ.items() if name != locks.VARIABLE}
    ended = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=1800)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > _COUNT // 2
