"""Starts worker processes and keeps a spare one on standby."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import structlog

from shardcall_core.locks import lock
from shardcall_server.frontend.workers.process import WorkerProcess
from shardcall_server.frontend.workers.worker import Worker

_SPARE_EVERY_S = 10.0  # a spare that crashes repeatedly must not keep the machine busy


class Workers:
    """The worker processes of one server.

    One thread starts every worker but the first and runs as long as the front end: Linux kills a worker when the
    *thread* that started it exits.

    Args:
        platform: the platform of their devices; empty for JAX's default.
        log_level: the lowest level that they log.
        keep_spare: whether to keep a spare that has imported JAX and the kernels and holds no device.
        first: the first worker, if it has been started.
    """

    def __init__(self, platform: str, log_level: str, *, keep_spare: bool, first: WorkerProcess | None = None) -> None:
        self._platform = platform
        self._log_level = log_level
        self._keep_spare = keep_spare
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="worker-starter")
        # Guards the spare. A thread may wait under it for the start of the spare; the link's lock comes after it.
        self._lock = lock("the lock of the workers", 50)
        self._first = first
        self._spare: Future[WorkerProcess] | None = None
        self._not_before = 0.0
        self._closed = False

    @property
    def spare_ready(self) -> bool:
        """True if a spare stands by."""
        spare = _started(self._spare)
        return spare is not None and spare.stands_by

    def acquire(self) -> tuple[Sequence[Worker], bool]:
        """Returns one worker that waits for `Start`, the first or the spare if there is one, and whether it stood by.

        Raises:
            RuntimeError: `close` was called.
        """
        with self._lock:
            first, self._first = self._first, None
            if first is not None and not self._closed:
                return [first], False
            future, self._spare = self._spare, None
            if future is not None and future.exception() is None and not future.result().ended:
                self._not_before = 0.0
                return [future.result()], future.result().stands_by
        return [self._start().result()], False

    def tick(self, passed_s: float) -> None:
        """Does nothing: sessions notice when their workers exit."""

    def start_spares(self) -> None:
        """Starts a spare if the settings request one and there is none."""
        with self._lock:
            if not self._keep_spare or self._closed or time.monotonic() < self._not_before:
                return
            if self._spare is not None:
                if not self._spare.done() or _started(self._spare) is not None:
                    return
                structlog.get_logger().warning("the spare worker exited; starting another")
            self._not_before = time.monotonic() + _SPARE_EVERY_S
            self._spare = self._start()

    def _start(self) -> Future[WorkerProcess]:
        return self._starter.submit(WorkerProcess, self._platform, self._log_level)

    def close(self) -> None:
        """Kills the first worker, if it was not acquired, and the spare, and starts no more."""
        with self._lock:
            self._closed = True
            first, self._first = self._first, None
        self._starter.shutdown(cancel_futures=True)
        for idle in (first, _started(self._spare)):
            if idle is not None:
                idle.kill()
                idle.terminate()


def _started(future: Future[WorkerProcess] | None) -> WorkerProcess | None:
    """Returns the started process if it is running."""
    if future is None or not future.done() or future.cancelled() or future.exception() is not None:
        return None
    return None if future.result().ended else future.result()
