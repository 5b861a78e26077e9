"""The bytes of the results of one call stream that the client has not read."""

from __future__ import annotations

from collections import deque

from shardcall_core.locks import check_held, lock
from shardcall_server.frontend.rpc.deadline_timer import DeadlineTimer
from shardcall_server.frontend.rpc.promise import Promise
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.services.stream_memory import StreamMemory


class ResultWindow:
    """Limits the bytes of results that are being computed or wait to be sent, of the stream and of its client.

    A client that reads no answers therefore holds a bounded amount of memory, by however many streams.

    Args:
        max_bytes: the limit of the stream; a single call may exceed it.
        memory: the memory of the stream, which counts in the budget of its client.
        timer: its thread goes on with calls that waited for the budget.
    """

    def __init__(self, max_bytes: int, memory: StreamMemory, timer: DeadlineTimer) -> None:
        self._max_bytes = max_bytes
        self._memory = memory
        self._timer = timer
        self._nbytes = 0
        self._waiting: deque[tuple[int, Promise[None]]] = deque()
        # Guards all of these, and is held while the budget is asked; no call continues under it.
        self._lock = lock("the lock of a result window", 3)

    @property
    def is_awaited(self) -> bool:
        """True if calls wait for the client to read."""
        return bool(self._waiting)

    def try_acquire(self, nbytes: int) -> bool:
        """Reserves bytes if that is possible now; returns whether it did."""
        with self._lock:
            return not nbytes or (not self._waiting and self._take(nbytes))

    async def acquire(self, call: ServerCall, nbytes: int) -> None:
        """Reserves bytes; waits until the client has read enough of the earlier results.

        Raises:
            CallError: the deadline passed or the caller left.
        """
        waiter = nbytes, Promise[None]()
        with self._lock:
            self._waiting.append(waiter)
        self._admit()  # what it waits for may have come
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
        with self._lock:
            self._nbytes -= nbytes
        if nbytes:
            self._memory.release(nbytes)
        self._admit()

    def _admit(self) -> None:
        """Admits calls that wait, as far as there is room; the budget calls back when it has more."""
        admitted = []
        with self._lock:
            while self._waiting and self._take(self._waiting[0][0]):
                admitted.append(self._waiting.popleft()[1])
        for future in admitted:  # without the lock: a waiting call continues on this thread
            future.set_result(None)

    def _take(self, nbytes: int) -> bool:
        """Reserves bytes, unless too many are reserved."""
        check_held(self._lock)
        if self._nbytes and self._nbytes + nbytes > self._max_bytes:
            return False
        if not self._memory.try_reserve(nbytes, self._admit_soon):
            return False
        self._nbytes += nbytes
        return True

    def _admit_soon(self) -> None:
        self._timer.schedule(0.0, self._admit)
