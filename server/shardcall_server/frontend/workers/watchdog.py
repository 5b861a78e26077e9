"""Watches the worker: whether it lives, and whether anything takes it for longer than it may."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.workers.command import Command, head
from shardcall_server.frontend.workers.exit_reason import ExitKind, StopRequest
from shardcall_server.frontend.workers.session import MeshSession
from shardcall_server.frontend.workers.straggler import StragglerDetector
from shardcall_server.frontend.workers.worker_connection import WorkerConnection

_TICK_S = 0.25
_MOST_SILENCE = 10  # times what a worker may say nothing that does nothing either
_KNOWN_ANSWER_S = 60.0  # to compile or run one, which takes a second; a verdict is no matter of what calls may take
_MOST_PASSED_S = 2 * _TICK_S  # a tick that comes late says that this process had no time, so neither had the worker


@dataclass(frozen=True)
class WatchLimits:
    """For how long a worker may do what.

    Attributes:
        silence_s: say nothing and do nothing, once it is ready.
        start_s: become ready.
        execute_s: run one program.
        compile_s: compile one program.
        grace_s: run a program that nobody waits for any more.
        straggler_s: be at what other workers have done without a sign of progress, or get almost no processor.
    """

    silence_s: float
    start_s: float
    execute_s: float
    compile_s: float
    grace_s: float
    straggler_s: float = 5.0


class _Pulse:
    """The signs of life of one worker.

    Args:
        connection: the worker.
        stood_by: whether it stood by, so that an answer to `Start` is due at once.
    """

    def __init__(self, connection: WorkerConnection, *, stood_by: bool) -> None:
        self._connection = connection
        self._heard = 0
        self._cpu_ticks = 0
        self.silent_s = self.still_s = 0.0
        self._is_due = stood_by
        self._beats_before_start = 1 if stood_by else 0

    def look(self, passed_s: float, *, is_ready: bool) -> None:
        """Looks once more."""
        connection = self._connection
        if connection.heard != self._heard or connection.unheard:
            self._heard, self.silent_s, self.still_s = connection.heard, 0.0, 0.0
            # The devices' start may hold up every thread of the worker's: until it is ready, nothing is due again.
            self._is_due = is_ready or self._heard <= self._beats_before_start
        elif self._is_due:
            self._look_at_silence(passed_s)

    def _look_at_silence(self, passed_s: float) -> None:
        """A worker that works may be late, however much: with 28 processes waiting for two cores, 6 s were seen."""
        used = self._connection.worker.cpu_ticks
        self.silent_s += passed_s
        self.still_s = self.still_s + passed_s if used == self._cpu_ticks else 0.0
        self._cpu_ticks = used


class Watch:
    """One session, looked at again and again.

    Time is counted by looks, never by the clock: where all processes of the server were stopped together, or the
    machine had no time for them, nobody has been silent or slow.

    Args:
        session: what is watched.
        limits: for how long it may do what.
        stood_by: whether its worker stood by, so that an answer to `Start` is due at once.
    """

    def __init__(self, session: MeshSession, limits: WatchLimits, *, stood_by: bool) -> None:
        self.session = session
        self._limits = limits
        self._pulses = [_Pulse(connection, stood_by=stood_by) for connection in session.connections]
        self._starting_s = self._run_s = self._unwanted_s = 0.0
        self._lag = StragglerDetector(session.connections, session.ready, limits.straggler_s)
        self._head: Command | None = None
        self._moved = 0
        self._compiling: dict[Command, float] = {}

    def look(self, passed_s: float) -> StopRequest | None:
        """Looks once more; returns why the worker must be stopped, if it must.

        Args:
            passed_s: the time since the last look.
        """
        commands = self.session.commands()
        return (
            self._look_at_signs_of_life(passed_s)
            or self._lag.look(commands, passed_s)
            or self._look_at_head(head(commands), passed_s)
            or self._look_at_compilations([command for command in commands if command.compiling], passed_s)
        )

    def _look_at_signs_of_life(self, passed_s: float) -> StopRequest | None:
        if not self.session.ready.done():
            self._starting_s += passed_s
            if self._starting_s > self._limits.start_s:
                return StopRequest(f"the worker was not ready within {self._limits.start_s:g} s")
        for pulse, connection in zip(self._pulses, self.session.connections, strict=True):
            pulse.look(passed_s, is_ready=self.session.ready.done())
            silence_s = self._limits.silence_s
            if pulse.still_s > silence_s or pulse.silent_s > _MOST_SILENCE * silence_s:
                on_host = f" on host {connection.worker.host}" if connection.worker.host else ""
                return StopRequest(f"the worker{on_host} did not answer for {pulse.silent_s:.0f} s")
        return None

    def _look_at_head(self, now: Command | None, passed_s: float) -> StopRequest | None:
        """The head's time begins when the one before it was answered: nobody is blamed for having waited.

        Nor does it go on while its arrays are on their way to other hosts or back.
        """
        if now is not self._head or now is None:
            self._head, self._run_s, self._unwanted_s, self._moved = now, 0.0, 0.0, 0
            return None
        links = [connection.worker.data_link for connection in self.session.connections]
        before, self._moved = self._moved, sum(link.moved_for(now.call_id) for link in links if link is not None)
        if self._moved != before:
            return None
        self._run_s += passed_s
        self._unwanted_s = 0.0 if now.is_wanted() else self._unwanted_s + passed_s
        limit_s = _limit_s(now, self._limits.execute_s)
        if self._run_s > limit_s:
            told = _too_long_a_run(limit_s)
            return StopRequest(
                f"{now.doing} took over {limit_s:g} s", now, told, is_program_fault=True, kind=ExitKind.OVERTIME
            )
        if self._unwanted_s > self._limits.grace_s:
            # A short deadline is the caller's choice and says nothing of the program, which others may wait for.
            reason = f"{now.doing} went on for {self._limits.grace_s:g} s after its caller had gone"
            return StopRequest(reason, now, kind=ExitKind.OVERTIME)
        return None

    def _look_at_compilations(self, now: list[Command], passed_s: float) -> StopRequest | None:
        self._compiling = {command: self._compiling.get(command, -passed_s) + passed_s for command in now}
        for command, took_s in self._compiling.items():
            limit_s = _limit_s(command, self._limits.compile_s)
            if took_s > limit_s:
                return StopRequest(
                    f"{command.doing} took over {limit_s:g} s",
                    command,
                    _too_long_a_compilation(limit_s),
                    is_program_fault=not command.is_known_answer,  # a slow compiler is none that compiles wrongly
                    kind=ExitKind.OVERTIME,
                )
        return None


def _limit_s(command: Command, limit_s: float) -> float:
    return max(limit_s, _KNOWN_ANSWER_S) if command.is_known_answer else limit_s


class Watchdog:
    """Looks at the present session four times a second, on a thread of its own.

    Args:
        limits: for how long a worker may do what.
        on_tick: done at every look too; told the time since the last.
    """

    def __init__(self, limits: WatchLimits, on_tick: Callable[[float], None]) -> None:
        self._limits = limits
        self._on_tick = on_tick
        self._watch: Watch | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        self._thread.start()

    def watch(self, session: MeshSession, *, stood_by: bool) -> None:
        """Turns to a new session."""
        self._watch = Watch(session, self._limits, stood_by=stood_by)

    def close(self) -> None:
        """Looks no more."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        log, last = structlog.get_logger(), time.monotonic()
        while not self._ended.wait(_TICK_S):
            now = time.monotonic()
            try:
                self._tick(min(now - last, _MOST_PASSED_S))
            except Exception:
                log.exception("the watchdog stumbled")
            last = now

    def _tick(self, passed_s: float) -> None:
        watch = self._watch
        if watch is not None and not watch.session.ended and (stop := watch.look(passed_s)) is not None:
            watch.session.stop(stop)
        self._on_tick(passed_s)


def _too_long_a_run(limit_s: float) -> CallError:
    return CallError(
        Reason.EXECUTE_LIMIT,
        f"the program ran for over {limit_s:g} s, the longest that this server allows one; split the work into "
        "smaller calls, or start the server with a larger --max-execute-s",
        metadata={"limit": f"{limit_s:g}"},
    )


def _too_long_a_compilation(limit_s: float) -> CallError:
    return CallError(
        Reason.COMPILE_LIMIT,
        f"the program was compiled for over {limit_s:g} s, the longest that this server allows; name another strategy "
        "or a smaller mesh, or start the server with a larger --max-compile-s",
        metadata={"limit": f"{limit_s:g}"},
    )
