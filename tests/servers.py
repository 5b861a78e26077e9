"""Real servers: those that all processes of a run share, and those of one test alone.

A run has one server of each profile, and of the plain one each process has its own; the first test that requests one
starts it. A test that ends or changes its server, or needs another setting, starts one of its own and says why.
"""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import known_answers

import shardcall as sc
from shardcall_core.wire import token_file

DEVICES = 8
PRINCIPALS = {"guest": token_file.SCOPES, "runner": ("run",), "owner": ("run", "arrays"), "watcher": ("admin",)}
"""Whom servers of the tests know besides the user whose tests these are, and what they may do."""
RUN_VARIABLE = "TESTS_RUN_FOLDER"
"""The environment variable with the folder of the run, for the processes of the tests."""

_READY = re.compile(r"shardcall ready at (\S+) ")
_END_S = 120.0
_shared: list[subprocess.Popen[str]] = []  # those that this process has started


@dataclass(frozen=True)
class Profile:
    """The settings of a shared server.

    Attributes:
        flags: for ``shardcall serve``; ``{folder}`` stands for a folder of the server's own.
        devices: virtual devices.
    """

    flags: tuple[str, ...] = ()
    devices: int = DEVICES


PROFILES: Mapping[str, Profile] = {
    "plain": Profile(("--array-dir", "{folder}")),
    "exclusive": Profile(("--array-dir", "{folder}", "--trim-after-s", "0.2", "--metrics-port", "0")),
    "limits": Profile(
        (
            *("--lease-s", "2", "--max-resident-arrays", "40", "--max-call-streams", "4", "--trim-after-s", "0.2"),
            *("--max-streamed-calls", "4", "--max-streamed-bytes", str(1 << 20), "--max-segment-bytes", str(32 << 20)),
            *("--array-dir", "{folder}", "--max-file-bytes", str(64 << 20), "--max-files", "6"),
        )
    ),
}
"""By name: ``plain``, of which each process has one, for tests that leave the server as it was, and two that one file
has at a time (`exclusively`): ``exclusive`` for files whose tests stop its worker or look at all that it holds, and
``limits`` with small limits, of files too, and short leases."""


class SharedProcess:
    """The front end of a server that another process of the run may have started.

    Attributes:
        pid: its process id.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        """Returns None while it runs, else -1, since only the process that started it knows its exit status."""
        return None if alive(self.pid) else -1


@dataclass
class ServerProcess:
    """A running server.

    Attributes:
        process: the front end.
        address: where it listens, "host:port".
        log: the file of its log, if it has one.
    """

    process: subprocess.Popen[str] | SharedProcess
    address: str
    log: Path | None = field(default=None, repr=False)

    def worker_pids(self) -> list[int]:
        """The ids of the front end's child processes."""
        return children(self.process.pid)


def children(pid: int) -> list[int]:
    """Returns the ids of the child processes of a process; none where it is gone."""
    pids: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
                pids += map(int, (task / "children").read_text().split())
    return pids


def alive(pid: int) -> bool:
    """Returns whether a process has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Run:
    """The folder of compiled programs, tokens and servers that the processes of a run share; it ends with the run.

    The process that makes it holds a pipe open, whose other end is the standard input of every shared server: they end
    when it closes the pipe, and also when it is killed.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="shardcall-tests-"))
        os.environ[RUN_VARIABLE] = str(self.folder)
        (self.folder / "cache").mkdir(mode=0o700)
        (self.folder / "servers").mkdir()
        user = token_file.Entry.make(token_file.user_name(), token_file.SCOPES)
        token_file.create(
            str(self.folder / "tokens"), [user, *(token_file.Entry.make(*other) for other in PRINCIPALS.items())]
        )
        os.mkfifo(self.folder / "alive")
        self._alive = os.open(self.folder / "alive", os.O_RDWR)

    def compile_seconds(self) -> dict[str, tuple[int, float]]:
        """Returns how many programs each shared server compiled, and the seconds of it, by the server's profile."""
        compiled = {}
        for record in sorted((self.folder / "servers").glob("*.json")):
            lines = [line for line in record.with_suffix(".log").read_text().splitlines() if '"compiled"' in line]
            seconds = [json.loads(line)["seconds"] for line in lines if line.startswith("{")]
            compiled[record.stem] = (len(seconds), sum(seconds))
        return compiled

    def reasons(self) -> list[str]:
        """Returns the reasons for which tests started servers of their own, one of each server."""
        file = self.folder / "own"
        return file.read_text().splitlines() if file.exists() else []

    def end(self) -> None:
        """Ends the shared servers, and waits until they have ended."""
        os.close(self._alive)
        pids = [json.loads(record.read_text())["pid"] for record in (self.folder / "servers").glob("*.json")]
        deadline = time.monotonic() + _END_S
        while any(map(alive, pids)) and time.monotonic() < deadline:
            time.sleep(0.01)
        for process in _shared:
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def run_folder() -> Path:
    """Returns the folder that the processes of this run share."""
    return Path(os.environ[RUN_VARIABLE])


