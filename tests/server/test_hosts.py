"""Hosts of a mesh: ranks, refusals, missing hosts, and links of workers; the test stands for the agents."""

import gc
import os
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from end_to_end.processes import wait_for

from shardcall.v1 import server_info_service_pb2
from shardcall_core.versions import build_version
from shardcall_server.frontend.hosts import link_listener as module
from shardcall_server.frontend.hosts.host import Host
from shardcall_server.frontend.hosts.hosted_worker import HostedWorker
from shardcall_server.frontend.hosts.hosts import HostRefusedError, Hosts, NotNowError, starts_of_hosts
from shardcall_server.frontend.hosts.link_listener import LinkListener
from shardcall_server.settings_sources import load_settings
from shardcall_worker.v1 import host_service_pb2, link_pb2

PATIENCE_S = 60.0


def hello(name: str, devices: int = 2, **versions: str) -> host_service_pb2.Hello:
    versions = {"shardcall": build_version(), "jax": "1.0", "jaxlib": "1.0", **versions}
    return host_service_pb2.Hello(name=name, address="127.0.0.1", devices=devices, versions=versions)


class Agent:
    """An agent that starts a worker on request, unless the test says otherwise."""

    def __init__(self, hosts: Hosts, name: str, devices: int = 2, *, starts: bool = True) -> None:
        self.host: Host = hosts.join(hello(name, devices))
        self.starts = starts
        self.messages: list[host_service_pb2.JoinResponse] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        for body in self.host.outgoing():
            message = host_service_pb2.JoinResponse.FromString(body)
            self.messages.append(message)
            if message.HasField("start_worker") and self.starts:
                self.started(message.start_worker.start_id)
            if message.HasField("stop_worker"):
                self.handle(worker_ended={"start_id": message.stop_worker.start_id})

    def handle(self, **message: Any) -> None:
        self.host.handle(host_service_pb2.JoinRequest(**message))

    def started(self, start_id: int, *, is_linked: bool = False) -> None:
        self.handle(worker_started={"start_id": start_id, "pid": 77, "free_port": 5, "is_linked": is_linked})

    def wait_parted(self) -> str:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        return self.host.disconnect_reason

    def asked(self, count: int = 1) -> host_service_pb2.StartWorker:
        """Waits until it was asked to start so many workers; returns the last request."""
        wait_for(lambda: len(self.start_messages) >= count)
        return self.start_messages[-1]

    @property
    def start_messages(self) -> list[host_service_pb2.StartWorker]:
        return [message.start_worker for message in self.messages if message.HasField("start_worker")]


def ready(*counts: int) -> link_pb2.Ready:
    processes = [process for process, count in enumerate(counts) for _ in range(count)]
    devices = [server_info_service_pb2.Device(id=i, process_index=process) for i, process in enumerate(processes)]
    return link_pb2.Ready(devices=devices)


