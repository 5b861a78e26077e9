"""Signs of life, from a thread that launches nothing."""

from __future__ import annotations

import contextlib
import threading

from shardcall_server.framing import Link, LinkClosedError, LinkFullError
from shardcall_worker.v1 import link_pb2

_INTERVAL_S = 1.0


def beat(link: Link) -> None:
    """Sends one sign of life; a front end that is gone, or has enough of them, needs none."""
    with contextlib.suppress(LinkClosedError, LinkFullError):
        link.send(link_pb2.WorkerMessage(heartbeat=link_pb2.Heartbeat()).SerializeToString())


def keep_beating(link: Link) -> None:
    """Begins to send a sign of life every second, at once, until the process ends."""

    def run() -> None:
        pause = threading.Event()
        while True:
            beat(link)
            pause.wait(_INTERVAL_S)

    threading.Thread(target=run, name="heartbeat", daemon=True).start()
