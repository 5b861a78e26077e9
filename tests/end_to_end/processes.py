"""Looking at processes from outside, and at a server that is busy."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
from servers import ServerProcess, holds_nothing

import shardcall as sc

X = np.random.default_rng(0).standard_normal((64, 4))


_GIVE_UP_S = 120.0  # the machine may do much else: only what never comes is a failure


def wait_for(condition: Callable[[], bool]) -> None:
    """Waits for a condition, looking every 2 ms."""
    end = time.monotonic() + _GIVE_UP_S
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.002)


def shardcall(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a command in a process, without input."""
    return subprocess.run(
        [sys.executable, "-m", "shardcall.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        check=False,
    )


@contextmanager
def in_thread(deed: Callable[[threading.Event], object]) -> Iterator[None]:
    """Calls a function in a thread with an event that is set after the body, and raises its error then."""
    ended = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        doing = pool.submit(deed, ended)
        try:
            yield
        finally:
            ended.set()
        doing.result()


def repeated(deed: Callable[[], object]) -> AbstractContextManager[None]:
    """Calls a function again and again in a thread during the body, and raises its error after it."""

    def repeat(ended: threading.Event) -> None:
        deed()
        while not ended.is_set():
            deed()

    return in_thread(repeat)


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def stop(pid: int) -> None:
    """Stops a process, and waits until none of its threads runs any longer."""
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: all(_state(task) == "T" for task in Path(f"/proc/{pid}/task").iterdir()))


@contextmanager
def stopped(server: ServerProcess) -> Iterator[None]:
    """Stops the workers of a server during the body: nothing that is handed to the mesh is answered."""
    pids = server.worker_pids()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def _state(task: Path) -> str:
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


def computing(pid: int, for_s: float = 0.3) -> Callable[[], bool]:
    """Returns whether a worker has computed for a while since now: far more than placing operands takes."""
    before = cpu_s(pid)
    return lambda: cpu_s(pid) > before + for_s


def memory_files(pid: int) -> list[str]:
    """The memory of calls and segments that a process has open or mapped."""
    opened = [str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink()]
    mapped = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return [name for name in [*opened, *mapped] if "shardcall-arena" in name or "shardcall-segment" in name]


@contextmanager
def left_empty(server: ServerProcess) -> Iterator[ServerProcess]:
    """A server that several tests use, one after the other; what one has left on it is gone before the next."""
    yield server
    with sc.connect(server.address) as observer:
        wait_for(lambda: holds_nothing(observer) and not is_busy(observer))


def is_busy(client: sc.Client, calls: int = 1) -> bool:
    """Returns whether a server works on a number of calls."""
    return client.usage().calls >= calls
