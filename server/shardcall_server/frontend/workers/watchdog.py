"""Watchdog: stops workers that do not respond, and programs and compilations that exceed their time limits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from shardcall_core.call_error import CallError, Reason
from shardcall_server.compile_limit import compile_limit_error
from shardcall_server.frontend.workers.command import Command, head
from shardcall_server.frontend.workers.exit_reason import ExitCause, StopRequest
from shardcall_server.frontend.workers.session import MeshSession
from shardcall_server.frontend.workers.straggler import StragglerDetector
from shardcall_server.frontend.workers.worker_connection import WorkerConnection

_TICK_S = 0.25
_MAX_SILENCE_FACTOR = 10  # for a silent worker that uses CPU time
_KNOWN_ANSWER_S = 60.0  # minimum time to compile or run a test, even if calls have less
_COMPILER_GRACE_S = 5.0  # a worker with compiler processes ends a compilation itself
_MAX_PASSED_S = 2 * _TICK_S  # after a late tick, the machine had no time for the workers either


@dataclass(frozen=True)
class WatchLimits:
    """Time limits of workers, in seconds.

    Attributes:
        silence_s: without a message and without CPU use, once the worker is ready.
        start_s: until the worker is ready.
        execute_s: for one program.
        compile_s: for one compilation.
        grace_s: for a program that no caller waits for any more.
        straggler_s: for a command that other workers have finished, without progress or with almost no CPU time.
    """

    silence_s: float
    start_s: float
    execute_s: float
    compile_s: float
    grace_s: float
    straggler_s: float = 5.0


class _Liveness:
    """Liveness of one worker.

    Args:
        stood_by: whether the worker stood by, so that it must respond to `Start` at once.
    """

    def __init__(self, connection: WorkerConnection, *, stood_by: bool) -> None:
        self._connection = connection
        self._heard = 0
        self._cpu_ticks = 0
        self.silent_s = self.still_s = 0.0
        self._is_due = stood_by
        self._heartbeats_before_start = 1 if stood_by else 0

    def check(self, passed_s: float, *, is_ready: bool) -> None:
        """Checks for activity since the last check."""
        connection = self._connection
        if connection.activity != self._heard or connection.has_unread:
            self._heard, self.silent_s, self.still_s = connection.activity, 0.0, 0.0
            # The start of the devices may block every thread of the worker, so nothing more is due until it is ready.
            self._is_due = is_ready or self._heard <= self._heartbeats_before_start
        elif self._is_due:
            self._check_silence(passed_s)

    def _check_silence(self, passed_s: float) -> None:
        """Counts silence; a worker that uses CPU time may be late (6 s were seen at a load of 28 on two cores)."""
        used = self._connection.worker.cpu_ticks
        self.silent_s += passed_s
        self.still_s = self.still_s + passed_s if used == self._cpu_ticks else 0.0
        self._cpu_ticks = used


class Watch:
    """The watch over one session.

    Time is counted by checks, never by the clock: if all processes of the server were suspended together, or the
    machine had no time for them, no worker counts as silent or slow.

    Args:
        stood_by: whether its worker stood by, so that it must respond to `Start` at once.
    """

    def __init__(self, session: MeshSession, limits: WatchLimits, *, stood_by: bool) -> None:
        self.session = session
        self._limits = limits
        self._liveness = [_Liveness(connection, stood_by=stood_by) for connection in session.connections]
        self._starting_s = self._run_s = self._abandoned_s = 0.0
        self._stragglers = StragglerDetector(session.connections, session.ready, limits.straggler_s)
        self._head: Command | None = None
        self._moved = 0
        self._compiling: dict[Command, float] = {}

    def check(self, passed_s: float) -> StopRequest | None:
        """Checks once; returns the request to stop the workers if a limit is exceeded.

        Args:
            passed_s: the time since the last check, in seconds.
        """
        commands = self.session.commands()
        return (
            self._check_liveness(passed_s)
            or self._stragglers.check(commands, passed_s)
            or self._check_head(head(commands), passed_s)
            or self._check_compilations([command for command in commands if command.compiling], passed_s)
        )

    def _check_liveness(self, passed_s: float) -> StopRequest | None:
        if not self.session.ready.done():
            self._starting_s += passed_s
            if self._starting_s > self._limits.start_s:
                return StopRequest(f"the worker was not ready within {self._limits.start_s:g} s")
        for liveness, connection in zip(self._liveness, self.session.connections, strict=True):
            liveness.check(passed_s, is_ready=self.session.ready.done())
            silence_s = self._limits.silence_s
            if liveness.still_s > silence_s or liveness.silent_s > _MAX_SILENCE_FACTOR * silence_s:
                on_host = f" on host {connection.worker.host}" if connection.worker.host else ""
                return StopRequest(f"the worker{on_host} did not answer for {liveness.silent_s:.0f} s")
        return None

    def _check_head(self, now: Command | None, passed_s: float) -> StopRequest | None:
        """Checks the executing command, whose time begins when the one before it was answered.

        The time stops while its arrays travel to other hosts or back, and while it waits for the file of one. It stops
        while an answer of a worker is not handled yet, too, which may be that to this command.
        """
        if now is not self._head or now is None:
            self._head, self._run_s, self._abandoned_s, self._moved = now, 0.0, 0.0, 0
            return None
        connections = self.session.connections
        links = [connection.worker.data_link for connection in connections]
        before, self._moved = self._moved, sum(link.moved_for(now.call_id) for link in links if link is not None)
        if self._moved != before or now.reads_file or any(connection.has_unread for connection in connections):
            return None
        self._run_s += passed_s
        self._abandoned_s = 0.0 if now.is_needed() else self._abandoned_s + passed_s
        limit_s = _limit_s(now, self._limits.execute_s)
        if self._run_s > limit_s:
            error = _execute_limit_error(limit_s)
            return StopRequest(
                f"{now.doing} took over {limit_s:g} s", now, error, is_program_fault=True, cause=ExitCause.OVERTIME
            )
        if self._abandoned_s > self._limits.grace_s:
            # A short deadline is the caller's decision and does not count against the program.
            reason = f"{now.doing} continued for {self._limits.grace_s:g} s after its caller had gone"
            return StopRequest(reason, now, cause=ExitCause.OVERTIME)
        return None

    def _check_compilations(self, now: list[Command], passed_s: float) -> StopRequest | None:
        self._compiling = {command: self._compiling.get(command, -passed_s) + passed_s for command in now}
        for command, took_s in self._compiling.items():
            limit_s = _limit_s(command, self._limits.compile_s + _COMPILER_GRACE_S)
            if took_s > limit_s:
                return StopRequest(
                    f"{command.doing} took over {limit_s:g} s",
                    command,
                    compile_limit_error(self._limits.compile_s),
                    is_program_fault=not command.is_known_answer,  # slow compilation is not wrong compilation
                    cause=ExitCause.OVERTIME,
                )
        return None


def _limit_s(command: Command, limit_s: float) -> float:
    return max(limit_s, _KNOWN_ANSWER_S) if command.is_known_answer else limit_s


class Watchdog:
    """Checks the current session four times a second, on a thread of its own.

    Args:
        on_tick: called at every check with the time since the last one, in seconds.
    """

    def __init__(self, limits: WatchLimits, on_tick: Callable[[float], None]) -> None:
        self._limits = limits
        self._on_tick = on_tick
        self._watch: Watch | None = None
        self._ended = threading.Event()  # ends the thread
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        self._thread.start()

    def watch(self, session: MeshSession, *, stood_by: bool) -> None:
        """Watches a new session instead of the last one."""
        self._watch = Watch(session, self._limits, stood_by=stood_by)

    def close(self) -> None:
        """Stops the thread."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        log, last = structlog.get_logger(), time.monotonic()
        while not self._ended.wait(_TICK_S):
            now = time.monotonic()
            try:
                self._tick(min(now - last, _MAX_PASSED_S))
            except Exception:
                log.exception("a watchdog check failed")
            last = now

    def _tick(self, passed_s: float) -> None:
        watch = self._watch
        if watch is not None and not watch.session.ended and (stop := watch.check(passed_s)) is not None:
            watch.session.stop(stop)
        self._on_tick(passed_s)


def _execute_limit_error(limit_s: float) -> CallError:
    return CallError(
        Reason.EXECUTE_LIMIT,
        f"the program ran for over {limit_s:g} s, the longest that this server allows one; split the work into "
        "smaller calls, or start the server with a larger --max-execute-s",
        metadata={"limit": f"{limit_s:g}"},
    )
