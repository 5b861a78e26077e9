"""Signs of life, from a thread that launches nothing."""

from __future__ import annotations

import contextlib
import threading
import time

from shardcall_server.link.framing import Link, LinkClosedError, LinkFullError
from shardcall_worker.v1 import link_pb2

_INTERVAL_S = 1.0
_NAP_S = 0.1


def beat(link: Link, late_s: float = 0.0) -> None:
    """Sends one sign of life; a front end that is gone, or has enough of them, needs none."""
    told = link_pb2.Heartbeat(late_seconds=late_s, cpu_seconds=time.process_time())
    with contextlib.suppress(LinkClosedError, LinkFullError):
        link.send(link_pb2.WorkerMessage(heartbeat=told).SerializeToString())


def keep_beating(link: Link, *, alone: bool) -> None:
    """Begins to send a sign of life every second, at once, until the process ends.

    Between two of them its thread takes naps, if others wait for this process: by how much it wakes late tells how
    little processor it gets.

    Args:
        link: where to.
        alone: whether this is the mesh's only process.
    """
    nap_s = _INTERVAL_S if alone else _NAP_S

    def run() -> None:
        pause, late_s, last = threading.Event(), 0.0, time.monotonic()
        beat(link)
        woke = last
        while True:
            pause.wait(nap_s)
            now = time.monotonic()
            late_s += max(0.0, now - woke - nap_s)  # since it last woke: it may be held up between naps too
            woke = now
            if now - last >= _INTERVAL_S - nap_s / 2:
                beat(link, late_s)
                last = now

    threading.Thread(target=run, name="heartbeat", daemon=True).start()
