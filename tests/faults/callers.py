"""Clients that call continuously, the outcomes of their calls, and what is left of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from end_to_end.messages import token_of
from end_to_end.processes import wait_for
from servers import ServerProcess, holds_nothing

import shardcall as sc
from shardcall import P

TIMEOUT_S = 120.0
_PAUSE_S = 0.03  # between the calls of a canary
ENDS_OF_THE_MESH = frozenset({"MESH_RESTARTED", "MESH_NOT_READY", "ARRAY_LOST"})

Body = Callable[[sc.Client, np.random.Generator], bool]
"""Makes calls with random numbers; returns whether the answers were right."""


@dataclass
class AnsweredCall:
    """A call that has its answer.

    Attributes:
        caller: the number of the caller.
        address: the server.
        began: when it began, on the monotonic clock.
        ended: when its answer came.
        reason: the reason of its error; empty for a right answer.
    """

    caller: int
    address: str
    began: float
    ended: float
    reason: str = ""


@dataclass
class Callers:
    """Threads that call, each with a client of its own.

    Attributes:
        may_fail: the reasons of the errors that they bear.
        ended: the calls that have their answers.
        wrong: descriptions of wrong answers and of other errors.
    """

    may_fail: frozenset[str] = ENDS_OF_THE_MESH
    ended: list[AnsweredCall] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    _pending: dict[int, float] = field(default_factory=dict)
    _stopping: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def calling(
        self, address: str | Sequence[str], bodies: Sequence[Body], pause_s: float = 0.0, **options: object
    ) -> Iterator[Callers]:
        """Calls until the block ends; afterwards every call has ended.

        Args:
            address: of the server, or of several.
            bodies: of the callers; every second one has no shared memory, and two of four have no call stream.
            pause_s: between the calls of a caller.
            **options: of all clients.
        """
        with ExitStack() as stack:
            threads = []
            for number, body in enumerate(bodies):
                transport = {"shared_memory": bool(number % 2), "call_stream": bool(number // 2 % 2), **options}
                client = stack.enter_context(sc.connect(address, **transport))  # type: ignore[arg-type]
                threads.append(threading.Thread(target=self._call, args=[number, client, body, pause_s]))
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

    def _call(self, number: int, client: sc.Client, body: Body, pause_s: float) -> None:
        rng = np.random.default_rng(number)
        while True:
            began = self._pending[number] = time.monotonic()
            reason = ""
            try:
                if not body(client, rng):
                    self.wrong.append(f"{body} gave a wrong answer")
            except Exception as error:  # noqa: BLE001  # it is reported as wrong, whatever it is
                reason = getattr(error, "reason", "") or type(error).__name__
                if reason not in self.may_fail:
                    self.wrong.append(f"{body}: {error!r}")
            del self._pending[number]
            self.ended.append(AnsweredCall(number, client.address, began, time.monotonic(), reason))
            if self._stopping.wait(pause_s):
                return

    def all_answered(self, since: float) -> bool:
        """True if every call that began before a moment has ended."""
        return all(began >= since for began in list(self._pending.values()))

    def right(self, since: float = 0.0) -> list[AnsweredCall]:
        """The calls that began after a moment and have right answers."""
        return [call for call in list(self.ended) if call.began >= since and not call.reason]

    def served(self, address: str, since: float = 0.0) -> set[int]:
        """The callers with a right answer of a server to a call that began after a moment."""
        return {call.caller for call in self.right(since) if call.address == address}

    def __str__(self) -> str:
        reasons = [call.reason for call in self.ended if call.reason]
        errors = {reason: reasons.count(reason) for reason in sorted(set(reasons))}
        longest = max((call.ended - call.began for call in self.right()), default=0.0)
        return f"{len(self.right())} right, {len(self.wrong)} wrong, errors {errors}, the longest {longest:.2f} s"


def diff(client: sc.Client, rng: np.random.Generator, devices: int = 4) -> bool:
    x = rng.standard_normal((129, 65))
    result = client.diff(x, axis=0, mesh=sc.Mesh(x=devices), spec=P("x", None), timeout=TIMEOUT_S).array
    return bool(np.array_equal(result, np.diff(x, axis=0)))


def small_diff(client: sc.Client, rng: np.random.Generator) -> bool:
    x = rng.standard_normal((64, 16))
    return bool(np.array_equal(client.diff(x, axis=0, timeout=TIMEOUT_S).array, np.diff(x, axis=0)))


def matmul(client: sc.Client, rng: np.random.Generator) -> bool:
    a, b = rng.integers(-9, 9, (96, 64)).astype(np.float64), rng.integers(-9, 9, (64, 32)).astype(np.float64)
    specs = {"lhs_spec": P(None, "x"), "rhs_spec": P("x", None)}
    return bool(np.array_equal(client.matmul(a, b, mesh=sc.Mesh(x=4), timeout=TIMEOUT_S, **specs).array, a @ b))


def put_and_get(client: sc.Client, rng: np.random.Generator) -> bool:
    x = rng.standard_normal((256, 128))
    with client.put(x, mesh=sc.Mesh(x=4), spec=P("x", None), timeout=TIMEOUT_S) as kept:
        return bool(np.array_equal(kept.get(timeout=TIMEOUT_S), x))


def diff_of_one_that_stays(client: sc.Client, rng: np.random.Generator) -> bool:
    x = rng.standard_normal((64, 32))
    with client.put(x, mesh=sc.Mesh(x=4), spec=P(None, "x"), timeout=TIMEOUT_S) as kept:
        return bool(np.array_equal(client.diff(kept, axis=1, timeout=TIMEOUT_S).array, np.diff(x, axis=1)))


def diff_on(devices: int) -> Body:
    """Returns the body `diff` on so many devices."""
    return partial(diff, devices=devices)


@contextmanager
def beside_a_canary(
    server: ServerProcess, figure: Callable[[str], None], devices: int = 8, token: str | None = None
) -> Iterator[Callers]:
    """A caller of a server whose calls are all answered rightly, while the server's processes stay.

    Args:
        server: the server.
        figure: records the outcome.
        devices: how many it computes on.
        token: whose it shows; None for this user's.
    """
    before, compute = server.worker_pids(), diff_on(devices)
    with sc.connect(server.address, token=token) as client:
        compute(client, np.random.default_rng(0))  # compiled
    options = {"token": token, "shared_memory": True, "call_stream": True}
    with Callers(frozenset()).calling(server.address, [compute], _PAUSE_S, **options) as canary:
        yield canary
    figure(f"canary: {canary}")
    assert not canary.wrong, canary.wrong[:3]
    assert canary.right()
    assert server.process.poll() is None
    assert server.worker_pids() == before


def is_quiet(client: sc.Client) -> bool:
    """Returns whether nothing is left of any call."""
    usage = client.usage()
    return holds_nothing(client) and not (usage.calls or usage.queued_calls or usage.program_device_bytes)


def settles(server: ServerProcess) -> None:
    """Waits until nothing is left of the calls of others."""
    with sc.connect(server.address, token=token_of("guest")) as client:
        wait_for(lambda: is_quiet(client))
