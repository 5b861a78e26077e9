"""Registry of the hosts that have joined, and their ranks in the mesh."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from dataclasses import dataclass

import structlog

from shardcall.v1 import server_info_service_pb2
from shardcall_core.locks import check_held, rlock
from shardcall_core.versions import build_version
from shardcall_server.frontend.access.ports import bracket
from shardcall_server.frontend.hosts.host import Host
from shardcall_server.frontend.hosts.hosted_worker import HostedWorker
from shardcall_server.frontend.workers.worker import Worker
from shardcall_server.settings import Settings
from shardcall_worker.v1 import host_service_pb2, link_pb2

_START_S = 30.0  # for an agent to start a process, usually a spare


class HostRefusedError(Exception):
    """The host cannot be part of this mesh; the message gives the reason and the remedy."""


class NotNowError(Exception):
    """The host cannot be part of this mesh at present; the message gives the reason."""


@dataclass
class _Rank:
    """One rank of the mesh, held by the process of one host.

    Attributes:
        name: the host that holds the rank, or held it last.
        device_count: number of devices of its process; 0 until it is known.
        since: time at which the host left, on the monotonic clock; 0 while it is connected.
        reason: the reason why it left.
    """

    name: str
    device_count: int = 0
    since: float = 0.0
    reason: str = ""


class Hosts:
    """The registry of hosts, and the source of workers for a mesh of several hosts.

    The first hosts that join get the ranks. A host that leaves keeps its rank until it is back, unless another one on
    standby takes it.

    Args:
        on_change: called with the name of a host and whether it has joined or left.
        start_s: the seconds within which an agent must start a worker.
    """

    def __init__(self, settings: Settings, on_change: Callable[[str, bool], None], start_s: float = _START_S) -> None:
        self._start_s = start_s
        self._settings = settings
        self._on_change = on_change
        self._lock = rlock("the lock of the hosts")  # guards all of these; gRPC's health service is set under it
        self._changed = threading.Condition(self._lock)
        self._present: dict[str, Host] = {}
        self._ranks: list[_Rank] = []
        self._versions: server_info_service_pb2.Versions | None = None
        self._silent: dict[Host, tuple[int, float]] = {}
        self._closed = False

    def join(self, hello: host_service_pb2.Hello) -> Host:
        """Adds a host.

        Raises:
            HostRefusedError: the host cannot be part of this mesh.
            NotNowError: another host has its name, or the server is shutting down.
        """
        host = Host(hello, shares_memory=self._settings.segments)
        host.welcome(self._settings.device_platform, keep_spare=self._settings.spare_worker)
        with self._changed:
            if self._closed:
                raise NotNowError("the server is shutting down")
            self._check(hello)
            if hello.name in self._present:  # or it joins again before the loss of its connection is noticed
                raise NotNowError(f"a host {hello.name} is there already; give every host a --name of its own")
            self._present[hello.name] = host
            self._on_change(hello.name, True)
            self._versions = self._versions or hello.versions
            for rank in self._ranks:
                if rank.name == hello.name:
                    rank.since = 0.0
            self._changed.notify_all()
        structlog.get_logger().info("a host joined", host=hello.name, address=hello.address, **self._count())
        return host

    def remove(self, host: Host, reason: str) -> None:
        """Removes a host."""
        host.disconnect(reason)
        with self._changed:
            if self._present.get(host.name) is not host:
                return
            del self._present[host.name]
            self._on_change(host.name, False)
            for rank in self._ranks:
                if rank.name == host.name:
                    rank.since, rank.reason = time.monotonic(), host.disconnect_reason
            self._changed.notify_all()
        structlog.get_logger().warning("a host left", host=host.name, reason=host.disconnect_reason, **self._count())

    def _count(self) -> dict[str, object]:
        return {"present": len(self._present), "needed": self._settings.hosts}

    def _check(self, hello: host_service_pb2.Hello) -> None:
        check_held(self._lock)
        installed, versions = build_version(), hello.versions
        if versions.shardcall != installed:
            raise HostRefusedError(
                f"host {hello.name} has shardcall {versions.shardcall} and the server {installed}; install the same"
            )
        first = self._versions
        if first is not None and (versions.jax, versions.jaxlib) != (first.jax, first.jaxlib):
            raise HostRefusedError(
                f"host {hello.name} has JAX {versions.jax} (jaxlib {versions.jaxlib}) and the hosts that joined first "
                f"have {first.jax} ({first.jaxlib}); install the same, or restart the server to change all"
            )
        for rank in self._ranks:
            if rank.name == hello.name and hello.devices and rank.device_count not in {0, hello.devices}:
                raise HostRefusedError(
                    f"host {hello.name} has {hello.devices} devices and had {rank.device_count} when the mesh was "
                    f"formed; give --devices {rank.device_count}, or restart the server to change the mesh"
                )
        counts = {rank.device_count for rank in self._ranks} or {0}
        if hello.devices and not counts & {0, hello.devices}:  # no rank fits
            raise HostRefusedError(
                f"host {hello.name} has {hello.devices} devices and those of the mesh have "
                f"{' or '.join(map(str, sorted(counts)))}; give --devices so many, or restart the server to change "
                "the mesh"
            )

    @property
    def spare_ready(self) -> bool:
        """True if a spare stands by on every host that has a rank."""
        with self._changed:
            hosts = [self._present.get(rank.name) for rank in self._ranks]
        return bool(hosts) and all(host is not None and host.spare_ready for host in hosts)

    def acquire(self) -> tuple[Sequence[Worker], bool]:
        """Waits until enough hosts have joined, and lets each start a worker; see `WorkerSource`."""
        while True:
            hosts = self._wait_for_hosts()
            starting = [host.start_worker(i) for i, host in enumerate(hosts)]
            wait(starting, self._start_s)
            workers: list[HostedWorker] = []
            for host, started in zip(hosts, starting, strict=True):
                if not started.done():
                    self.remove(host, f"it did not start a worker within {self._start_s:g} s")
                elif started.exception() is None:
                    workers.append(started.result())
                    if host is hosts[0] and not started.result().started.free_port:
                        self._refuse(host, f"it cannot listen at its address {host.hello.address}")
            if len(workers) == len(hosts) and not hosts[0].is_refused:
                return workers, all(worker.started.stood_by for worker in workers)
            for worker in workers:
                worker.kill()
            for worker in workers:
                worker.terminate()

    def _refuse(self, host: Host, reason: str) -> None:
        host.is_refused = True
        self.remove(host, reason)

    def _wait_for_hosts(self) -> list[Host]:
        with self._changed:
            if self._missing():
                structlog.get_logger().info("waiting for hosts", missing=self._missing(), **self._count())
            while None in (names := self._assign()) and not self._closed:
                self._changed.wait()
            if self._closed:
                raise RuntimeError("the server is shutting down")
            self._ranks += [_Rank("") for _ in names[len(self._ranks) :]]
            for rank, name in zip(self._ranks, names, strict=True):
                rank.name, rank.since = name or "", 0.0
            return [self._present[rank.name] for rank in self._ranks]

    def _assign(self) -> list[str | None]:
        """Returns the host of each rank: its last one, or one on standby with as many devices; None for no host."""
        check_held(self._lock)
        assigned = {rank.name for rank in self._ranks}
        standing_by = [name for name in self._present if name not in assigned]
        standing_by.sort(key=lambda name: not self._present[name].hello.devices)  # those of a known number first
        names: list[str | None] = []
        for rank in self._ranks:
            is_present = rank.name in self._present
            name = rank.name if is_present else next((n for n in standing_by if self._fits(n, rank)), None)
            if name in standing_by:
                standing_by.remove(name)
            names.append(name)
        free = self._settings.hosts - len(names)
        return [*names, *standing_by[:free], *[None] * (free - len(standing_by))]

    def _fits(self, name: str, rank: _Rank) -> bool:
        devices = self._present[name].hello.devices
        return not devices or not rank.device_count or devices == rank.device_count

    def check_devices(self, ready: link_pb2.Ready) -> str | None:
        """Records the number of devices of each process; refuses a host whose number has changed.

        Returns:
            The reason for the refusal; None if there was none.
        """
        counts = [0] * len(self._ranks)
        for device in ready.devices:
            counts[device.process_index] += 1
        with self._changed:
            for rank, count in zip(self._ranks, counts, strict=True):
                if rank.device_count not in {0, count}:
                    wrong, reason = rank.name, f"{count} devices and its rank had {rank.device_count}"
                    break
            else:
                is_first = not any(rank.device_count for rank in self._ranks)
                for rank, count in zip(self._ranks, counts, strict=True):
                    rank.device_count = count
                if is_first and len(set(counts)) > 1:
                    devices = {rank.name: rank.device_count for rank in self._ranks}
                    structlog.get_logger().warning("the hosts have unequal numbers of devices", devices=devices)
                return None
            host = self._present.get(wrong)
        message = f"host {wrong} has {reason} when the mesh was formed"
        if host is not None:
            self._refuse(host, f"{message}; give it as many, or restart the server to change the mesh")
        return message

    def tick(self, passed_s: float) -> None:
        """Removes hosts that were silent for too long; time is counted by ticks, as by the watchdog."""
        for host in list(self._present.values()):
            heard, silent_s = self._silent.get(host, (-1, 0.0))
            silent_s = silent_s + passed_s if heard == host.activity else 0.0
            self._silent[host] = host.activity, silent_s
            if silent_s > self._settings.host_silence_s:
                self.remove(host, f"it was silent for {silent_s:.0f} s")
        for gone in self._silent.keys() - set(self._present.values()):
            del self._silent[gone]

    def missing(self) -> str:
        """Returns the names of missing hosts, as text; empty if none is missing."""
        with self._changed:
            return self._missing()

    def _missing(self) -> str:
        check_held(self._lock)
        now, names = time.monotonic(), self._assign()
        gone = [
            f"{rank.name} (gone for {now - rank.since:.0f} s: {rank.reason})"
            for rank, name in zip(self._ranks, names, strict=False)
            if name is None
        ]
        others = names.count(None) - len(gone)
        return ", ".join([*gone, *([f"{others} that never joined"] if others else [])])

    def states(self) -> list[server_info_service_pb2.HostState]:
        """Returns the hosts of the mesh, in the order of their ranks, and then those on standby."""
        with self._changed:
            ranks = list(self._ranks)
            present = dict(self._present)
        now = time.monotonic()
        states = [
            server_info_service_pb2.HostState(
                name=rank.name,
                present=False,
                process_index=i,
                device_count=rank.device_count,
                absent_seconds=now - rank.since if rank.since else 0.0,
                absent_reason=rank.reason if rank.since else "",
            )
            for i, rank in enumerate(ranks)
        ]
        for state in states:
            if (host := present.get(state.name)) is not None:
                state.present, state.address = True, host.hello.address
                if (worker := host.worker) is not None:
                    state.sent_bytes = worker.relayed.sent_bytes
                    state.received_bytes = worker.relayed.received_bytes
        names = {rank.name for rank in ranks}
        return states + [
            server_info_service_pb2.HostState(name=name, present=True, process_index=-1, address=host.hello.address)
            for name, host in present.items()
            if name not in names
        ]

    def start_spares(self) -> None:
        """Does nothing: agents start their spares themselves."""

    def close(self) -> None:
        """Removes all hosts and accepts no more."""
        with self._changed:
            self._closed = True
            present = list(self._present.values())
            self._changed.notify_all()
        for host in present:
            self.remove(host, "the server is shutting down")


def starts_of_hosts(start: link_pb2.Start, workers: Sequence[Worker]) -> list[link_pb2.Start]:
    """Returns the `Start` message of each worker of a mesh of several hosts.

    Args:
        start: the fields that are the same for all of them.
        workers: the workers that `Hosts.acquire` returned.
    """
    hosted = [worker for worker in workers if isinstance(worker, HostedWorker)]
    first = hosted[0]
    starts = []
    for i, worker in enumerate(hosted):
        worker_start = link_pb2.Start()
        worker_start.CopyFrom(start)
        worker_start.virtual_devices = worker.devices
        worker_start.process.index, worker_start.process.count = i, len(hosted)
        worker_start.process.coordinator = f"{bracket(first.address)}:{first.started.free_port}"
        worker_start.process.address = worker.address
        if worker.data_link is not None:
            worker_start.program_dir = ""  # the agent knows where, on its host
        starts.append(worker_start)
    return starts
