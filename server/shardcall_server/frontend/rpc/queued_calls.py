"""A queue of calls in front of the threads that handle them."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from shardcall_core.locks import check_held, lock
from shardcall_server.frontend.rpc.admission import RESERVED_SLOTS
from shardcall_server.frontend.rpc.drain import Drain
from shardcall_server.settings import client_share


class _Task(NamedTuple):
    """A call that waits, its client and its outcome for gRPC."""

    owner: str
    run: Callable[[], Any]
    future: Future[Any]


class QueuedCalls(ThreadPoolExecutor):
    """A pool for gRPC that hands some calls of each client to another pool; further ones wait without a thread.

    Clients alternate. A call that finds the queue full or the server draining is handed on, too, and refused there.

    Args:
        pool: the other pool.
        owner_of: returns the client of a task, by its arguments.
        drain: counts the calls until they have ended.
        total: the number of calls that are handed on at a time, beside some of clients that have none.
        per_client: those of one client.
        max_waiting: the number of calls that wait, of which one client has at most three quarters.
    """

    def __init__(
        self,
        pool: ThreadPoolExecutor,
        owner_of: Callable[..., str],
        drain: Drain,
        total: int,
        per_client: int,
        max_waiting: int,
    ) -> None:
        super().__init__(1)  # which starts no thread, since it has no task
        self._pool = pool
        self._owner_of = owner_of
        self._drain = drain
        self._total = total
        self._per_client = per_client
        self._max_waiting = max_waiting
        self._queue_lock = lock("the lock of queued calls")  # guards the next three
        self._begun: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[_Task]] = OrderedDict()  # by client
        self._waiting_count = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Runs a function on a thread of the other pool, as soon as its client may."""
        task = _Task(self._owner_of(*args), lambda: fn(*args, **kwargs), Future())
        if not self._drain.add_waiting():
            return self._pool.submit(task.run)
        with self._queue_lock:
            if not (self._may_begin(task.owner) or self._is_full(task.owner)):
                self._waiting.setdefault(task.owner, deque()).append(task)
                self._waiting_count += 1
                return task.future
            self._begun[task.owner] += 1
        self._begin(task)
        return task.future

    def _may_begin(self, owner: str) -> bool:
        check_held(self._queue_lock)
        begun = self._begun[owner]
        return begun < self._per_client and self._begun.total() < self._total + (0 if begun else RESERVED_SLOTS)

    def _is_full(self, owner: str) -> bool:
        waiting = len(self._waiting.get(owner, ()))
        return self._waiting_count >= self._max_waiting or waiting >= client_share(self._max_waiting)

    def _begin(self, task: _Task) -> None:
        def end(ended: Future[Any]) -> None:
            error = ended.exception()
            task.future.set_result(ended.result()) if error is None else task.future.set_exception(error)
            for following in self._leave(task.owner):
                self._begin(following)
            self._drain.remove_waiting()

        self._pool.submit(task.run).add_done_callback(end)

    def _leave(self, owner: str) -> list[_Task]:
        """Counts a call out; returns those that may begin."""
        free: list[_Task] = []
        with self._queue_lock:
            self._begun[owner] -= 1
            if not self._begun[owner]:
                del self._begun[owner]
            while (client := next(filter(self._may_begin, self._waiting), None)) is not None:
                waiting = self._waiting[client]
                free.append(waiting.popleft())
                self._waiting_count -= 1
                self._begun[client] += 1
                self._waiting.move_to_end(client)
                if not waiting:
                    del self._waiting[client]
        return free
