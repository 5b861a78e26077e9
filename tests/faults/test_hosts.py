"""Hosts of a mesh that are killed, frozen, cut off or slow, those that leave, and those that take over a rank."""

import functools
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version

import grpc
import numpy as np
import pytest
from clusters import AgentProcess, Cluster, child_pids, running_cluster
from end_to_end.messages import token_of
from end_to_end.processes import X, wait_for
from faults.callers import ENDS_OF_THE_MESH, TIMEOUT_S, Callers, diff, diff_of_one_that_stays, matmul, put_and_get
from faults.cutting_proxy import CuttingProxy
from faults.gauges import Gauges
from faults.raw_connections import established
from faults.scripted_agent import ScriptedAgent, hello
from servers import alive, holds_nothing

import shardcall as sc
from shardcall import P
from shardcall_core.wire import token_file
from shardcall_core.wire.token_file import TOKEN_VARIABLE, user_name
from shardcall_server.frontend.workers.exit_reason import ExitReason
from shardcall_server.frontend.workers.process import WorkerProcess
from shardcall_server.frontend.workers.quarantine import Quarantine
from shardcall_server.frontend.workers.session import MeshSession
from shardcall_worker.v1 import link_pb2

pytestmark = pytest.mark.long

_RUNS_S, _STANDS_S = 0.01, 1.2  # of a worker that gets almost no processor: a hundredth


@dataclass
class Hosts:
    """The hosts of a cluster: each reaches the front end through a proxy of its own.

    Attributes:
        cluster: the server.
        proxies: by the names of the hosts.
        options: of each agent.
    """

    cluster: Cluster
    proxies: dict[str, CuttingProxy] = field(default_factory=dict)
    options: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def start(self, name: str) -> AgentProcess:
        """Starts a host's agent, as a service manager does after an exit."""
        self.cluster.hosts_address = self.proxies[name].address
        # Behind a proxy an agent finds no token by itself.
        token = {TOKEN_VARIABLE: token_of(user_name())}
        return self.cluster.start_agent(name, *self.options[name], environment=token)

    def worker(self, name: str) -> int:
        """The process id of a host's worker."""
        (pid,) = self.cluster.agents[name].worker_pids()
        return pid


@contextmanager
def proxied_cluster(devices_per_host: int, *server_options: str, **hosts: tuple[str, ...]) -> Iterator[Hosts]:
    """A cluster that is ready, and gone afterwards.

    Args:
        devices_per_host: virtual CPU devices of each host.
        *server_options: for ``shardcall serve``.
        **hosts: the options of each agent, by the host's name.
    """
    with ExitStack() as stack:
        cluster = Cluster(len(hosts), server_options, {})
        stack.callback(cluster.end)
        address = cluster.log.wait_for(r'"by": "shardcall worker --join (\S+?)"')[1]
        running = Hosts(cluster)
        for name, options in hosts.items():
            running.proxies[name] = stack.enter_context(CuttingProxy(address))
            running.options[name] = ("--devices", str(devices_per_host), *options)
            running.start(name)
        cluster.wait_ready()
        yield running


@dataclass
class ActiveFault:
    """A fault in progress.

    Attributes:
        mend: the administrator's repair once the fault was noticed; None where the server recovers by itself.
        is_gone: whether the front end is to miss the host before that.
    """

    mend: Callable[[], None] | None = None
    is_gone: bool = False


def kill_worker(hosts: Hosts, name: str) -> ActiveFault:
    os.kill(hosts.worker(name), signal.SIGKILL)
    return ActiveFault()


def kill_agent(hosts: Hosts, name: str) -> ActiveFault:
    """Kills an agent; it is started again as by a service manager."""
    agent = hosts.cluster.agents[name]
    agent.process.kill()

    def start_again() -> None:
        agent.process.wait()
        hosts.start(name)

    return ActiveFault(start_again, is_gone=True)


def freeze_worker(hosts: Hosts, name: str) -> ActiveFault:
    os.kill(hosts.worker(name), signal.SIGSTOP)
    return ActiveFault()


def freeze_host(hosts: Hosts, name: str) -> ActiveFault:
    """Stops an agent and its worker, like a machine or a container that is paused."""
    pids = [hosts.cluster.agents[name].process.pid, hosts.worker(name)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)

    def thaw() -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    return ActiveFault(thaw, is_gone=True)


def lose_host(hosts: Hosts, name: str) -> ActiveFault:
    """Blocks all traffic between an agent and the front end."""
    proxy = hosts.proxies[name]
    proxy.swallow()
    return ActiveFault(proxy.heal, is_gone=True)


def slow_worker(hosts: Hosts, name: str) -> ActiveFault:
    """Leaves a worker almost no processor time until it exits."""
    pid = hosts.worker(name)

    def stop_and_go() -> None:
        with suppress(ProcessLookupError):
            while True:
                os.kill(pid, signal.SIGSTOP)
                time.sleep(_STANDS_S)
                os.kill(pid, signal.SIGCONT)
                time.sleep(_RUNS_S)

    threading.Thread(target=stop_and_go, name="slow", daemon=True).start()
    return ActiveFault()


