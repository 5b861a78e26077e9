"""A real server for the tests that request one: its own process, on a port that the system chooses."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import known_answers
import pytest
from case_sample import Sampling
from hypothesis import HealthCheck, settings

import shardcall as sc
from shardcall_core import locks
from shardcall_core.wire import token_file

DEVICES = 8
PRINCIPALS = {
    "guest": token_file.SCOPES,
    "runner": ("run",),
    "owner": ("run", "arrays"),
    "watcher": ("admin",),
}
"""Whom servers of the tests know besides the user whose tests these are, and what they may do."""
LONG_FORM = Sampling(strength=3, cases=64, values=16)
LONG_FORM_OF_FOLDERS = {"numpy_suite": Sampling(strength=2, cases=8, values=8)}
# How long an example takes says as much about the machine as about the code.
settings.register_profile("shardcall", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shardcall")

_READY = re.compile(r"shardcall ready at (\S+) ")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds ``--full``, for the long form of tests/faults, ``--every-case``, ``--part``, and ``--failures-to``."""
    parser.addoption("--full", action="store_true", help="full counts and durations in tests/faults")
    parser.addoption("--every-case", action="store_true", help="not samples of cases, nor of NumPy's calls: for hours")
    parser.addoption("--part", metavar="K/N", help="run only the K-th of N parts of the tests, the same in every run")
    parser.addoption("--failures-to", type=Path, metavar="FILE", help="write each failure to FILE, a line of JSON each")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the figures that tests have recorded with the fixture ``figure``."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    figures = [line for report in reports for name, line in report.user_properties if name == "figure"]
    if figures:
        terminalreporter.section("figures")
        for line in sorted(figures):
            terminalreporter.line(line)


class _FailureLog:
    """Writes failures to a file as they are reported, and at last the run's exit status.

    Args:
        path: the file; it is emptied.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.write_text("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            with self._path.open("a") as log:
                log.write(json.dumps({"test": report.nodeid, "text": report.longreprtext}) + "\n")

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        with self._path.open("a") as log:
            log.write(json.dumps({"exit_status": int(exitstatus)}) + "\n")


def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: object) -> list[pytest.Item] | None:
    """Makes no items of long tests that are not run: they are two thirds of all, and each process would make them."""
    marks = getattr(obj, "pytestmark", None)
    is_long = isinstance(marks, list) and any(mark.name == "long" for mark in marks)
    return [] if is_long and collector.config.option.markexpr == "not long" else None


@pytest.hookimpl(trylast=True)  # when all parameters are known
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Makes no items of cases that are not run: of the short form, or of the sample that is the long form.

    Those that are keep their ids, which `.ci/rerun` names.
    """
    option, calls, test = metafunc.config.getoption, metafunc._calls, metafunc.definition
    short = [call for call in calls if not any(mark.name == "long" for mark in (*call.marks, *test.iter_markers()))]
    if option("markexpr") == "not long":
        # Without a call pytest would run the test once, without parameters: one long call is left to be deselected.
        calls[:] = short or calls[:1]
    elif not (option("--every-case") or test.get_closest_marker("fuzz")):
        sampling = LONG_FORM_OF_FOLDERS.get(test.path.parent.name, LONG_FORM)
        calls[:] = sampling.sample_of(test.nodeid, calls, short if sampling is LONG_FORM else calls[:1])


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Collects without garbage collection, which would traverse all that is collected again and again."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Keeps what the run has until its end from the garbage collector."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)  # after the order was drawn
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the tests of one part; runs the files that take longest first, so that none is waited for at the end."""
    if part := config.getoption("--part"):
        number, count = map(int, part.split("/"))
        others = [item for item in items if zlib.crc32(item.nodeid.encode()) % count != number - 1]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if zlib.crc32(item.nodeid.encode()) % count == number - 1]
    first, last = ["faults", "end_to_end", "project"], ["client", "server"]  # the latter have files of some seconds

    def position(item: pytest.Item) -> tuple[bool, int]:
        folder = item.path.parent.name
        place = first.index(folder) if folder in first else len(first) + (folder in last)
        return item.get_closest_marker("soak") is None, place

    items.sort(key=position)


def pytest_configure(config: pytest.Config) -> None:
    """Ctrl-C interrupts, also where a shell has started the tests in the background and so ignores it for them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    path = config.getoption("--failures-to")
    if path and not hasattr(config, "workerinput"):  # the process that reports, not one of those that run tests
        config.pluginmanager.register(_FailureLog(path))


