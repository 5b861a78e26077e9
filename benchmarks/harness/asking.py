"""Child processes of a benchmark, which run jobs in interleaved rounds."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.answering import ANSWERS_FD
from shardcall_server.launcher import tuned_environment, worker_environment

BENCHMARKS = Path(__file__).resolve().parents[1]
PEERS_DIR = Path.home() / ".cache" / "shardcall-benchmarks"
_READY = re.compile(r"shardcall ready at (\S+) ")


def client_environment(tuned: bool) -> dict[str, str]:
    """Returns the environment of the child processes: the server's allocator or the default one, and its XLA flags."""
    environment = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
    return worker_environment(tuned_environment(environment) if tuned else environment)


class Child:
    """A process that runs a module of ``peers`` and answers requests; see answering.py.

    Args:
        module: the module below ``benchmarks/``, such as "peers.floors".
        arguments: the arguments of its command line.
        environment: the environment of the process.
        python: the interpreter, of a peer's environment or this one.
    """

    def __init__(
        self, module: str, *arguments: str, environment: Mapping[str, str], python: Path = Path(sys.executable)
    ) -> None:
        self.pid = 0
        self._process: subprocess.Popen[str] | None = None
        if not python.exists():
            return
        # Output of libraries is shown only if the process ends early. Answers have a separate pipe.
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the process
        answers, theirs = os.pipe()
        self._answers = os.fdopen(answers)
        # The folder is the children's working directory, and so the first in which they look for modules.
        command = [str(python), "-m", module, *arguments]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=self._printed,
            stderr=self._printed,
            pass_fds=[theirs],
            text=True,
            cwd=BENCHMARKS,
            env={**environment, ANSWERS_FD: str(theirs)},
        )
        os.close(theirs)
        self.pid = self._process.pid

    def send(self, what: str, number: int) -> None:
        """Sends a request; `receive` must follow."""
        if self._process and self._process.stdin:
            with suppress(BrokenPipeError):  # it has ended, and `receive` says so
                print(what, number, file=self._process.stdin, flush=True)

    def receive(self) -> dict[str, Any]:
        """Returns the answer to the last request; ``error`` in it gives the reason if there is none."""
        if self._process is None:
            return {"error": "not installed"}
        line = self._answers.readline()
        return json.loads(line) if line else {"error": f"ended: {self._last_line()}"}

    def ask(self, what: str, number: int) -> dict[str, Any]:
        """Sends a request and waits for the answer."""
        self.send(what, number)
        return self.receive()

    def _last_line(self) -> str:
        self._printed.seek(0)
        lines = self._printed.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")

    def stop(self) -> None:
        """Ends the process, by the end of its standard input."""
        if self._process is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()
        self._printed.close()


@dataclass
class Server:
    """A running shardcall server.

    Attributes:
        address: "host:port".
        unix_address: "unix:/path"; empty without a Unix socket.
        pid: the process id of the front end.
        worker_pid: the process id of the mesh worker.
        start_s: the seconds from the command to the line that it is ready.
    """

    address: str
    unix_address: str
    pid: int
    worker_pid: int
    start_s: float


@contextmanager
def server(folder: Path, *, tuned: bool, environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Starts a server of 8 devices that listens on a port and, if it supports that, on a Unix socket in ``folder``.

    Args:
        folder: the folder of the socket.
        tuned: whether its processes tune the allocator.
        environment: variables to add.
    """
    path = folder / "shardcall.sock"
    command = [sys.executable, "-m", "shardcall.cli", "serve", "--port", "0", "--devices", "8", "--exit-with-stdin"]
    command += ["--log-level", "warning", *([] if tuned else ["--no-tune-allocator"])]
    unix = ["--unix-socket", str(path)] if _has_option("--unix-socket") else []
    added = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"} | dict(environment or {})
    began = time.perf_counter()
    with subprocess.Popen([*command, *unix], stdin=-1, stdout=-1, text=True, env=added) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        match = _READY.match(process.stdout.readline())
        start_s = time.perf_counter() - began
        if not match:
            sys.exit("the server did not become ready; its error stands above")
        yield Server(match[1], f"unix:{path}" if unix else "", process.pid, children_of(process.pid)[0], start_s)
        process.stdin.close()


def _has_option(name: str) -> bool:
    command = [sys.executable, "-m", "shardcall.cli", "serve", "--help"]
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    return name in subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


def children_of(pid: int) -> list[int]:
    """Returns the ids of a process's children, oldest first."""
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):  # a thread that has just ended
            children += map(int, (task / "children").read_text().split())
    return children


@dataclass
class Samples:
    """The answers to one request, one for each round.

    Attributes:
        seconds: the times of the caller.
        execute: the times of the kernel alone, if the server reports them.
        right: whether every compared result equals NumPy's bit for bit.
        error: the reason if there are no figures.
    """

    seconds: list[float] = field(default_factory=list)
    execute: list[float] = field(default_factory=list)
    right: bool = True
    error: str = ""

    def add(self, answer: Mapping[str, Any], *, counts: bool) -> None:
        """Adds an answer; of one that does not count, only errors and wrong results are recorded."""
        self.error = str(answer.get("error", ""))
        self.right = self.right and bool(answer.get("right", True))
        if self.error or not counts:
            return
        self.seconds += answer["seconds"]
        self.execute += answer.get("execute", [])


def run_rounds(requests: Mapping[str, tuple[Child, str]], number: int, rounds: int, note: str) -> dict[str, Samples]:
    """Sends every request once a round, in a random order; the round before the first does not count.

    Args:
        requests: the child and its job, by the name of the row.
        number: the number that is sent with every request.
        rounds: the number of rounds that count.
        note: the text that is shown as progress.
    """
    measured = {name: Samples() for name in requests}
    for count in range(rounds + 1):
        print(f"{note}: round {count} of {rounds}", file=sys.stderr)
        living = [name for name in requests if not measured[name].error]
        for name in random.sample(living, len(living)):
            child, what = requests[name]
            measured[name].add(child.ask(what, number), counts=count > 0)
    return measured


def peer_python(peers_dir: Path, peer: str) -> Path:
    """Returns the interpreter of a peer's environment, which may not be installed."""
    return peers_dir / peer / "bin" / "python"
