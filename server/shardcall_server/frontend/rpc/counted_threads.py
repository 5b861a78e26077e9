"""A thread pool that starts all its threads at once and counts its tasks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from shardcall_server.process_limits import thread_advice
from shardcall_server.settings import SettingsError

P = ParamSpec("P")
T = TypeVar("T")


class CountedThreads(ThreadPoolExecutor):
    """A pool that starts all its threads at once and knows when it is full; it refuses no task itself.

    gRPC submits calls on the one thread that serves all connections. If a thread could not be started there, because of
    a limit on processes, the serving thread would die and the service with it.

    Args:
        threads: the number of threads.
        limit: the number of tasks, running or waiting, at which the pool is full.
        name: the prefix of the threads' names.

    Raises:
        SettingsError: the system starts no more threads.
    """

    def __init__(self, threads: int, limit: int, name: str) -> None:
        super().__init__(threads, thread_name_prefix=name)
        self._limit = limit
        self._count_lock = threading.Lock()  # guards `_taken`
        self._taken = 0
        all_started = threading.Event()  # ends the first tasks, which keep each thread busy
        try:
            for _ in range(threads):  # each starts a thread, since no earlier thread is idle
                super().submit(all_started.wait)
        except RuntimeError:
            raise SettingsError(
                f"the system started {len(self._threads)} of {threads} threads named {name}; {thread_advice()}, or "
                "lower --max-concurrent-calls"
            ) from None
        finally:
            all_started.set()

    @property
    def full(self) -> bool:
        """True if the pool has as many tasks as its limit."""
        return self._taken >= self._limit

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Runs a function on a thread, as the base class does."""
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