@dataclass
class ServerProcess:
    """A running server.

    Attributes:
        process: the front end.
        address: where it listens, "host:port".
    """

    process: subprocess.Popen[str]
    address: str

    def worker_pids(self) -> list[int]:
        """The ids of the front end's child processes."""
        return children(self.process.pid)


def children(pid: int) -> list[int]:
    """Returns the ids of the child processes of a process."""
    pids: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):  # a thread that has just ended
            pids += map(int, (task / "children").read_text().split())
    return pids


def start_server(
    *flags: str, environment: dict[str, str] | None = None, log: Path | None = None
) -> subprocess.Popen[str]:
    """Starts a server that ends with the test process; its standard error goes to ``log``, or to the test's."""
    known_answers.give(os.environ["SHARDCALL_CACHE_DIR"])
    command = [sys.executable, "-m", "shardcall.cli", "serve", "--port", "0", "--exit-with-stdin", *flags]
    with log.open("wb") if log else nullcontext() as stderr:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={**os.environ, **(environment or {})},
        )


def _cache_of_the_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for the servers of all processes of a run, so that each program is compiled once."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@pytest.fixture(scope="session", autouse=True)
def _no_traces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps the user's cache and tokens out of the tests, and slow or demanding features out of most.

    Many tests stop a worker to hold the mesh, or leave a stream stalled, for longer than a server would stand by: those
    of the watchdog and of stalled streams set the limits themselves.
    """
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SHARDCALL_CACHE_DIR", str(_cache_of_the_run(tmp_path_factory)))
        environment.setenv("SHARDCALL_STRATEGY", "fixed")
        environment.setenv(locks.VARIABLE, "1")
        # What one test called is not made ready for the next; compiled programs are kept on disk for all.
        environment.setenv("SHARDCALL_WARM_UP_S", "0")
        environment.setenv("SHARDCALL_SPARE_WORKER", "false")
        environment.setenv("SHARDCALL_WORKER_SILENCE_S", "600")
        environment.setenv("SHARDCALL_DEADLINE_GRACE_S", "600")
        environment.setenv("SHARDCALL_MAX_EXECUTE_S", "600")
        environment.setenv("SHARDCALL_STREAM_IDLE_S", "600")
        tokens = tmp_path_factory.mktemp("state") / "token"
        user = token_file.Entry.make(token_file.user_name(), token_file.SCOPES)
        token_file.create(str(tokens), [user, *(token_file.Entry.make(*other) for other in PRINCIPALS.items())])
        environment.setenv(token_file.FILE_VARIABLE, str(tokens))
        environment.delenv(token_file.TOKEN_VARIABLE, raising=False)
        yield


@contextmanager
def running_server(
    *flags: str, devices: int = DEVICES, log: Path | None = None, knows_answers: bool = True
) -> Iterator[ServerProcess]:
    """A server that is ready, and gone afterwards; one that knows no answers runs known-answer tests of its own."""
    cache_folder = flags[flags.index("--cache-dir") + 1] if "--cache-dir" in flags else ""
    if knows_answers and cache_folder:
        known_answers.give(cache_folder)
    process = start_server("--devices", str(devices), *flags, log=log)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        match = _READY.match(line)
        assert match, f"the server did not become ready; it said {line!r}"
        yield ServerProcess(process, match[1])
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(60)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server of 8 devices for all tests that leave it as it was; it keeps files of arrays."""
    with running_server("--array-dir", str(tmp_path_factory.mktemp("arrays"))) as running:
        yield running


@pytest.fixture(scope="session")
def client(server: ServerProcess) -> Iterator[sc.Client]:
    """A client of the shared server."""
    with sc.connect(server.address) as connected:
        yield connected


@pytest.fixture(scope="session")
def streaming(server: ServerProcess) -> Iterator[sc.Client]:
    """A client of the shared server whose large arrays are sent as streams, as those of other hosts are."""
    with sc.connect(server.address, shared_memory=False) as connected:
        yield connected


@pytest.fixture(params=[True, False], ids=["stream", "unary"])
def call_stream(request: pytest.FixtureRequest) -> bool:
    """The argument of `shardcall.connect`: small calls are streamed, or unary RPCs."""
    return bool(request.param)


@pytest.fixture
def server_factory() -> Iterator[Callable[..., ServerProcess]]:
    """Makes servers of a test's own, which it may set up, stop or kill; gone after the test."""
    with ExitStack() as stack:
        yield lambda *flags, **options: stack.enter_context(running_server(*flags, **options))
