"""Starts worker processes, and keeps a spare one that stands by."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import structlog

from shardcall_server.frontend.workers.process import WorkerProcess
from shardcall_server.frontend.workers.worker import Worker

_SPARE_EVERY_S = 10.0  # a spare that dies again and again must not keep the machine busy


class Workers:
    """The worker processes of one server.

    One thread starts every worker and lives as long as the front end: Linux ends a process with the *thread*
    that started it.

    Args:
        platform: of their devices; empty for what JAX finds.
        log_level: the least level that they log.
        keep_spare: whether a spare stands by: JAX and the kernels imported, no device taken.
    """

    def __init__(self, platform: str, log_level: str, *, keep_spare: bool) -> None:
        self._platform = platform
        self._log_level = log_level
        self._keep_spare = keep_spare
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="worker-starter")
        self._lock = threading.Lock()
        self._spare: Future[WorkerProcess] | None = None
        self._not_before = 0.0
        self._closed = False

    @property
    def spare_ready(self) -> bool:
        """Whether a spare stands by."""
        spare = _made(self._spare)
        return spare is not None and spare.stands_by

    def take(self) -> tuple[Sequence[Worker], bool]:
        """One worker that waits for `Start`, the spare where there is one, and whether it stood by.

        Raises:
            RuntimeError: `close` was called.
        """
        with self._lock:
            asked, self._spare = self._spare, None
            if asked is not None and asked.exception() is None and not asked.result().ended:
                self._not_before = 0.0
                return [asked.result()], asked.result().stands_by
        return [self._start().result()], False

    def look(self, passed_s: float) -> None:
        """Nothing: whether they live is seen by their sessions."""

    def renew(self) -> None:
        """Has a spare started if one is wanted and there is none."""
        with self._lock:
            if not self._keep_spare or self._closed or time.monotonic() < self._not_before:
                return
            if self._spare is not None:
                if not self._spare.done() or _made(self._spare) is not None:
                    return
                structlog.get_logger().warning("the spare worker ended and is started again")
            self._not_before = time.monotonic() + _SPARE_EVERY_S
            self._spare = self._start()

    def _start(self) -> Future[WorkerProcess]:
        return self._starter.submit(WorkerProcess, self._platform, self._log_level)

    def close(self) -> None:
        """Ends the spare, and starts nothing any more."""
        self._closed = True
        self._starter.shutdown(cancel_futures=True)
        if (spare := _made(self._spare)) is not None:
            spare.kill()
            spare.terminate()


def _made(asked: Future[WorkerProcess] | None) -> WorkerProcess | None:
    """The process that was asked for, if it lives."""
    if asked is None or not asked.done() or asked.cancelled() or asked.exception() is not None:
        return None
    return None if asked.result().ended else asked.result()
