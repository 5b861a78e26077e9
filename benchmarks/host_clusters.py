"""Clusters for benchmarks/hosts.py: servers of several worker processes on this machine, and their resource usage."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from unittest.mock import patch

import shardcall as sc
from harness.processes import thread_seconds
from shardcall_core.wire import token_file

_MAY_JOIN = re.compile(r'"by": "shardcall worker --join (\S+?)"')
_READY = re.compile(r"shardcall ready at (\S+) ")
_SENT = re.compile(r"\bbytes_sent:(\d+)")
_PID = re.compile(r"pid=(\d+)")
# Hosts stay in the mesh while the machine is busy.
_PATIENCE = ("--host-silence-s", "600", "--worker-silence-s", "600", "--straggler-timeout-s", "600")
_END_S = 30.0


@dataclass(frozen=True)
class Shape:
    """The composition of a mesh.

    Attributes:
        hosts: the number of agents, each with one worker process; 0 for a server without agents.
        devices: the number of devices of each worker.
        shares_memory: whether the workers share memory with the front end, as only those on its host can.
    """

    hosts: int
    devices: int
    shares_memory: bool = True

    @property
    def all_devices(self) -> int:
        """The number of devices of the mesh."""
        return max(1, self.hosts) * self.devices

    def __str__(self) -> str:
        if not self.hosts:
            return f"floor: serve --devices {self.devices}"
        return f"{self.hosts} × {self.devices}, {'shared memory' if self.shares_memory else 'by messages'}"


@dataclass
class Cluster:
    """A running server.

    Attributes:
        shape: the shape of its mesh.
        client: a client of the server.
        front_end: the process id of the front end.
        agents: the process ids of the agents.
        start_s: the time from the start of the agents, or of a server without agents, until the mesh answered.
    """

    shape: Shape
    client: sc.Client
    front_end: int
    agents: list[int] = field(default_factory=list)
    start_s: float = 0.0

    @property
    def workers(self) -> list[int]:
        """The process ids of the workers."""
        return [pid for parent in self.agents or [self.front_end] for pid in _children(parent)]

    def cpu_seconds(self) -> dict[str, float]:
        """Returns the processor time of the front end, of all agents and of all workers, in seconds."""
        processes = {"front end": [self.front_end], "agents": self.agents, "workers": self.workers}
        return {name: sum(sum(thread_seconds(pid).values()) for pid in pids) for name, pids in processes.items()}

    def hurry(self) -> None:
        """Gives this process and those of the cluster real-time priority, so that others do not delay them.

        Raises:
            PermissionError: the user may not set real-time priorities.
        """
        for pid in (os.getpid(), self.front_end, *self.agents, *self.workers):
            for thread in map(int, os.listdir(f"/proc/{pid}/task")):
                with suppress(ProcessLookupError):
                    os.sched_setscheduler(thread, os.SCHED_RR, os.sched_param(1))

    def traffic(self) -> dict[str, tuple[int, int]]:
        """Returns the bytes sent to the worker of each host and received from it, in the order of the processes."""
        hosts = self.client.usage().mesh.hosts
        return {host.name: (host.sent_bytes, host.received_bytes) for host in hosts if host.process_index >= 0}

    def sockets(self) -> tuple[list[int], list[int]]:
        """Returns the number of TCP connections of each worker, and the bytes sent over them, mostly to others."""
        output = subprocess.run(["ss", "-tinpH"], capture_output=True, text=True, check=False).stdout
        connections, sent = dict.fromkeys(self.workers, 0), dict.fromkeys(self.workers, 0)
        for line in re.sub(r"\n\s+", " ", output).splitlines():
            pid, nbytes = _PID.search(line), _SENT.search(line)
            if pid and int(pid[1]) in connections:
                connections[int(pid[1])] += 1
                sent[int(pid[1])] += int(nbytes[1]) if nbytes else 0
        return list(connections.values()), list(sent.values())


@contextmanager
def temporary_tokens() -> Iterator[None]:
    """Sets a temporary token file, whose token has all scopes, for servers, agents and clients of this process."""
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ):
        os.environ["SHARDCALL_TOKEN_FILE"] = f"{folder}/token"
        token_file.create(f"{folder}/token", [token_file.Entry.make(token_file.user_name(), token_file.SCOPES)])
        yield


@contextmanager
def running(shape: Shape, array_dir: str = "") -> Iterator[Cluster]:
    """Starts a server, and stops it after the body.

    Args:
        array_dir: the folder of files of the server and of all hosts; empty for none.
    """
    command = [sys.executable, "-m", "shardcall.cli"]
    serve = [*command, "serve", "--exit-with-stdin", "--port", "0", "--no-spare-worker", "--warm-up-s", "0"]
    serve += ["--strategy", "fixed", "--cache-dir", "", *_PATIENCE[2:4]]
    serve += ["--hosts", str(shape.hosts), "--hosts-port", "0", *_PATIENCE] if shape.hosts else []
    serve += [] if shape.hosts else ["--devices", str(shape.devices)]
    folder = ["--array-dir", array_dir] if array_dir else []
    agents: list[subprocess.Popen[bytes]] = []
    said = tempfile.TemporaryFile()  # noqa: SIM115  # closed below
    began = time.monotonic()
    front_end = subprocess.Popen([*serve, *folder], stdin=-1, stdout=-1, stderr=-1, text=True)
    assert front_end.stdin
    assert front_end.stdout
    assert front_end.stderr
    try:
        if shape.hosts:
            join = _line_with(front_end.stderr, _MAY_JOIN)
            began = time.monotonic()
            for i in range(shape.hosts):
                worker = [*command, "worker", "--join", join, "--name", f"h{i}", "--devices", str(shape.devices)]
                worker += ["--cache-dir", "", *folder, *([] if shape.shares_memory else ["--no-shared-memory"])]
                agents.append(subprocess.Popen(worker, stdin=subprocess.DEVNULL, stdout=said, stderr=said))
                # Without it the mesh would never be complete, and nothing would report that.
                threading.Thread(target=_end_with, args=[agents[-1], front_end], daemon=True).start()
        threading.Thread(target=_drain, args=[front_end.stderr], daemon=True).start()
        try:
            address = _line_with(front_end.stdout, _READY)
        except EOFError:
            said.seek(0)
            sys.exit(f"a server did not become ready; its agents said:\n{said.read()[-2000:].decode()}")
        start_s = time.monotonic() - began
        # Memory is not shared between hosts, neither with clients nor with workers.
        with sc.connect(address, shared_memory=shape.shares_memory) as client:
            yield Cluster(shape, client, front_end.pid, [agent.pid for agent in agents], start_s)
    finally:
        front_end.stdin.close()
        _end([front_end, *agents])
        said.close()


def _end(processes: Sequence[subprocess.Popen[Any]]) -> None:
    for process in processes[1:]:
        process.terminate()
    for process in processes:
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _line_with(stream: IO[str], pattern: re.Pattern[str]) -> str:
    for line in stream:
        if match := pattern.search(line):
            return match[1]
    raise EOFError


def _end_with(agent: subprocess.Popen[bytes], front_end: subprocess.Popen[str]) -> None:
    agent.wait()
    front_end.terminate()


def _drain(stream: IO[str]) -> None:
    for _ in stream:
        pass


def _children(pid: int) -> list[int]:
    children: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in os.listdir(f"/proc/{pid}/task"):
            children += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return children
