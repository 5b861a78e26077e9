"""Exit reasons of workers, and requests to stop them."""

from __future__ import annotations

import enum
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from shardcall_core.call_error import CallError, Reason
from shardcall_server.frontend.workers.command import Command
from shardcall_server.link.failures import decode_failure
from shardcall_worker.v1 import link_pb2

_CRASHES = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL})


class ExitCause(enum.StrEnum):
    """The cause of a worker's exit."""

    OVERTIME = "overtime"
    """A program or a compilation exceeded its time limit, or continued although no caller waited for it."""
    UNRESPONSIVE = "unresponsive"
    """The worker did not become ready, sent no heartbeat, or disagreed with the others."""
    KILLED = "killed"
    """A signal from outside ended the worker."""
    OUT_OF_MEMORY = "out_of_memory"
    """The kernel ended the worker because the memory of the host, or of its control group, had run out."""
    CRASHED = "crashed"
    """The worker failed by itself."""

    @property
    def description(self) -> str:
        """Description for callers, without details of other callers' calls or of the server."""
        return _DESCRIPTIONS[self]


_DESCRIPTIONS = {
    ExitCause.OVERTIME: "a call exceeded its time limit",
    ExitCause.UNRESPONSIVE: "a worker left, did not answer, or disagreed with the others",
    ExitCause.KILLED: "a worker was killed from outside",
    ExitCause.OUT_OF_MEMORY: "the server's memory ran out and the system ended a worker; use smaller or fewer arrays",
    ExitCause.CRASHED: "a worker crashed",
}


@dataclass(frozen=True)
class StopRequest:
    """A request by the front end to stop the workers.

    Attributes:
        reason: the reason, for the log and for callers.
        culprit: the command that caused it; None if no command did.
        error: the error of the culprit's caller; None for the error of all other calls.
        is_program_fault: whether it counts against the culprit's key.
        cause: the cause of the exit that follows.
    """

    reason: str
    culprit: Command | None = None
    error: CallError | None = None
    is_program_fault: bool = False
    cause: ExitCause = ExitCause.UNRESPONSIVE


@dataclass(frozen=True)
class ExitReason:
    """The reason for the exit of a worker.

    Attributes:
        text: the reason, for the log and for callers.
        suspects: the commands that may have caused it.
        is_fault: whether the worker failed, rather than being ended from outside.
        cause: the cause of the exit.
    """

    text: str
    suspects: tuple[Command, ...] = ()
    is_fault: bool = True
    cause: ExitCause = ExitCause.CRASHED

    @property
    def suspected_keys(self) -> tuple[str, ...]:
        """The keys of the programs that may have caused it, if it is a fault; of one program alone, it is certain."""
        return tuple(dict.fromkeys(self._suspect_keys)) if self.is_fault else ()

    def is_suspect(self, command: Command) -> bool:
        """Returns whether a command, or another of the same program, may have caused the exit."""
        return command in self.suspects or command.key in self._suspect_keys

    @property
    def _suspect_keys(self) -> tuple[str, ...]:
        return tuple(command.key for command in self.suspects if command.key)


def exit_reason_of(
    status: int, stop: StopRequest | None, suspects: Sequence[Command], *, oom_killed: bool = False
) -> ExitReason:
    """Returns the reason for the exit of a worker.

    Args:
        status: its exit status, or minus the number of the signal that ended it.
        stop: the request by which the front end stopped it; None if there was none.
        suspects: the commands that may have crashed it.
        oom_killed: whether the kernel killed any process of its control group, or of its host, for lack of memory while
            the worker ran.
    """
    if stop is not None:
        culprit = stop.culprit if stop.is_program_fault else None
        # A command that was answered at the last moment is no suspect.
        pending = (culprit,) if culprit is not None and not culprit.answer.done() else ()
        return ExitReason(stop.reason, pending, cause=stop.cause)
    if status == 0:
        return ExitReason("it closed its link")
    if status < 0 and -status not in _CRASHES:
        reason = f"ended by {_signal(-status)}"
        if not (oom_killed and -status == signal.SIGKILL):
            return ExitReason(reason, is_fault=False, cause=ExitCause.KILLED)
        # The running program may have used up the memory, or another process.
        return ExitReason(f"{reason} when memory ran out", tuple(suspects), False, ExitCause.OUT_OF_MEMORY)
    reason = f"ended by {_signal(-status)}" if status < 0 else f"ended by itself with exit status {status}"
    doing = " or ".join(dict.fromkeys(command.doing for command in suspects))
    return ExitReason(f"{reason} while {doing}" if doing else reason, tuple(suspects))


def disagreement(reason: str, culprit: Command, failure: link_pb2.Failure | None = None) -> StopRequest:
    """Returns the request to stop workers that disagreed.

    Args:
        reason: the reason, for the log and for callers.
        culprit: the command on which they disagreed.
        failure: the failure of the one worker that failed alone; None if none failed. An internal failure or one of
            the network does not count against the program, and its caller gets the error of all other calls.
    """
    if failure is None:
        return StopRequest(reason, culprit, is_program_fault=True)
    error = decode_failure(failure)
    return (
        StopRequest(reason, culprit)
        if error.reason is Reason.INTERNAL
        else StopRequest(reason, culprit, error, is_program_fault=True)
    )


def _signal(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:  # a real-time signal
        return f"signal {number}"
