"""How a worker ended, in words."""

from __future__ import annotations

import enum
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.workers.command import Command
from shardcall_worker.v1 import link_pb2

_CRASHES = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL})


class ExitKind(enum.StrEnum):
    """How a worker ended, in one word."""

    OVERTIME = "overtime"
    """A program or a compilation took longer than it may, or ran on when nobody waited for it."""
    UNRESPONSIVE = "unresponsive"
    """It did not become ready, gave no sign of life, or did otherwise than the others."""
    KILLED = "killed"
    """Somebody ended it from outside."""
    CRASHED = "crashed"
    """It ended by a fault of its own."""

    @property
    def description(self) -> str:
        """What callers are told: nothing of the calls of others, or of the server's own names."""
        return _DESCRIPTIONS[self]


_DESCRIPTIONS = {
    ExitKind.OVERTIME: "a call took longer than it may",
    ExitKind.UNRESPONSIVE: "a worker left, did not answer, or did otherwise than the others",
    ExitKind.KILLED: "a worker was ended from outside",
    ExitKind.CRASHED: "a worker ended by a fault of its own",
}


@dataclass(frozen=True)
class StopRequest:
    """Why the front end stopped a worker.

    Attributes:
        reason: why, in words.
        culprit: the command because of which; None where no command is the reason.
        error: what that command's caller is told; None for what all others are told.
        is_program_fault: whether it counts against the culprit's key.
        kind: the same in one word.
    """

    reason: str
    culprit: Command | None = None
    error: CallError | None = None
    is_program_fault: bool = False
    kind: ExitKind = ExitKind.UNRESPONSIVE


@dataclass(frozen=True)
class ExitReason:
    """How a worker ended.

    Attributes:
        reason: why, in words.
        suspects: the commands because of which it may have ended.
        is_fault: whether something is wrong with the worker, rather than that somebody ended it from outside.
        kind: that in one word.
    """

    reason: str
    suspects: tuple[Command, ...] = ()
    is_fault: bool = True
    kind: ExitKind = ExitKind.CRASHED

    @property
    def quarantined_keys(self) -> tuple[str, ...]:
        """The keys that it counts against."""
        return self._suspect_keys if self.is_fault else ()

    def is_suspect(self, command: Command) -> bool:
        """Returns whether a command may have been the reason, or is of the same program."""
        return command in self.suspects or command.key in self._suspect_keys

    @property
    def _suspect_keys(self) -> tuple[str, ...]:
        return tuple(command.key for command in self.suspects if command.key)


def oom_kills() -> int:
    """Counts the processes that the kernel has killed since its start because memory ran out; 0 where it does not."""
    try:
        rows = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(row.split()[1]) for row in rows if row.startswith("oom_kill ")), 0)


def exit_reason_of(
    status: int, stop: StopRequest | None, suspects: Sequence[Command], *, oom_killed: bool = False
) -> ExitReason:
    """How a worker ended.

    Args:
        status: its exit status, or minus the signal that ended it.
        stop: why the front end stopped it; None where it did not.
        suspects: what it may have died of if it died of itself.
        oom_killed: whether the kernel of this host has killed any process because memory ran out, while it ran.
    """
    if stop is not None:
        culprit = stop.culprit if stop.is_program_fault else None
        # One that was answered at the last moment is not to blame.
        blamed = (culprit,) if culprit is not None and not culprit.answer.done() else ()
        return ExitReason(stop.reason, blamed, kind=stop.kind)
    if status == 0:
        return ExitReason("it closed its link")
    if status < 0 and -status not in _CRASHES:
        told = f"ended by {_signal(-status)}"
        if not (oom_killed and -status == signal.SIGKILL):
            return ExitReason(told, is_fault=False, kind=ExitKind.KILLED)
        # What ran may have taken the memory, or another process of the host.
        return ExitReason(f"{told}, perhaps because the host's memory ran out", tuple(suspects), False, ExitKind.KILLED)
    told = f"ended by {_signal(-status)}" if status < 0 else f"ended by itself with exit status {status}"
    doing = " or ".join(dict.fromkeys(command.doing for command in suspects))
    return ExitReason(f"{told} while {doing}" if doing else told, tuple(suspects))


def disagreement(reason: str, culprit: Command, failure: link_pb2.Failure | None = None) -> StopRequest:
    """Why workers are stopped that did not do the same.

    Args:
        reason: why, in words.
        culprit: at what.
        failure: of the one that failed alone; None where none failed. One of the server's own or of the network says
            nothing of the program, and its caller is told what all others are told.
    """
    if failure is None:
        return StopRequest(reason, culprit, is_program_fault=True)
    error = error_of(failure)
    return (
        StopRequest(reason, culprit)
        if error.reason is Reason.INTERNAL
        else StopRequest(reason, culprit, error, is_program_fault=True)
    )


def error_of(failure: link_pb2.Failure) -> CallError:
    """The error of a call that a worker refused."""
    return CallError(Reason(failure.reason), failure.message, field=failure.field, metadata=dict(failure.metadata))


def _signal(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:  # a real-time signal
        return f"signal {number}"
