"""Processor time of small calls by process and thread, with an idea to reduce each part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from harness.asking import Child, Server
from harness.processes import difference_by_name, thread_seconds

_FRONT_END, _WORKER = "front end", "worker"


@dataclass(frozen=True)
class Part:
    """A row of the table.

    Attributes:
        title: the title of the row.
        process: the process of the threads.
        names: prefixes of the threads' names; a thread belongs to the first part that matches.
        idea: an idea to reduce the time.
    """

    title: str
    process: str
    names: tuple[str, ...]
    idea: str


PARTS = (
    Part(
        "front end: handlers, streams",
        _FRONT_END,
        ("call", "stream"),
        "protobuf and the checks of a call in Python: cache a call's plan by the bytes of its head",
    ),
    Part(
        "front end: gRPC's thread in Python",
        _FRONT_END,
        ("Thread-",),
        "one thread that takes every event and hands it to another: a server in C++ would hand it to none",
    ),
    Part(
        "front end: gRPC's own threads",
        _FRONT_END,
        ("event_engine", "grpc_", "lifeguard", "resolver", "default-exec", "main", "python"),
        "reading and writing HTTP/2 in the kernel and in gRPC: fewer, larger writes; for one host shared memory only",
    ),
    Part(
        "link: the front end's end",
        _FRONT_END,
        ("mesh-supervisor", "link"),
        "a wake-up and a message a call: answers that are ready together could come in one read",
    ),
    Part("front end: other threads", _FRONT_END, ("",), "nothing: they do not work for calls"),
    Part(
        "link: the worker's end, which places and launches",
        _WORKER,
        ("main",),
        "JAX's dispatch: a NumPy view straight to the executable, and no work that another thread could do",
    ),
    Part(
        "worker: waiting, gathering, answering",
        _WORKER,
        ("finish", "copy", "plan"),
        "a hand-over to another thread a call: tiny results could be answered by the thread that launched",
    ),
    Part(
        "worker: XLA's threads and others",
        _WORKER,
        ("",),
        "devices wait for each other at every exchange: small calls belong on one device",
    ),
)
CLIENT_IDEA = "protobuf, and the hand-over between gRPC's thread and the caller: keep the message of a repeated call"


def of_calls(server: Server, work: Callable[[], tuple[int, float]]) -> tuple[dict[str, float], float]:
    """Measures the processor time of a call.

    Args:
        server: the server that is called.
        work: makes calls; returns their number and the processor time of the clients in seconds.

    Returns:
        The seconds of a call in each part, and in the clients.
    """
    pids = {_FRONT_END: server.pid, _WORKER: server.worker_pid}
    before = {process: thread_seconds(pid) for process, pid in pids.items()}
    calls, client_s = work()
    used = {process: difference_by_name(before[process], thread_seconds(pid)) for process, pid in pids.items()}
    by_part: Counter[str] = Counter()
    for process, names in used.items():
        for name, seconds in names.items():
            by_part[_part(process, name)] += seconds / calls  # type: ignore[assignment]  # a Counter of floats
    return dict(by_part), client_s / calls


def _part(process: str, name: str) -> str:
    return next(part.title for part in PARTS if part.process == process and name.startswith(part.names))


def load(children: list[Child], what: str, callers: int) -> tuple[int, float, float]:
    """Makes calls from many threads, spread over processes.

    Returns:
        The number of calls, the processor time of the clients in seconds, and the calls per second; zeros if a child
        does not support the job.
    """
    for child in children:
        child.send(what, callers // len(children))
    answers = [child.receive() for child in children]
    if any("error" in answer for answer in answers):
        return 0, 0.0, 0.0
    calls = sum(answer["calls"] for answer in answers)
    return calls, sum(answer["cpu"] for answer in answers), sum(a["calls"] / a["seconds"] for a in answers)
