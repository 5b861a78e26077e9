"""Notifications to the service manager, such as systemd: the protocol of ``sd_notify``."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

_SEND_S = 1.0  # a manager that reads nothing does not delay the server


class ServiceManager:
    """The service manager that started this process. Without one, notifications do nothing.

    Args:
        environment: has ``NOTIFY_SOCKET`` and, for a watchdog, ``WATCHDOG_USEC`` and ``WATCHDOG_PID``.
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, environment: Mapping[str, str], clock: Callable[[], float] = time.monotonic) -> None:
        self._path = environment.get("NOTIFY_SOCKET", "")
        self._clock = clock
        self._interval_s = _watchdog_s(environment) / 2
        self._next = clock()

    def notify(self, *assignments: str) -> None:
        """Sends assignments, such as ``READY=1``; a manager that is gone is ignored."""
        if not self._path.startswith(("/", "@")):
            return
        address = self._path.replace("@", "\0", 1) if self._path[0] == "@" else self._path
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(_SEND_S)
            sender.sendto("\n".join(assignments).encode(), address)

    def keep_alive(self) -> None:
        """Sends ``WATCHDOG=1`` twice in the watchdog's time, to be called more often than that."""
        if self._interval_s and self._clock() >= self._next:
            self._next = self._clock() + self._interval_s
            self.notify("WATCHDOG=1")


def _watchdog_s(environment: Mapping[str, str]) -> float:
    """Returns the watchdog's time in seconds; 0 without a watchdog of this process."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    text = environment.get("WATCHDOG_USEC", "")
    return int(text) / 1e6 if text.isascii() and text.isdigit() else 0.0
