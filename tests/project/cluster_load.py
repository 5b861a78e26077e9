"""A client's program, which `test_cluster.py` runs in a container: callers who ask until they are stopped.

Every call that ends is a line of JSON: when it began and ended, in seconds since 1970, by whom, and the error's name,
or "" for a right answer, or "wrong". Other lines report the hosts and the ports of the connections.
"""

import json
import sys
import threading
import time
from pathlib import Path

import numpy as np

import shardcall as sc

CALLERS = 4
ROWS = (64, 64, 4096, 40_000)  # a few bytes in a message, and some that go as chunks
TIMEOUT_S = 90.0
PAUSE_S = 0.2
PORT = 8470
finished, speaking = threading.Event(), threading.Lock()


def local_ports() -> list[int]:
    """The ports of this container that are connected to a server's."""
    fields = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [int(f[1].split(":")[1], 16) for f in fields if f[3] == "01" and int(f[2].split(":")[1], 16) == PORT]


def report(**what: object) -> None:
    with speaking:
        print(json.dumps(what), flush=True)  # noqa: T201  # its output is read by the test


def ask(client: sc.Client, who: int) -> None:
    x = np.random.default_rng(who).standard_normal((ROWS[who], 8))
    expected = np.diff(x, axis=0, prepend=0.0)
    while not finished.is_set():
        began, outcome = time.time(), ""
        try:
            answer = client.diff(x, axis=0, prepend=0.0, mesh=sc.Mesh(x=8), spec=sc.P("x", None), timeout=TIMEOUT_S)
            outcome = "" if np.array_equal(answer.array, expected) else "wrong"
        except Exception as error:  # noqa: BLE001  # every error is reported to the test
            outcome = type(error).__name__
        report(who=who, began=began, ended=time.time(), outcome=outcome)
        finished.wait(PAUSE_S)


def observe(client: sc.Client) -> None:
    while not finished.wait(0.5):
        try:
            hosts = {host.name: host.present for host in client.server_info(timeout=TIMEOUT_S).hosts}
        except sc.ShardcallError as error:
            report(error=str(error))
        else:
            report(hosts=hosts, ports=local_ports())


def main() -> None:
    with sc.connect("front-end:8470", connect_timeout=TIMEOUT_S) as client:
        threads = [threading.Thread(target=ask, args=[client, who]) for who in range(CALLERS)]
        threads.append(threading.Thread(target=observe, args=[client]))
        for thread in threads:
            thread.start()
        sys.stdin.read()  # until it is closed
        finished.set()
        for thread in threads:
            thread.join()


main()
