"""A real server of several hosts: a front end and agents, each its own process, on ports that the system chooses."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO

from servers import children

# A machine that is held up for a while is no reason to count anybody out: tests of silence and lag set these anew.
PATIENCE = ("--host-silence-s", "600", "--worker-silence-s", "600", "--straggler-timeout-s", "600")
_HOSTS_MAY_JOIN = re.compile(r'"by": "shardcall worker --join (\S+?)"')
_READY = re.compile(r"shardcall ready at (\S+) ")
child_pids = children
_START_S = 600.0
_END_S = 60.0
_PR_SET_PDEATHSIG = 1
# An agent ends with the thread that started it, and so with the tests.
_AGENT = f"""\
import ctypes
ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, {int(signal.SIGTERM)})
from shardcall.cli import main
main()
"""


class ProcessLog:
    """The lines that a process writes to its standard error or output, read as they come.

    Args:
        stream: to read; closed at its end.
    """

    def __init__(self, stream: IO[str]) -> None:
        self.lines: list[str] = []
        self._more = threading.Condition()
        self._ended = False
        threading.Thread(target=self._read, args=[stream], name="log", daemon=True).start()

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                with self._more:
                    self.lines.append(line.rstrip("\n"))
                    self._more.notify_all()
        with self._more:
            self._ended = True
            self._more.notify_all()

    def wait_for(self, pattern: str | re.Pattern[str], begin: int = 0, timeout_s: float = _START_S) -> re.Match[str]:
        """The first line at or after ``begin`` that has the pattern, once it is there."""
        looked = begin

        def search_lines() -> re.Match[str] | None:
            nonlocal looked
            for line in self.lines[looked:]:
                looked += 1
                if match := re.search(pattern, line):
                    return match
            return None

        match, deadline = None, time.monotonic() + timeout_s
        with self._more:
            while (match := search_lines()) is None and not self._ended and (left_s := deadline - time.monotonic()) > 0:
                self._more.wait(left_s)
        assert match, f"no line has {pattern!r}; the last ones are {self.lines[-12:]}"
        return match


class AgentProcess:
    """A running agent.

    Attributes:
        name: of its host.
        process: the agent.
        log: its log and that of its workers.
    """

    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        self.name = name
        self.process = process
        self.log = ProcessLog(process.stderr)

    def worker_pids(self) -> list[int]:
        """The ids of its child processes: its worker, and a spare where it keeps one."""
        return child_pids(self.process.pid)

    def end(self) -> None:
        """Ends it, even if it is stopped, and its worker."""
        self.process.terminate()
        try:
            os.kill(self.process.pid, signal.SIGCONT)
            self.process.wait(_END_S)
        except ProcessLookupError:
            pass
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.process.wait(_END_S)


class Cluster:
    """A running server of several hosts.

    Attributes:
        process: the front end.
        address: where it listens, "host:port".
        hosts_address: the address at which agents join.
        log: the front end's log.
        agents: by the names of their hosts: "h1", "h2", … The mesh's processes are in the order in which they joined,
            which the server's state reports.
    """

    address = ""

    def __init__(self, hosts: int, server_options: Sequence[str], environment: dict[str, str]) -> None:
        command = [sys.executable, "-m", "shardcall.cli", "serve", "--exit-with-stdin"]
        command += ["--hosts", str(hosts), "--port", "0", "--hosts-port", "0"]
        command += ["--no-spare-worker", "--strategy", "fixed", "--warm-up-s", "0", *PATIENCE, *server_options]
        pipe = subprocess.PIPE
        self._environment = {**os.environ, **environment}
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=self._environment)
        assert self.process.stdin
        assert self.process.stdout
        assert self.process.stderr
        self.log = ProcessLog(self.process.stderr)
        self._output = ProcessLog(self.process.stdout)
        self.agents: dict[str, AgentProcess] = {}
        self.hosts_address = ""

    @property
    def pid(self) -> int:
        """The front end's process id."""
        return self.process.pid

    def worker_pids(self) -> dict[str, list[int]]:
        """The ids of every agent's child processes: its worker, and a spare where it keeps one."""
        return {name: agent.worker_pids() for name, agent in self.agents.items() if agent.process.poll() is None}

    def start_agent(self, name: str, *options: str, environment: dict[str, str] | None = None) -> AgentProcess:
        """Starts an agent, instead of an ended one of that name or as a further one, and does not wait for it.

        It ends with the thread that calls this.
        """
        if not self.hosts_address:
            self.hosts_address = self.log.wait_for(_HOSTS_MAY_JOIN)[1]
        process = subprocess.Popen(
            [sys.executable, "-c", _AGENT, "worker", "--join", self.hosts_address, "--name", name, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**self._environment, **(environment or {})},
        )
        self.agents[name] = AgentProcess(name, process)
        return self.agents[name]

    def wait_ready(self, timeout_s: float = _START_S) -> None:
        """Waits until the mesh of all hosts answers for the first time."""
        self.address = self._output.wait_for(_READY, timeout_s=timeout_s)[1]

    def end(self) -> None:
        """Ends the front end and the agents."""
        assert self.process.stdin
        self.process.stdin.close()
        try:
            self.process.wait(_END_S)
        finally:
            self.process.kill()
            for agent in self.agents.values():
                agent.end()


@contextmanager
def running_cluster(
    hosts: int,
    devices_per_host: int,
    *server_options: str,
    agent_options: Sequence[str] = (),
    environment: dict[str, str] | None = None,
) -> Iterator[Cluster]:
    """A server of several hosts that is ready, and gone afterwards.

    Args:
        hosts: how many agents join.
        devices_per_host: virtual CPU devices of each.
        *server_options: for ``shardcall serve``, after those that keep it patient, which they may set anew.
        agent_options: for every ``shardcall worker``, such as ``--no-shared-memory``.
        environment: variables of all the processes besides the tests' own.
    """
    with ExitStack() as stack:
        cluster = Cluster(hosts, server_options, environment or {})
        stack.callback(cluster.end)
        for i in range(hosts):
            cluster.start_agent(f"h{i + 1}", "--devices", str(devices_per_host), *agent_options)
        cluster.wait_ready()
        yield cluster
