"""Heartbeats of a worker, from a thread that launches nothing."""

from __future__ import annotations

import contextlib
import threading
import time

from shardcall_server.link.framing import Link, LinkClosedError, LinkFullError
from shardcall_worker.v1 import link_pb2

_INTERVAL_S = 1.0
_NAP_S = 0.1


def send_heartbeat(link: Link, late_s: float = 0.0) -> None:
    """Sends one heartbeat; a closed or full link is ignored."""
    heartbeat = link_pb2.Heartbeat(late_seconds=late_s, cpu_seconds=time.process_time())
    with contextlib.suppress(LinkClosedError, LinkFullError):
        link.send(link_pb2.WorkerMessage(heartbeat=heartbeat).SerializeToString())


def start_heartbeats(link: Link, *, alone: bool) -> None:
    """Starts a thread that sends a heartbeat every second.

    If the mesh has other processes, the thread wakes more often and reports its delay, a measure of how little CPU time
    this process gets.

    Args:
        link: the link to the front end.
        alone: True if this is the only process of the mesh.
    """
    nap_s = _INTERVAL_S if alone else _NAP_S

    def run() -> None:
        pause, late_s, last = threading.Event(), 0.0, time.monotonic()  # sleeps by the event, never set
        send_heartbeat(link)
        woke = last
        while True:
            pause.wait(nap_s)
            now = time.monotonic()
            late_s += max(0.0, now - woke - nap_s)  # since the last wake-up: the thread may be delayed between naps too
            woke = now
            if now - last >= _INTERVAL_S - nap_s / 2:
                send_heartbeat(link, late_s)
                last = now

    threading.Thread(target=run, name="heartbeat", daemon=True).start()
