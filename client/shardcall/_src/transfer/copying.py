"""Large copies by two threads: twice as quick, and more threads are no quicker."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait

import numpy as np

from shardcall._src.types.arrays import NDArray
from shardcall._src.wire.forks import begin_anew_in_children

_LARGE_BYTES = 8 * 2**20


class Copier:
    """Copies arrays; one thread of its own helps with large ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False
        begin_anew_in_children(self)

    def copy(self, target: NDArray, source: NDArray) -> None:
        """Copies an array of any layout and byte order.

        Args:
            target: row-major.
            source: of the same shape and type.
        """
        helper = self._helper() if target.nbytes >= _LARGE_BYTES else None
        if helper is None:
            np.copyto(target, source)
            return
        axis = next(axis for axis, size in enumerate(target.shape) if size > 1)
        outer = (slice(None),) * axis
        middle = target.shape[axis] // 2
        first, second = (*outer, slice(middle)), (*outer, slice(middle, None))
        try:
            half = helper.submit(np.copyto, target[second], source[second])
        except RuntimeError:  # closed meanwhile
            np.copyto(target, source)
            return
        try:
            np.copyto(target[first], source[first])
        finally:
            _end(half)

    def begin_anew(self) -> None:
        """Goes on in a forked child, with a thread of its own."""
        self._lock, self._pool = threading.Lock(), None

    def close(self) -> None:
        """Ends the thread; copies are made without it afterwards."""
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False)

    def _helper(self) -> ThreadPoolExecutor | None:
        with self._lock:
            if self._pool is None and not self._closed:
                self._pool = ThreadPoolExecutor(1, thread_name_prefix="shardcall-copy")
            return self._pool


def _end(half: Future[None]) -> None:
    """Waits for the helper's half, though Ctrl-C be pressed meanwhile: afterwards the target may be another's."""
    interrupt: BaseException | None = None
    while not half.done():
        try:
            wait([half])
        except KeyboardInterrupt as pressed:
            interrupt = pressed
    if interrupt is not None:
        raise interrupt
    half.result()
