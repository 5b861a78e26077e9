"""A client's program, which `test_cluster.py` runs in a container: callers who ask before, during and after a fault.

It prints a line when every caller has had a right answer, and reads one when the fault is over. When every caller has
had a right answer to a later call, it prints what it saw as JSON: the names of the errors, "wrong" and "" for right
answers among them, the seconds of the longest call, those from the end of the fault to the first right answer, the
hosts, and whether the client has the connections that it had at first.
"""

import json
import sys
import threading
import time
from pathlib import Path

import numpy as np

import shardcall as sc

ROWS = (64, 64, 4096, 40_000)  # of each caller: a few bytes in a message, and some that go as chunks
TIMEOUT_S = 90.0
PORT = 8470
finished = threading.Event()
calls: list[tuple[int, float, float, str]] = []
"""Of each call that has ended the caller, when it began and ended, and the outcome."""


def local_ports() -> set[int]:
    """The ports of this container that are connected to a server's."""
    fields = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(f[1].split(":")[1], 16) for f in fields if f[3] == "01" and int(f[2].split(":")[1], 16) == PORT}


def ask(client: sc.Client, who: int) -> None:
    x = np.random.default_rng(who).standard_normal((ROWS[who], 8))
    expected = np.diff(x, axis=0, prepend=0.0)
    while not finished.wait(0.2):
        began = time.time()
        try:
            answer = client.diff(x, axis=0, prepend=0.0, mesh=sc.Mesh(x=8), spec=sc.P("x", None), timeout=TIMEOUT_S)
            outcome = "" if np.array_equal(answer.array, expected) else "wrong"
        except Exception as error:  # noqa: BLE001  # every error is reported to the test
            outcome = type(error).__name__
        calls.append((who, began, time.time(), outcome))


def wait_answered(since: float) -> None:
    """Waits until every caller has had a right answer to a call that began after a moment."""
    while len({who for who, began, _, outcome in [*calls] if began > since and not outcome}) < len(ROWS):
        time.sleep(0.1)


def main() -> None:
    with sc.connect(f"front-end:{PORT}", connect_timeout=TIMEOUT_S) as client:
        threads = [threading.Thread(target=ask, args=[client, who]) for who in range(len(ROWS))]
        for thread in threads:
            thread.start()
        wait_answered(0.0)
        ports = local_ports()
        print("begun", flush=True)  # noqa: T201  # its output is read by the test
        sys.stdin.readline()
        wait_answered(recovered := time.time())
        seen = {
            "outcomes": sorted({outcome for *_, outcome in calls}),
            "longest_s": max(ended - began for _, began, ended, _ in calls),
            "back_s": min(ended for *_, ended, outcome in calls if ended > recovered and not outcome) - recovered,
            "hosts": {host.name: host.present for host in client.server_info(timeout=TIMEOUT_S).hosts},
            "is_connected_still": local_ports() == ports,
        }
        print(json.dumps(seen), flush=True)  # noqa: T201
        finished.set()
        for thread in threads:
            thread.join()


main()