class WorkerAcquisition:
    """The supervisor's use of hosts, on a thread."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self.pool = ThreadPoolExecutor(1)

    def acquire(self) -> Future:
        return self.pool.submit(self.hosts.acquire)

    def names(self, acquired: Future | None = None) -> list[str]:
        """Returns the hosts of the workers that are or were acquired, in the order of their ranks."""
        workers, _ = (acquired or self.acquire()).result(PATIENCE_S)
        return [worker.host for worker in workers]

    def close(self) -> None:
        self.hosts.close()
        self.pool.shutdown()


@pytest.fixture
def changes() -> dict[str, bool]:
    return {}


@pytest.fixture
def hosts(changes) -> Iterator[Hosts]:
    """Two hosts that make a mesh and share no memory with the front end."""
    with closing(Hosts(load_settings({"hosts": 2, "segments": False}), changes.__setitem__)) as registry:
        yield registry


@pytest.fixture
def taking(hosts) -> Iterator[WorkerAcquisition]:
    with closing(WorkerAcquisition(hosts)) as taking_hosts:
        yield taking_hosts


@pytest.fixture
def agents(hosts, taking) -> list[Agent]:
    """The agents of a mesh of the hosts a and b."""
    both = [Agent(hosts, name) for name in "ab"]
    assert taking.names() == ["a", "b"]
    return both


def ranks(hosts: Hosts) -> list[tuple[str, int]]:
    return [(state.name, state.process_index) for state in hosts.states()]


def test_the_mesh_waits_for_enough_hosts_and_has_them_in_the_order_of_their_coming(hosts, taking, changes):
    workers = taking.acquire()
    Agent(hosts, "b")
    assert hosts.missing() == "1 that never joined"
    assert not workers.done()
    Agent(hosts, "a")
    assert taking.names(workers) == ["b", "a"]
    assert hosts.missing() == ""
    assert changes == {"b": True, "a": True}
    assert ranks(hosts) == [("b", 0), ("a", 1)]


def test_a_standby_host_takes_the_rank_of_one_that_is_gone(hosts, taking, agents):
    Agent(hosts, "c")
    assert ranks(hosts) == [("a", 0), ("b", 1), ("c", -1)]
    assert not hosts.spare_ready
    for agent in agents:
        agent.handle(heartbeat={"spare_ready": True})
    assert hosts.spare_ready, "c has none, and no rank"
    hosts.remove(agents[0].host, "gone")
    assert not hosts.spare_ready
    assert hosts.missing() == "", "there are enough"
    assert taking.names() == ["c", "b"]
    Agent(hosts, "a")
    assert taking.names() == ["c", "b"]
    assert ranks(hosts) == [("c", 0), ("b", 1), ("a", -1)]


def test_a_host_without_as_many_devices_takes_no_rank(hosts, taking):
    agents = [Agent(hosts, "a", 4), Agent(hosts, "b", 2)]
    assert taking.names() == ["a", "b"]
    assert hosts.check_devices(ready(4, 2)) is None
    Agent(hosts, "c", 2)
    hosts.remove(agents[0].host, "gone")
    assert hosts.missing() == "a (gone for 0 s: gone)", "c stands by for b alone"
    workers = taking.acquire()
    hosts.remove(agents[1].host, "gone")
    assert hosts.missing() == "a (gone for 0 s: gone)", "c has the rank of b"
    assert not workers.done()
    Agent(hosts, "d", 4)
    assert taking.names(workers) == ["d", "c"]


def test_a_host_whose_name_is_there_is_to_come_again_later(hosts):
    first = Agent(hosts, "a")
    with pytest.raises(NotNowError, match="a host a is there already; give every host a --name of its own"):
        Agent(hosts, "a")
    assert first.host.disconnect_reason == ""
    hosts.remove(first.host, "its connection ended")
    again = Agent(hosts, "a")
    hosts.remove(first.host, "its connection ended")
    assert again.host.disconnect_reason == "", "the end of the former call disconnects no host"
    assert hosts.missing() == "1 that never joined"


def test_of_many_that_join_by_one_name_at_once_one_is_taken(hosts):
    def joined(_: int) -> bool:
        try:
            return bool(hosts.join(hello("a")))
        except NotNowError:
            return False

    with ThreadPoolExecutor(16) as threads:
        assert sum(threads.map(joined, range(64))) == 1


def test_the_worker_of_a_host_that_parts_is_lost_and_says_why(hosts, taking):
    agents = [Agent(hosts, name) for name in "ab"]
    workers, _ = taking.acquire().result(PATIENCE_S)
    hosts.remove(agents[1].host, "its connection ended")
    assert workers[1].ended
    assert workers[1].lost.reason == "host b is gone: its connection ended"
    assert list(workers[1].link.batches()) == []
    assert workers[0].lost is None


def test_hosts_of_other_versions_are_refused_with_the_reason(hosts):
    hosts.join(hello("a"))
    for versions, says in (
        ({"shardcall": "9.9"}, r"host b has shardcall 9\.9 and the server .*; install the same"),
        ({"jax": "2.0"}, r"has JAX 2\.0 \(jaxlib 1\.0\) and the hosts that joined first have 1"),
        ({"jaxlib": "3.0"}, r"jaxlib 3\.0"),
    ):
        with pytest.raises(HostRefusedError, match=says):
            hosts.join(hello("b", **versions))
    assert hosts.missing() == "1 that never joined"


def test_hosts_of_other_device_counts_are_refused_once_the_mesh_was_formed(hosts, taking):
    agents = [Agent(hosts, "a", 2), Agent(hosts, "b", 4)]
    assert taking.names() == ["a", "b"]
    for _ in range(2):
        assert hosts.check_devices(ready(2, 4)) is None
    assert hosts.check_devices(ready(2, 3)) == "host b has 3 devices and its rank had 4 when the mesh was formed"
    assert [state.device_count for state in hosts.states()] == [2, 4]
    hosts.remove(agents[0].host, "gone")
    with pytest.raises(HostRefusedError, match="has 4 devices and had 2 when the mesh was formed; give --devices 2"):
        hosts.join(hello("a", 4))
    with pytest.raises(HostRefusedError, match="c has 3 devices and those of the mesh have 2 or 4"):
        hosts.join(hello("c", 3))
    hosts.join(hello("a", 2))


def test_a_host_that_does_not_say_how_many_devices_it_has_has_those_of_the_mesh(hosts, taking):
    for name in "ab":
        Agent(hosts, name, 0)
    taking.names()
    assert hosts.check_devices(ready(2, 2)) is None
    assert [state.device_count for state in hosts.states()] == [2, 2]


def test_a_host_whose_agent_sends_something_new_is_counted_out(hosts):
    agent = Agent(hosts, "a")
    agent.handle()
    assert agent.wait_parted() == "its agent sent a message of an unknown kind"


def test_a_host_that_is_silent_for_too_long_is_counted_out(hosts):
    silent, heard = Agent(hosts, "a"), Agent(hosts, "b")
    limit_s = load_settings({}).host_silence_s
    for _ in range(int(limit_s) + 1):
        heard.handle(heartbeat={})
        hosts.tick(1.0)
    assert silent.host.disconnect_reason == ""
    hosts.tick(1.0)
    assert silent.wait_parted() == f"it was silent for {limit_s + 1:.0f} s"
    assert heard.host.disconnect_reason == ""
    gone = weakref.ref(silent.host)
    del silent
    hosts.tick(1.0)
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(("leaves", "start_s"), [(True, PATIENCE_S), (False, 1.0)])
def test_a_host_that_starts_no_worker_leaves_and_the_next_takes_its_rank(leaves, start_s):
    hosts = Hosts(load_settings({"hosts": 2, "segments": False}), lambda *_: None, start_s=start_s)
    with closing(hosts), closing(WorkerAcquisition(hosts)) as taking:
        Agent(hosts, "a")
        idle = Agent(hosts, "b", starts=False)
        workers = taking.acquire()
        if leaves:
            start_id = idle.asked().start_id
            hosts.remove(idle.host, "gone")
            idle.started(start_id)
        else:
            assert idle.wait_parted() == "it did not start a worker within 1 s"
        Agent(hosts, "c")
        assert taking.names(workers) == ["a", "c"]


def test_a_worker_that_starts_as_its_host_parts_is_lost_at_once(hosts):
    """In either order: otherwise a worker that is lost without a report would be waited for."""
    for i in range(40):
        agent = Agent(hosts, f"a{i}", starts=False)
        started = agent.host.start_worker(0)
        parting = threading.Thread(target=hosts.remove, args=[agent.host, "gone"])
        start_id = agent.asked().start_id
        parting.start()
        agent.started(start_id)
        parting.join()
        if started.exception(PATIENCE_S) is None:
            assert started.result().ended


def test_starts_and_ends_of_another_time_are_ignored(hosts):
    agent = Agent(hosts, "a", starts=False)
    started = agent.host.start_worker(0)
    agent.started(10**6)
    assert not started.done()
    assert agent.host.worker is None
    agent.started(agent.asked().start_id)
    worker = started.result(PATIENCE_S)
    for start_id, ended in ((10**6, False), (worker.started.start_id, True)):
        agent.handle(worker_ended={"start_id": start_id, "status": -11, "out_of_memory": True})
        assert worker.ended is worker.out_of_memory is ended
    assert worker.terminate() == -11


def test_a_host_whose_worker_does_not_come_by_the_socket_gets_arrays_by_its_call():
    """Otherwise it would be asked repeatedly: another agent's worker is not admitted."""
    hosts = Hosts(load_settings({"hosts": 1}), lambda *_: None)
    agent = Agent(hosts, "a", starts=False)
    first = agent.host.start_worker(0)
    assert agent.asked().socket_path
    agent.started(agent.asked().start_id, is_linked=True)
    assert first.exception(PATIENCE_S) is not None
    agent.starts = True
    worker = agent.host.start_worker(0).result(PATIENCE_S)
    assert agent.asked(2).socket_path == ""
    assert worker.data_link is not None
    hosts.close()


