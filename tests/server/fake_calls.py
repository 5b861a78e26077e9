"""Calls whose stages run on the threads of the tests, and their memory."""

import re
from collections.abc import Awaitable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np

from shardcall.v1 import timing_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_server.frontend.rpc import coroutines
from shardcall_server.frontend.rpc.coroutines import Stage, Task, Waiting
from shardcall_server.frontend.rpc.processor_shares import ProcessorShares
from shardcall_server.frontend.rpc.promise import Waitable

T = TypeVar("T")
PATIENCE_S = 60.0


class FakeServerCall:
    """A call without a deadline, whose caller does not leave.

    Args:
        owner: the client.
        connection: its connection.
        **fields: other attributes of calls that the tested code reads.
    """

    def __init__(self, owner: str = "a", connection: str = "here", **fields: Any) -> None:
        self.owner = self.principal_name = owner
        self.connection, self.request_id = connection, "an id"
        self.deadline = 0.0
        self.weight = 1
        self.is_late, self.kept_results, self.read_handle = False, (), b""
        self.__dict__.update(fields)

    def phase(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()

    def check(self, doing: str) -> None:
        pass

    def wait(self, shared: Waitable[T], doing: str) -> Awaitable[T]:
        return coroutines.wait(shared, doing)

    def run(self, stage: Stage[T]) -> T:
        """Runs a stage on this thread."""
        return coroutines.run(stage, self.block)

    def block(self, waiting: Waiting) -> None:
        """Blocks this thread until a future is done, or raises the error of a call that has ended."""
        waiting[0].exception(PATIENCE_S)


_unfinished: set["RunningStage"] = set()  # which the garbage collector would end at any moment, such as under a lock


def end_stages() -> None:
    """Ends the stages that wait."""
    for stage in [*_unfinished]:
        stage.interrupt()


class RunningStage:
    """A stage that runs as a task, and goes on wherever what it waits for is done.

    Attributes:
        result: done when it has ended.
    """

    def __init__(self, stage: Stage[Any]) -> None:
        self.result: Future[Any] = Future()
        self._error: CallError | None = None
        self._task = Task(stage, lambda doing: self._error, self._finish, ProcessorShares().of(""))
        _unfinished.add(self)
        self._task.start()

    def _finish(self, value: Any, error: Exception | None) -> None:
        _unfinished.discard(self)
        self.result.set_result(value) if error is None else self.result.set_exception(error)

    def interrupt(self) -> None:
        """Has its caller cancel the call."""
        self._error = CallError(Reason.CANCELLED, "the caller cancelled the call")
        self._task.interrupt()


def finished_call(request_id: str = "a", **attributes: object) -> SimpleNamespace:
    """A small call that has been answered."""
    usual = {
        "kernel": "diff",
        "principal_name": "ada",
        "timing": timing_pb2.Timing(execute_seconds=0.5, total_seconds=1.0),
        "phases": [("execute", 0.5, 1.0)],
        "received_bytes": 1,
        "sent_bytes": 2,
        "shared_bytes": 4,
        "key": "k",
        "cache_hit": True,
        "is_dependent": False,
    }
    return SimpleNamespace(request_id=request_id, **{**usual, **attributes})


class Clock:
    """A clock that stands still until a test sets it."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class CountingBudget:
    """A budget that counts bytes."""

    def __init__(self) -> None:
        self.taken = 0

    def reserve(self, owner: str, nbytes: int) -> None:
        self.taken += nbytes

    def release(self, owner: str, nbytes: int) -> None:
        self.taken -= nbytes


def huge_kib(memory: np.ndarray) -> int:
    """Returns how much of a mapping is in huge pages."""
    maps = Path("/proc/self/smaps").read_text()
    of_it = maps[maps.index(f"{memory.ctypes.data:x}-") :]
    mapped_kib = re.search(r"ShmemPmdMapped: +([0-9]+) kB", of_it)
    return int(mapped_kib[1]) if mapped_kib else 0
