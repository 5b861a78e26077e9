"""Faults of one host of a mesh, each mended as an administrator would mend it."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

from clusters import AgentProcess, Cluster
from end_to_end.messages import token_of
from faults.cutting_proxy import CuttingProxy

from shardcall_core.wire.token_file import TOKEN_VARIABLE, user_name

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

    def agent(self, name: str) -> AgentProcess:
        return self.cluster.agents[name]

    def worker(self, name: str) -> int:
        """The process id of a host's worker."""
        (pid,) = self.agent(name).worker_pids()
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
    agent = hosts.agent(name)
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
    pids = [hosts.agent(name).process.pid, hosts.worker(name)]
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
