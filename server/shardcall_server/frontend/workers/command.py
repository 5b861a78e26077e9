"""Commands that a worker has not answered yet."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from shardcall.v1 import kernel_pb2
from shardcall_server.frontend.rpc.promise import Promise
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
_LAUNCHED_COMMANDS = frozenset(_DOING) - {"prepare", "compile_known_answer"}


@dataclass(eq=False)
class Command:
    """A command that the workers have not all answered.

    Attributes:
        name: the name of its field in the link's message.
        key: the digest of its program or of the call to compile, by which it may be quarantined; else empty.
        kernel: the name of its kernel or known-answer test; empty if it has none.
        owner: the client that it counts for; empty for the server itself.
        on_gathered: called with the number of bytes of the results that are gathered.
        is_needed: whether a caller waits for the answer or will use it later.
        plan: the placement of its arrays on the mesh; None if it moves no array.
        is_alone: whether no other command of a program is sent while it is pending.
        compiling: whether its compilation has begun.
        in_compiler_process: whether a compiler process compiles it.
        reading: whether it waits for the file of an array, by index of the worker.
        answer: the merged answer of all workers.
        answers: the answers so far, by index of the worker.
        gathered_bytes: the number of gathered bytes of the results, by index of the worker.
        failed_programs: failures of programs that were evicted after this command was sent because some workers could
            not compile them, by key.
        call_id: the id by which messages refer to it.
    """

    name: str
    key: str = ""
    kernel: str = ""
    owner: str = ""
    on_gathered: Callable[[int], None] | None = None
    is_needed: Callable[[], bool] = lambda: True
    plan: kernel_pb2.Plan | None = None
    is_alone: bool = False
    compiling: bool = False
    in_compiler_process: bool = False
    reading: dict[int, bool] = field(default_factory=dict)
    answer: Promise[link_pb2.WorkerMessage] = field(default_factory=Promise)
    answers: dict[int, link_pb2.WorkerMessage] = field(default_factory=dict)
    gathered_bytes: dict[int, float] = field(default_factory=dict)
    failed_programs: dict[str, link_pb2.Failure] = field(default_factory=dict)
    call_id: int = 0

    @property
    def is_known_answer(self) -> bool:
        """True if the command belongs to a known-answer test."""
        return self.name in {"compile_known_answer", "run_known_answer"}

    @property
    def reads_file(self) -> bool:
        """True if it waits for the file of an array on a host, and none has failed: all would wait for that one."""
        failed = any(answer.HasField("failure") for answer in list(self.answers.values()))
        return not failed and any(list(self.reading.values()))  # copies: each worker's thread sets its entry

    @property
    def doing(self) -> str:
        """Description of the work, for messages."""
        return " ".join(filter(None, [_DOING.get(self.name, "working"), self.kernel]))


def identify(message: link_pb2.FrontEndMessage) -> tuple[str, str, str]:
    """Returns the name of a command, its key and its kernel, as in `Command`.

    The key is empty if the command cannot be quarantined, and the kernel if only the key identifies it.
    """
    name = message.WhichOneof("command") or ""
    match name:
        case "execute":
            return name, message.execute.key_digest, ""
        case "measure":
            return name, message.measure.key_digest, ""
        case "prepare":
            call = message.prepare.SerializeToString(deterministic=True)
            return name, hashlib.sha256(call).hexdigest(), message.prepare.call.kernel
        case "compile_known_answer":
            test = message.compile_known_answer.name
            return name, known_answer_key(test), test
        case "run_known_answer":
            test = message.run_known_answer.name
            return name, known_answer_key(test), test
    return name, "", ""


def known_answer_key(name: str) -> str:
    """Returns the key by which a known-answer test is quarantined."""
    return f"known answers: {name}"


def head(commands: Sequence[Command]) -> Command | None:
    """Returns the first of the commands that the devices execute one after the other; the others wait for it.

    Args:
        commands: in the order of sending.
    """
    return next((command for command in commands if command.name in _LAUNCHED_COMMANDS), None)


def suspects(commands: Sequence[Command], proven: Collection[str]) -> list[Command]:
    """Returns the commands that may have crashed a worker.

    Args:
        commands: the pending commands of the worker, in the order of sending.
        proven: keys of programs that have completed before; they are no suspects while another is compiled.
    """
    compiling = [command for command in commands if command.compiling and not command.in_compiler_process]
    running = head(commands)
    if running is None or (compiling and running.key in proven):
        return compiling
    return [running, *compiling]