def shared_server(profile: str, name: str = "") -> ServerProcess:
    """Returns the run's server of a profile; the first call in any process starts it.

    Args:
        profile: the settings.
        name: of one of several servers with these settings.
    """
    servers = run_folder() / "servers"
    name = name or profile
    record = servers / f"{name}.json"
    with (servers / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not record.exists():
            folder = servers / name
            folder.mkdir()
            settings = PROFILES[profile]
            flags = [flag.format(folder=folder) for flag in settings.flags]
            log, output = record.with_suffix(".log"), record.with_suffix(".out")
            with (run_folder() / "alive").open() as alive, output.open("wb") as written:
                process = start_server("--devices", str(settings.devices), *flags, log=log, stdin=alive, stdout=written)
            _shared.append(process)
            while not (line := output.read_text()).endswith("\n") and process.poll() is None:
                time.sleep(0.01)
            record.write_text(json.dumps({"pid": process.pid, "address": _address(line, log)}))
    entry = json.loads(record.read_text())
    return ServerProcess(SharedProcess(entry["pid"]), entry["address"], record.with_suffix(".log"))


@contextmanager
def exclusively(profile: str) -> Iterator[ServerProcess]:
    """A shared server that no other test uses until the block ends; what was left on it is gone at the beginning."""
    with (run_folder() / "servers" / f"{profile}.use").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        server = shared_server(profile)
        with sc.connect(server.address) as observer:
            deadline = time.monotonic() + _END_S
            while not holds_nothing(observer) or observer.usage().calls:
                assert time.monotonic() < deadline, f"earlier tests left {observer.usage()}"
                time.sleep(0.002)
        yield server


def holds_nothing(client: sc.Client) -> bool:
    """Returns whether a server holds nothing of any call, client or lease."""
    usage = client.usage()
    return not (usage.regions or usage.bytes_in_use or usage.segments or usage.leases or usage.arrays)


def start_server(
    *flags: str,
    environment: dict[str, str] | None = None,
    log: Path | None = None,
    stdin: Any = subprocess.PIPE,
    stdout: Any = subprocess.PIPE,
) -> subprocess.Popen[str]:
    """Starts a server that ends with its standard input; its standard error goes to ``log``, or to the test's."""
    known_answers.give(os.environ["SHARDCALL_CACHE_DIR"])
    command = [sys.executable, "-m", "shardcall.cli", "serve", "--port", "0", "--exit-with-stdin", *flags]
    with log.open("wb") if log else nullcontext() as stderr:
        return subprocess.Popen(
            command, stdin=stdin, stdout=stdout, stderr=stderr, text=True, env={**os.environ, **(environment or {})}
        )


def _address(line: str, log: Path | None) -> str:
    """Returns where a server listens that printed a line."""
    match = _READY.match(line)
    assert match, f"the server did not become ready; it said {line!r}\n{log.read_text()[-4000:] if log else ''}"
    return match[1]


@contextmanager
def running_server(
    *flags: str, why: str, devices: int = DEVICES, log: Path | None = None, knows_answers: bool = True
) -> Iterator[ServerProcess]:
    """A server of a test's own that is ready, and gone afterwards.

    Args:
        *flags: for ``shardcall serve``.
        why: the reason that no shared server serves.
        devices: virtual devices.
        log: the file of its log; None for the test's standard error.
        knows_answers: False for one that runs known-answer tests of its own.
    """
    with (run_folder() / "own").open("a") as reasons:
        reasons.write(f"{why}\n")
    cache_folder = flags[flags.index("--cache-dir") + 1] if "--cache-dir" in flags else ""
    if knows_answers and cache_folder:
        known_answers.give(cache_folder)
    process = start_server("--devices", str(devices), *flags, log=log)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield ServerProcess(process, _address(process.stdout.readline(), log), log)
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(60)
