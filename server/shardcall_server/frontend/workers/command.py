"""A command that the worker has not answered."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from shardcall.v1 import kernel_pb2
from shardcall_worker.v1 import link_pb2

_DOING = {
    "execute": "running kernel",
    "measure": "timing kernel",
    "prepare": "compiling kernel",
    "put_array": "putting an array",
    "get_array": "copying an array",
    "compile_known_answer": "compiling known-answer test",
    "run_known_answer": "running known-answer test",
}
_RUN_IN_ORDER = frozenset(_DOING) - {"prepare", "compile_known_answer"}


@dataclass(eq=False)
class Command:
    """A command that the worker has not answered.

    Attributes:
        kind: as the link's message calls it.
        key: what of it may be refused: a program's digest, or a digest of what is to be compiled; else empty.
        kernel: the name of its kernel or known-answer test; empty where it has none.
        on_gathered: told how many bytes of its results are in place.
        is_wanted: whether somebody waits for its answer, or will be glad of it later.
        plan: how its arrays lie on the mesh; None for one that moves none.
        compiling: whether a worker has begun to compile it.
        answer: what its sender waits for.
        answers: those of single workers, where there are several.
        in_place: how many bytes of its results are in place, as far as they come from each worker.
        unmade: why programs were not made by all workers that were told to forget them after it was sent, by key.
        call_id: what messages call it.
    """

    kind: str
    key: str = ""
    kernel: str = ""
    on_gathered: Callable[[int], None] | None = None
    is_wanted: Callable[[], bool] = lambda: True
    plan: kernel_pb2.Plan | None = None
    compiling: bool = False
    answer: Future[link_pb2.WorkerMessage] = field(default_factory=Future)
    answers: dict[int, link_pb2.WorkerMessage] = field(default_factory=dict)
    in_place: dict[int, float] = field(default_factory=dict)
    unmade: dict[str, link_pb2.Failure] = field(default_factory=dict)
    call_id: int = 0

    @property
    def is_known_answer(self) -> bool:
        """Whether it is a known-answer test's."""
        return self.kind in {"compile_known_answer", "run_known_answer"}

    @property
    def doing(self) -> str:
        """What the worker does for it, in words."""
        return " ".join(filter(None, [_DOING.get(self.kind, "working"), self.kernel]))


def key_of(message: link_pb2.FrontEndMessage) -> str:
    """What of a command may be refused; empty where nothing may."""
    match message.WhichOneof("command"):
        case "execute":
            return message.execute.key_digest
        case "measure":
            return message.measure.key_digest
        case "prepare":
            return hashlib.sha256(message.prepare.SerializeToString(deterministic=True)).hexdigest()
        case "compile_known_answer":
            return known_answer_key(message.compile_known_answer.name)
        case "run_known_answer":
            return known_answer_key(message.run_known_answer.name)
    return ""


def subject_of(message: link_pb2.FrontEndMessage) -> str:
    """The name of the kernel or known-answer test of a command; empty where its kernel is known by its key alone."""
    match message.WhichOneof("command"):
        case "prepare":
            return message.prepare.call.kernel
        case "compile_known_answer":
            return message.compile_known_answer.name
        case "run_known_answer":
            return message.run_known_answer.name
    return ""


def known_answer_key(name: str) -> str:
    """What is blamed where a worker dies of a known-answer test."""
    return f"known answers: {name}"


def head(commands: Sequence[Command]) -> Command | None:
    """The first of those that the devices do one after the other: it is under way, the others wait for it.

    Args:
        commands: in the order of their sending.
    """
    return next((command for command in commands if command.kind in _RUN_IN_ORDER), None)


def suspects(commands: Sequence[Command], proven: Collection[str]) -> list[Command]:
    """Those that a worker may have died of.

    Args:
        commands: what it had not answered, in the order of their sending.
        proven: keys of programs that have run to their end; they are above suspicion while another is compiled.
    """
    compiling = [command for command in commands if command.compiling]
    running = head(commands)
    if running is None or (compiling and running.key in proven):
        return compiling
    return [running, *compiling]
