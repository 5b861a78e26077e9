"""The forms of a run, short and long, and the servers and clients that tests request."""

import gc
import json
import os
import signal
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from case_sample import Sampling
from forms import LONG_FOLDERS, SHORT, is_long
from hypothesis import HealthCheck, settings
from run_report import RunReport
from servers import Run, ServerProcess, exclusively, run_folder, running_server, shared_server

import shardcall as sc
from shardcall_core import locks
from shardcall_core.wire import token_file

LONG_FORM = Sampling(cases=32, values=64)
LONG_FORM_OF_FOLDERS = {"numpy_suite": Sampling(cases=8, values=8)}
_BEGAN = time.monotonic()
# How long an example takes says as much about the machine as about the code.
settings.register_profile("shardcall", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shardcall")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options of this project's tests."""
    parser.addoption("--every-case", action="store_true", help="not samples of cases, nor of NumPy's calls: for hours")
    parser.addoption("--part", metavar="K/N", help="run only the K-th of N parts of the tests, the same in every run")
    parser.addoption(
        "--for-s", type=float, metavar="S", help="begin no test later than so many seconds after the start"
    )
    parser.addoption("--failures-to", type=Path, metavar="FILE", help="write each failure to FILE, a line of JSON each")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Does not import files that are not run."""
    is_test = collection_path.suffix == ".py" and collection_path.name.startswith("test_")
    return True if is_test and config.option.markexpr == SHORT and is_long(collection_path) else None


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


@pytest.hookimpl(trylast=True)  # when all parameters are known
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Makes no items of cases that are not run: those beside the sample that is the long form of a large test.

    The others keep their ids, which `.ci/rerun` names.
    """
    option, test = metafunc.config.getoption, metafunc.definition
    if option("markexpr") != SHORT and not (option("--every-case") or test.get_closest_marker("fuzz")):
        sampling = LONG_FORM_OF_FOLDERS.get(test.path.parent.name, LONG_FORM)
        metafunc._calls[:] = sampling.sample_of(test.nodeid, metafunc._calls)


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Collects without garbage collection, which would traverse all that is collected again and again."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Keeps what the run has until its end from the garbage collector."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their markers
def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks the tests of long folders."""
    if item.path.parent.name in LONG_FOLDERS:
        item.add_marker(pytest.mark.long)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips tests when the time of the run is over."""
    for_s = item.config.getoption("--for-s")
    if for_s is not None and time.monotonic() > _BEGAN + for_s:
        pytest.skip(f"the {for_s:g} s of this run are over")


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
    if hasattr(config, "workerinput"):
        return  # the process that reports has made what the run shares
    run = Run()
    config.add_cleanup(run.end)
    config.pluginmanager.register(RunReport(run, config.option.markexpr == SHORT))
    if path := config.getoption("--failures-to"):
        config.pluginmanager.register(_FailureLog(path))


@pytest.fixture(scope="session", autouse=True)
def _no_traces() -> Iterator[None]:
    """Keeps the user's cache and tokens out of the tests, and slow or demanding features out of most.

    Many tests stop a worker to hold the mesh, or leave a stream stalled, for longer than a server would stand by: those
    of the watchdog and of stalled streams set the limits themselves.
    """
    with pytest.MonkeyPatch.context() as environment:
        # One folder for all servers of a run, so that each program is compiled once.
        environment.setenv("SHARDCALL_CACHE_DIR", str(run_folder() / "cache"))
        environment.setenv("SHARDCALL_STRATEGY", "fixed")
        environment.setenv(locks.VARIABLE, "1")
        # What one test called is not made ready for the next; compiled programs are kept on disk for all.
        environment.setenv("SHARDCALL_WARM_UP_S", "0")
        environment.setenv("SHARDCALL_SPARE_WORKER", "false")
        environment.setenv("SHARDCALL_WORKER_SILENCE_S", "600")
        environment.setenv("SHARDCALL_DEADLINE_GRACE_S", "600")
        environment.setenv("SHARDCALL_MAX_EXECUTE_S", "600")
        environment.setenv("SHARDCALL_STREAM_IDLE_S", "600")
        environment.setenv(token_file.FILE_VARIABLE, str(run_folder() / "tokens"))
        environment.delenv(token_file.TOKEN_VARIABLE, raising=False)
        yield


@pytest.fixture(scope="session")
def server() -> ServerProcess:
    """The server of 8 devices for all tests of a process that leave it as it was; it keeps files of arrays."""
    return shared_server("plain", f"plain-{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}")


@pytest.fixture(scope="module")
def exclusive_server() -> Iterator[ServerProcess]:
    """A server of 8 devices that the tests of this file have to themselves, to stop its worker or look at all it holds.

    It runs on, the same, for other files.
    """
    with exclusively("exclusive") as running:
        yield running


@pytest.fixture(scope="module")
def limited_server() -> Iterator[ServerProcess]:
    """A server of 2 devices with small limits that the tests of this file have to themselves."""
    with exclusively("limits") as running:
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
