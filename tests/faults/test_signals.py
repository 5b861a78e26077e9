"""Handlers of signals that raise at random moments of calls: the client continues, with the right results.

The calls are made by a process of this file: ``ADDRESS COUNT SEED``. It prints how many handlers raised, after the
client has made the right results after all of them.
"""

import faulthandler
import os
import random
import signal
import subprocess
import sys
import threading
import time
from types import FrameType

import numpy as np
import pytest

import shardcall as sc
from shardcall_core import locks

pytestmark = pytest.mark.long

COUNT = 400
HANG_S = 120.0
SIGNALS = (signal.SIGINT, signal.SIGALRM, signal.SIGUSR1, signal.SIGTERM)
SMALL, LARGE = np.arange(16.0), np.random.default_rng(0).standard_normal((1024, 512))


class _Raised(Exception):
    """An exception that handlers of signals raise, besides `KeyboardInterrupt` and `TimeoutError`."""


def _raise(number: int, frame: FrameType | None) -> None:
    _handled.append(number)
    if number == signal.SIGINT:
        signal.default_int_handler(number, frame)
    raise TimeoutError if number == signal.SIGALRM else _Raised


_handled: list[int] = []


def make_calls(address: str, count: int, seed: int) -> None:
    """Makes calls under signals, and checks calls after them."""
    rng, raised = random.Random(seed), 0
    with sc.connect(address) as client:
        kept = client.put(LARGE)

        durations_s = {}
        jobs = (
            lambda: np.testing.assert_array_equal(client.diff(SMALL).array, np.diff(SMALL)),
            lambda: np.testing.assert_array_equal(kept.get(), LARGE),
            lambda: np.testing.assert_array_equal(client.diff(LARGE).array, np.diff(LARGE)),
            lambda: np.testing.assert_array_equal((client.submit("diff", kept) * 2.0).get(), np.diff(LARGE) * 2.0),
            lambda: np.testing.assert_array_equal(client.put(LARGE).shape, LARGE.shape),
            lambda: np.testing.assert_array_equal((client.put(SMALL) + 1.0).get(), SMALL + 1.0),
            lambda: np.testing.assert_array_equal(len(client.server_info().devices) > 0, True),
        )
        for job in jobs:
            job()  # compiles
            began_at = time.monotonic()
            job()
            durations_s[job] = time.monotonic() - began_at
        for number in SIGNALS:
            signal.signal(number, _raise)
        for i in range(count):
            faulthandler.dump_traceback_later(HANG_S, exit=True)
            job = rng.choice(jobs)
            number, delay_s = SIGNALS[i % len(SIGNALS)], rng.random() * 1.3 * durations_s[job]
            try:
                threading.Timer(delay_s, os.kill, [os.getpid(), number]).start()
                job()
                while len(_handled) <= i:  # a signal that was sent may not have arrived
                    time.sleep(1e-4)
            except (KeyboardInterrupt, TimeoutError, _Raised):
                raised += 1
            for other in jobs if i % 10 == 0 else jobs[:2]:
                other()
        faulthandler.cancel_dump_traceback_later()
    sys.stdout.write(f"{raised}\n")


def test_signal_handlers_that_raise_in_calls_leave_the_client_usable(server):
    command = [sys.executable, __file__, server.address, str(COUNT), "1"]
    # A checked lock is taken and released by Python code, in which a handler may raise.
    environment = {name: value for name, value in os.environ.items() if name != locks.VARIABLE}
    ended = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=1800)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > COUNT // 2


if __name__ == "__main__":
    make_calls(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
