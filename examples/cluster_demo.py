"""The first question to a mesh of several hosts, and what becomes of calls when one of them is lost.

python examples/cluster_demo.py HOST:PORT          asks, and shows which host holds which rows
python examples/cluster_demo.py HOST:PORT --watch  then goes on asking until a host was lost and is back
"""

from __future__ import annotations

import math
import sys
import threading
import time

import numpy as np

import shardcall as sc
from shardcall import P

ROWS, COLUMNS = 4096, 1024
CALLERS = 4
PATIENCE_S = 120.0
AFTERWARDS_S = 1.0
LONG_S = 1.0  # for a small call: it waited for the mesh
MESH, SPEC = sc.Mesh(x=8), P("x", None)


def main() -> int:
    """Asks the first question; returns 0 if all answers are NumPy's, bit for bit."""
    with sc.connect(sys.argv[1]) as client:
        show_hosts(client)
        right = ask(client)
        if right and "--watch" in sys.argv:
            right = Watch(client).run() and ask(client)
            show_hosts(client)
    return 0 if right else 1


def show_hosts(client: sc.Client) -> None:
    """Prints the hosts of the mesh."""
    info = client.server_info()
    print(f"{len(info.devices)} {info.platform} devices on {len(info.hosts)} hosts, epoch {info.epoch:016x}:")
    for host in info.hosts:
        ids = [device.id for device in info.devices if device.process_index == host.process_index]
        print(f"  process {host.process_index}  {host.name:10} {host.address:15} devices {ids}")


def ask(client: sc.Client) -> bool:
    """Runs the difference along the sharded axis and prints the placement; returns whether the result is right."""
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS))
    began = time.perf_counter()
    result = client.diff(x, axis=0, prepend=0.0, mesh=MESH, spec=SPEC)
    took_s = time.perf_counter() - began
    equal = bool(np.array_equal(result.array, np.diff(x, axis=0, prepend=0.0)))
    print(
        f"\ndiff of {ROWS} × {COLUMNS} float64 along its sharded axis, strategy {result.plan.strategy}: {took_s:.2f} s"
    )
    print("result equals np.diff, bit for bit" if equal else "RESULT DIFFERS FROM np.diff")

    info, blocks = client.server_info(), result.plan.blocks()
    process_of = {device.id: device.process_index for device in info.devices}
    for host in info.hosts:
        held = {index[0] for index, ids in blocks.holders.items() for i in ids if process_of[i] == host.process_index}
        print(f"  {host.name:10} holds rows {' and '.join(blocks.label(0, index) for index in sorted(held))}")
    print(flush=True)
    return equal


class Watch:
    """Several callers that ask one small question after another, and note what becomes of each call.

    Args:
        client: what they ask by.
    """

    def __init__(self, client: sc.Client) -> None:
        self._client = client
        self._began = time.perf_counter()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._calls = self._wrong = 0
        self._failed_s: list[float] = []

    def run(self) -> bool:
        """Asks until a host was lost and all are back; returns whether no answer was wrong."""
        print(f"watching: {CALLERS} callers ask one small question after another", flush=True)
        threads = [threading.Thread(target=self._ask, args=[seed]) for seed in range(CALLERS)]
        for thread in threads:
            thread.start()
        is_back = self._wait()
        self._ended.set()
        for thread in threads:
            thread.join()
        failed, wrong = len(self._failed_s), self._wrong
        print(f"{self._calls} calls: {failed} failed, {wrong} wrong, {self._calls - failed - wrong} right")
        return is_back and not wrong

    def _wait(self) -> bool:
        """Waits until the mesh was made anew."""
        before = self._client.server_info().epoch
        while time.perf_counter() < self._began + PATIENCE_S:
            try:
                epoch = self._client.server_info(timeout=PATIENCE_S).epoch
            except sc.ShardcallError:
                epoch = before
            if epoch != before:
                after_s = time.perf_counter() - self._began - min(self._failed_s, default=math.nan)
                self._say(f"the mesh serves again, {after_s:.1f} s after the first call failed")
                self._ended.wait(AFTERWARDS_S)
                return True
            self._ended.wait(0.1)
        self._say("no host was lost, or the mesh did not come back")
        return False

    def _ask(self, seed: int) -> None:
        x = np.random.default_rng(seed).standard_normal((64, 8))
        expected = np.diff(x, axis=0)
        while not self._ended.is_set():
            began = time.perf_counter()
            try:
                answer = self._client.diff(x, axis=0, mesh=MESH, spec=SPEC, timeout=60.0).array
            except sc.ShardcallError as error:
                self._note(began, error)
            else:
                self._note(began, None, is_right=bool(np.array_equal(answer, expected)))

    def _note(self, began: float, error: sc.ShardcallError | None, *, is_right: bool = False) -> None:
        now = time.perf_counter()
        with self._lock:
            self._calls += 1
            if error is not None:
                self._failed_s.append(now - self._began)
                self._say(f"a call failed after {now - began:.2f} s: {type(error).__name__}: {error}")
            elif not is_right:
                self._wrong += 1
            elif now - began > LONG_S:
                self._say(f"a call was answered right after {now - began:.1f} s")

    def _say(self, what: str) -> None:
        print(f"  {time.perf_counter() - self._began:6.2f} s  {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
