"""Threads that are there from the start, with a count of what has or awaits one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from shardcall_server.settings import SettingsError

P = ParamSpec("P")
T = TypeVar("T")


class CountedThreads(ThreadPoolExecutor):
    """A pool that starts all its threads at once and knows when it is full; it refuses nothing itself.

    gRPC hands calls over on the one thread that serves all connections. A thread that could not be started there, by a
    limit on processes, would end that thread and with it the service.

    Args:
        threads: how many there are.
        most: how many calls may have or await one.
        name: what the threads' names begin with.

    Raises:
        SettingsError: the system starts no more threads.
    """

    def __init__(self, threads: int, most: int, name: str) -> None:
        super().__init__(threads, thread_name_prefix=name)
        self._most = most
        self._count_lock = threading.Lock()
        self._taken = 0
        all_started = threading.Event()
        try:
            for _ in range(threads):  # each starts a thread, since those before it are not idle
                super().submit(all_started.wait)
        except RuntimeError:
            raise SettingsError(
                f"the system started {len(self._threads)} of {threads} threads named {name}; raise the limit on "
                "processes (ulimit -u, TasksMax= of systemd, --pids-limit of a container), or lower "
                "--max-concurrent-calls"
            ) from None
        finally:
            all_started.set()

    @property
    def full(self) -> bool:
        """Whether the next call would be one too many."""
        return self._taken >= self._most

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Has a thread do something; as its base class does."""
        with self._count_lock:
            self._taken += 1
        try:
            future = super().submit(fn, *args, **kwargs)
        except BaseException:
            self._count_out()
            raise
        future.add_done_callback(self._count_out)
        return future

    def _count_out(self, _: object = None) -> None:
        with self._count_lock:
            self._taken -= 1
