"""Clients that call a server of several hosts continuously, and the outcomes of their calls."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import shardcall as sc
from shardcall import P

TIMEOUT_S = 120.0
_ESTABLISHED = "01"
_NAMED = {"MESH_RESTARTED", "MESH_NOT_READY", "ARRAY_LOST"}
_ALL = sc.Mesh(x=4)


@dataclass
class AnsweredCall:
    """A call that has its answer.

    Attributes:
        began: when it began, on the monotonic clock.
        ended: when its answer came.
        reason: the reason of its error; empty for a right answer.
    """

    began: float
    ended: float
    reason: str = ""


@dataclass
class Callers:
    """Threads that call, each with a client of its own.

    Attributes:
        ended: the calls that have their answers.
        wrong: descriptions of wrong answers and of errors without a named reason.
    """

    ended: list[AnsweredCall] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    _pending: dict[int, float] = field(default_factory=dict)
    _stopping: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def calling(self, address: str) -> Iterator[Callers]:
        """Calls while the body runs; afterwards every call has ended."""
        bodies = [_diff, _matmul, _put_and_get, _diff_of_one_that_stays]
        with ExitStack() as stack:
            threads = []
            for number, body in enumerate(bodies):
                client = stack.enter_context(
                    sc.connect(address, shared_memory=bool(number % 2), call_stream=bool(number // 2 % 2))
                )
                threads.append(threading.Thread(target=self._call, args=[number, client, body]))
            for thread in threads:
                thread.start()
            try:
                yield self
            finally:
                self._stopping.set()
                for thread in threads:
                    thread.join(2 * TIMEOUT_S)
                    if thread.is_alive():
                        self.wrong.append("a call hangs")

    def _call(self, number: int, client: sc.Client, body: Callable[[sc.Client, np.random.Generator], bool]) -> None:
        rng = np.random.default_rng(number)
        while not self._stopping.is_set():
            began = self._pending[number] = time.monotonic()
            reason = ""
            try:
                if not body(client, rng):
                    self.wrong.append(f"{body.__name__} gave a wrong answer")
            except sc.ShardcallError as error:
                reason = error.reason
                if reason not in _NAMED:
                    self.wrong.append(f"{body.__name__}: {error!r}")
            except Exception as error:  # noqa: BLE001  # it is reported as wrong, whatever it is
                self.wrong.append(f"{body.__name__}: {error!r}")
            del self._pending[number]
            self.ended.append(AnsweredCall(began, time.monotonic(), reason))

    def all_answered(self, since: float) -> bool:
        """True if every call that began before a moment has ended."""
        return all(began >= since for began in list(self._pending.values()))

    def last_error(self, since: float, before: float) -> float:
        """The time of the last error, before another moment, of a call that was in progress at a moment.

        It is the first moment if none was.
        """
        lost = (call.ended for call in list(self.ended) if call.reason and call.began < since <= call.ended < before)
        return max(lost, default=since)

    def next_right(self, since: float) -> float | None:
        """The time of the first right answer to a call that began after a moment."""
        right = (call.ended for call in list(self.ended) if call.began >= since and not call.reason)
        return min(right, default=None)

    def errors(self) -> dict[str, int]:
        """The number of calls that ended with each error."""
        reasons = [call.reason for call in self.ended if call.reason]
        return {reason: reasons.count(reason) for reason in sorted(set(reasons))}


def _diff(client: sc.Client, rng: np.random.Generator) -> bool:
    x = rng.standard_normal((129, 65))
    result = client.diff(x, axis=0, mesh=_ALL, spec=P("x", None), timeout=TIMEOUT_S).array
    return bool(np.array_equal(result, np.diff(x, axis=0)))


def _matmul(client: sc.Client, rng: np.random.Generator) -> bool:
    a, b = rng.integers(-9, 9, (96, 64)).astype(np.float64), rng.integers(-9, 9, (64, 32)).astype(np.float64)
    result = client.matmul(a, b, mesh=_ALL, lhs_spec=P(None, "x"), rhs_spec=P("x", None), timeout=TIMEOUT_S).array
    return bool(np.array_equal(result, a @ b))


def _put_and_get(client: sc.Client, rng: np.random.Generator) -> bool:
    x = rng.standard_normal((256, 128))
    with client.put(x, mesh=_ALL, spec=P("x", None), timeout=TIMEOUT_S) as kept:
        return bool(np.array_equal(kept.get(timeout=TIMEOUT_S), x))


def _diff_of_one_that_stays(client: sc.Client, rng: np.random.Generator) -> bool:
    x = rng.standard_normal((64, 32))
    with client.put(x, mesh=_ALL, spec=P(None, "x"), timeout=TIMEOUT_S) as kept:
        return bool(np.array_equal(client.diff(kept, axis=1, timeout=TIMEOUT_S).array, np.diff(x, axis=1)))


def connections_to(address: str) -> set[str]:
    """The ports of this host that have a connection to an address."""
    port = f"{int(address.rsplit(':', 1)[1]):04X}"
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {row[1].rsplit(":", 1)[1] for row in rows if row[2].endswith(f":{port}") and row[3] == _ESTABLISHED}