_ROUNDS = 8
_START_S = 600.0
_LIMITS = ("--host-silence-s", "8", "--worker-silence-s", "3", "--straggler-timeout-s", "5")  # the defaults
_HOSTS = {"h1": (), "h2": ("--no-shared-memory",)}  # the first shares memory with the front end
_MORE_DESCRIPTORS = 24  # connections and memory files that come and go
_LARGE = np.random.default_rng(0).integers(-9, 9, (2048, 2048)).astype(np.float64)
_LONG_CALLS = (  # in the first no worker waits for another; in the second each waits for all
    {"lhs_spec": P("x", None), "rhs_spec": P(), "out_spec": P("x", None)},
    {"lhs_spec": P(None, "x"), "rhs_spec": P("x", None), "out_spec": P()},
)

Fault = Callable[[Hosts, str], ActiveFault]


@functools.cache
def _square() -> np.ndarray:
    return _LARGE @ _LARGE


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with proxied_cluster(2, *_LIMITS, **_HOSTS) as running:
        yield running


@pytest.mark.parametrize(
    "faults",
    [[kill_agent, kill_worker], [freeze_worker, freeze_host], [lose_host], [slow_worker]],
    ids=["killed", "frozen", "unreachable", "slow"],
)
def test_a_fault_is_noticed_and_costs_no_right_answer(hosts, figure, faults):
    front_end, address = hosts.cluster.process.pid, hosts.cluster.address
    with sc.connect(address, shared_memory=False) as watching:  # it keeps no segment
        for how in _LONG_CALLS:  # compiled, so that no fault strikes a compilation instead of a run
            assert _call_for_long(watching, how) == ""
        with Callers().calling(address, [diff, matmul, put_and_get, diff_of_one_that_stays]) as callers:
            wait_for(lambda: len(callers.ended) >= 40)
            before, connected = Gauges.of(front_end, 0), established(address)
            for i in range(_ROUNDS):
                name = [*_HOSTS][(i // len(faults) + 1) % len(_HOSTS)]
                _strike(hosts, watching, callers, faults[i % len(faults)], name, _LONG_CALLS[i // 2 % 2])
                assert callers.wrong == []
            assert established(address) >= connected
        assert callers.wrong == []
        assert hosts.cluster.process.poll() is None
        wait_for(lambda: holds_nothing(watching))
        wait_for(lambda: Gauges.of(front_end, 0).descriptors <= before.descriptors + _MORE_DESCRIPTORS)
    figure(f"{_ROUNDS} faults: {callers}")


def _strike(hosts: Hosts, client: sc.Client, callers: Callers, fault: Fault, name: str, how: dict[str, P]) -> None:
    """Applies a fault to a host under load, until it is over.

    Calls that the mesh had when it ended fail. Those that it had not yet wait for the next, maybe until the host
    is back.
    """
    restarts = client.usage().mesh.restarts
    with ThreadPoolExecutor(1) as pool:
        large = pool.submit(_call_for_long, client, how)
        wait_for(lambda: client.usage().calls >= 3)
        struck_at = time.monotonic()
        struck = fault(hosts, name)
        wait_for(lambda: client.usage().mesh.restarts > restarts)
        seen_at = time.monotonic()
        if struck.is_gone:
            wait_for(lambda: client.usage().mesh.missing.startswith(f"{name} (gone for "))
        if struck.mend is not None:
            struck.mend()
        wait_for(lambda: bool(callers.right(seen_at)))
        wait_for(lambda: callers.all_answered(struck_at))
        assert large.result(TIMEOUT_S) in {"", *ENDS_OF_THE_MESH}
    wait_for(lambda: client.usage().mesh.ready)
    assert client.usage().mesh.missing == ""


def _call_for_long(client: sc.Client, how: dict[str, P]) -> str:
    """Makes a call that occupies every worker for a while; returns the reason of its error."""
    try:
        result = client.matmul(_LARGE, _LARGE, mesh=sc.Mesh(x=4), timeout=TIMEOUT_S, **how).array
    except sc.MeshRestartedError as error:
        return error.reason
    assert np.array_equal(result, _square())
    return ""


def test_nothing_is_left_when_agents_and_front_end_end():
    """Nor of hosts whose worker was restarted, and of one that left."""
    with proxied_cluster(1, *_LIMITS, **_HOSTS) as hosts, sc.connect(hosts.cluster.address) as client:
        for ends, name in enumerate(_HOSTS, 1):
            kill_worker(hosts, name)
            wait_for(lambda ends=ends: client.usage().mesh.restarts >= ends and client.usage().mesh.ready)
        pids = [hosts.cluster.process.pid]
        for agent in hosts.cluster.agents.values():
            pids += [agent.process.pid, *child_pids(agent.process.pid)]
        leaver = hosts.cluster.agents["h2"]
        leaver.process.terminate()
        assert leaver.process.wait(60) == 0
        wait_for(lambda: client.usage().mesh.missing != "")
    wait_for(lambda: not any(map(alive, pids)))


def _works(client: sc.Client) -> None:
    np.testing.assert_array_equal(client.diff(X, axis=0, timeout=_START_S).array, np.diff(X, axis=0))


def test_a_rank_is_kept_for_its_host_and_then_filled_by_a_standby():
    """Usage and the calls that waited for a host report that it left; it comes back with the same devices, or not."""
    with running_cluster(1, 1) as cluster, sc.connect(cluster.address) as client:
        _works(client)
        pids = [cluster.agents["h1"].process.pid, *cluster.agents["h1"].worker_pids()]
        cluster.agents["h1"].process.send_signal(signal.SIGTERM)
        assert cluster.agents["h1"].process.wait(60) == 0
        wait_for(lambda: not any(map(alive, pids)))

        wait_for(lambda: client.usage().mesh.missing.startswith("h1 (gone for "))
        host = client.usage().mesh.hosts[0]
        assert (host.name, host.present, host.device_count) == ("h1", False, 1)
        info = client.server_info()  # and at once
        assert (info.ready, len(info.devices), info.missing[:13]) == (False, 1, "h1 (gone for ")
        assert "NOT READY, waits for h1 (gone for " in str(info)
        assert client.kernels()
        with pytest.raises(sc.DeadlineExceededError, match=r"waiting for the mesh's hosts: h1 \(gone for \d+ s: "):
            client.diff(X, axis=0, timeout=0.5)

        refused = cluster.start_agent("h1", "--devices", "3")
        refused.log.wait_for(r"host h1 has 3 devices and had 1 when the mesh was formed; give --devices 1")
        assert refused.process.wait(60) == 2
        other_jax = hello("h2", devices=1, jax="9.9")
        with ScriptedAgent(cluster.hosts_address, token_of(token_file.user_name()), other_jax) as agent:
            code, details = agent.end()
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert f"has JAX 9.9 (jaxlib {version('jaxlib')}) and the hosts that joined first have" in details

        cluster.start_agent("h1", "--devices", "1")
        _works(client)
        assert client.usage().mesh.missing == ""
        info = client.server_info()
        assert (info.ready, info.missing) == (True, "")

        cluster.start_agent("h2", "--devices", "1").log.wait_for('"joined"')
        wait_for(lambda: len(client.usage().mesh.hosts) == 2)
        assert [(host.name, host.process_index) for host in client.usage().mesh.hosts] == [("h1", 0), ("h2", -1)]
        cluster.agents["h1"].process.kill()
        wait_for(lambda: client.usage().mesh.hosts[0].name == "h2")
        _works(client)
        assert client.usage().mesh.missing == ""


def test_agents_outlast_a_front_end_and_join_the_next():
    """Their workers end with it, without a notification."""
    ports = ("--port", str(_free_port()), "--hosts-port", str(_free_port()))
    with running_cluster(1, 1, *ports, agent_options=["--no-shared-memory"]) as first:
        with sc.connect(first.address) as client:
            _works(client)
        (worker,) = first.worker_pids()["h1"]
        first.process.kill()
        first.process.wait(60)
        wait_for(lambda: not alive(worker))
        assert first.agents["h1"].process.poll() is None
        second = Cluster(1, ports, {})
        try:
            second.wait_ready()
            with sc.connect(second.address) as client:
                _works(client)
                assert [host.name for host in client.usage().mesh.hosts] == ["h1"]
            assert child_pids(first.agents["h1"].process.pid)
        finally:
            second.end()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


def test_a_host_behind_a_slow_line_is_not_behind():
    """Its arrays are in transfer for longer than it may be behind the others, which have theirs already."""
    x = np.random.default_rng(0).standard_normal((6 << 20,))
    mesh = sc.Mesh(x=2)
    straggler = ("--straggler-timeout-s", "3")
    with proxied_cluster(1, *straggler, **_HOSTS) as hosts, sc.connect(hosts.cluster.address) as client:
        _works(client)
        hosts.proxies["h2"].slow_down(4e6)
        with client.put(x, mesh=mesh, spec=P("x"), timeout=_START_S) as kept:
            np.testing.assert_array_equal(kept.get(timeout=_START_S), x)
        assert client.usage().mesh.restarts == 0


def test_a_gap_in_the_commands_ends_the_mesh_with_the_reason():
    session = MeshSession(
        [WorkerProcess("cpu", "info")], [link_pb2.Start(virtual_devices=1, platform="cpu")], Quarantine()
    )
    ended: list[ExitReason] = []
    running = threading.Thread(target=lambda: ended.append(session.run()))
    running.start()
    try:
        session.ready.result(_START_S)
        session.notify(link_pb2.FrontEndMessage(trim=link_pb2.Trim()))
        skipped = link_pb2.FrontEndMessage(sequence=3, trim=link_pb2.Trim())
        session.connections[0].worker.link.send(skipped.SerializeToString())
        running.join(_START_S)
        assert [end.text for end in ended] == ["the workers got out of step: command 3 came after command 1"]
    finally:
        session.connections[0].worker.kill()
        running.join()