def test_a_closed_registry_refuses_hosts_and_ends_waits(hosts, taking):
    agent = Agent(hosts, "a")
    workers = taking.acquire()
    hosts.close()
    assert agent.wait_parted() == "the server is shutting down"
    with pytest.raises(RuntimeError):
        workers.result(PATIENCE_S)
    with pytest.raises(NotNowError):
        hosts.join(hello("b"))


def test_every_worker_gets_a_rank_and_the_coordinators_address(hosts, taking):
    for name, devices in (("a", 2), ("b", 3)):
        Agent(hosts, name, devices)
    workers, _ = taking.acquire().result(PATIENCE_S)
    assert all(isinstance(worker, HostedWorker) for worker in workers)
    first, second = starts_of_hosts(link_pb2.Start(platform="cpu", program_dir="/here"), workers)
    assert [(start.process.index, start.process.count) for start in (first, second)] == [(0, 2), (1, 2)]
    assert first.process.coordinator == second.process.coordinator == "127.0.0.1:5"
    assert (first.virtual_devices, second.virtual_devices) == (2, 3)
    assert first.program_dir == "", "the agent knows where, on its host"


@pytest.fixture
def link_listener() -> Iterator[LinkListener]:
    opened = LinkListener()
    yield opened
    opened.close()


@pytest.fixture
def child() -> Iterator[int]:
    """A child process of the test, as a worker is a child of its agent."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process.pid
    process.communicate()


def come(link_listener: LinkListener, ticket: bytes) -> socket.socket:
    agent = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    agent.connect(link_listener.path)
    agent.sendall(ticket)
    return agent


def test_the_parent_of_the_worker_gets_in(link_listener, child):
    with come(link_listener, link_listener.ticket) as agent, link_listener.open(child) as link:
        agent.sendall(b"x")
        assert link.recv(1) == b"x"


def test_another_than_the_parent_and_another_ticket_do_not(link_listener, child):
    with come(link_listener, link_listener.ticket), pytest.raises(PermissionError):
        link_listener.open(os.getpid())
    with come(link_listener, bytes(len(link_listener.ticket))), pytest.raises(PermissionError):
        link_listener.open(child)


def test_nor_does_one_that_cannot_be_seen_from_here(link_listener, monkeypatch):
    """From another namespace of processes every process has the number 0, and so does a missing parent."""
    monkeypatch.setattr(module, "peer_of", lambda connection: (0, os.geteuid()))
    with come(link_listener, link_listener.ticket), pytest.raises(PermissionError):
        link_listener.open(2**22 + 1)
