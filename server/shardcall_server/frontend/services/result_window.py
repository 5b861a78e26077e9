"""The bytes of the results of one call stream that the client has not read."""

from __future__ import annotations

from collections import deque

from shardcall_core.locks import check_held, lock
from shardcall_server.frontend.rpc.promise import Promise
from shardcall_server.frontend.rpc.server_call import ServerCall


class ResultWindow:
    """Limits the bytes of results that are being computed or wait to be sent.

    A client that reads no answers therefore holds a bounded amount of memory.

    Args:
        max_bytes: the limit; a single call may exceed it.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._nbytes = 0
        self._waiting: deque[tuple[int, Promise[None]]] = deque()
        self._lock = lock("the lock of a result window")  # guards all of these; no call continues under it

    def try_acquire(self, nbytes: int) -> bool:
        """Reserves bytes if that is possible now; returns whether it did."""
        with self._lock:
            return self._take(nbytes)

    async def acquire(self, call: ServerCall, nbytes: int) -> None:
        """Reserves bytes; waits until the client has read enough of the earlier results.

        Raises:
            CallError: the deadline passed or the caller left.
        """
        with self._lock:
            if self._take(nbytes):
                return
            waiter = nbytes, Promise[None]()
            self._waiting.append(waiter)
        try:
            await call.wait(waiter[1], "waiting for the client to read earlier results")
        except BaseException:
            with self._lock:
                has_waited = waiter in self._waiting
                if has_waited:
                    self._waiting.remove(waiter)
            self.release(0 if has_waited else nbytes)
            raise

    def release(self, nbytes: int) -> None:
        """Releases bytes whose results were sent, or are not."""
        admitted = []
        with self._lock:
            self._nbytes -= nbytes
            while self._waiting and self._fits(self._waiting[0][0]):
                first = self._waiting.popleft()
                self._nbytes += first[0]
                admitted.append(first[1])
        for future in admitted:  # without the lock: a waiting call continues on this thread
            future.set_result(None)

    def _take(self, nbytes: int) -> bool:
        """Reserves bytes unless calls wait or too many are reserved."""
        check_held(self._lock)
        if not nbytes:
            return True
        if self._waiting or not self._fits(nbytes):
            return False
        self._nbytes += nbytes
        return True

    def _fits(self, nbytes: int) -> bool:
        return not self._nbytes or self._nbytes + nbytes <= self._max_bytes
