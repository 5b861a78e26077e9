"""The profile `cluster`: four containers as one mesh, and calls during the loss of one of them."""

import json
import re
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from project.compose import Project, check_has_no_rights, isolated_project, waited
from project.conftest import Require, Run

pytestmark = [pytest.mark.docker, pytest.mark.long]

FRONT_END = "front-end"
WORKERS = ("worker-1", "worker-2", "worker-3", "worker-4")
HEALTHY_S = 180
HANGS_S = 120.0  # none of the calls may take that long, whatever the machine is doing
LISTENS = "0A"
MESH_ENDED = "the mesh ended"
DOCKER_DNS = "127.0.0.11"
EVERYWHERE = "0.0.0.0"

State = dict[str, Any]


@dataclass
class Cluster:
    """The containers, by their services' names."""

    project: Project
    ids: dict[str, str]
    client: str

    def inspect(self, service: str) -> State:
        return self.project.inspect(self.ids[service])

    def docker(self, *command: str) -> None:
        self.project.run("docker", *command)

    def of_client(self, code: str) -> str:
        """Returns the output of code in a container that has the front end's name, its authority and a token."""
        return str(
            self.project.run("docker", "exec", self.client, "python", "-c", READ_TOKEN + code, timeout_s=HANGS_S)
        )

    def network(self, service: str) -> str:
        """The name of the hosts' network, by which a service's container is one."""
        (name,) = (name for name in self.inspect(service)["NetworkSettings"]["Networks"] if name.endswith("_hosts"))
        return str(name)

    def ends_since(self, begin: float) -> list[float]:
        """The time at which the front end logged the end of the mesh, in seconds since 1970."""
        lines = self.project.run("docker", "logs", "--since", f"{begin:.3f}", self.ids[FRONT_END]).splitlines()
        ended = [json.loads(line)["timestamp"] for line in lines if line.startswith("{") and MESH_ENDED in line]
        times = [datetime.fromisoformat(timestamp).timestamp() for timestamp in ended]
        return [at for at in times if at > begin]

    def logs(self) -> str:
        return self.project("logs", "--tail", "50")

    def wait_mesh_ends(self, begin: float) -> float:
        return waited("noticed", HANGS_S, lambda: self.ends_since(begin), self.logs)[0]

    def wait_healthy(self) -> None:
        def is_healthy() -> bool:
            return self.inspect(FRONT_END)["State"]["Health"]["Status"] == "healthy"

        waited("healthy", HEALTHY_S, is_healthy, self.logs)


DEMO = "/app/examples/cluster_demo.py"
READ_TOKEN = "import os; os.environ['SHARDCALL_TOKEN'] = open('/trust/client/token').read().strip()\n"


@pytest.fixture(scope="module")
def started(run: Run, root: Path, require: Require) -> Iterator[Cluster]:
    client = f"shardcall-test-client-{secrets.token_hex(4)}"
    with isolated_project(run, root, require, "cluster") as project:
        project("up", "--detach", FRONT_END, *WORKERS)
        cluster = Cluster(project, {name: project.identity(name) for name in (FRONT_END, *WORKERS)}, client)
        cluster.wait_healthy()
        project("run", "--detach", "--no-deps", "--name", client, "--entrypoint", "sleep", "cluster-demo", "infinity")
        try:
            yield cluster
        finally:
            run("docker", "rm", "--force", client)


@pytest.fixture
def cluster(started: Cluster) -> Cluster:
    started.wait_healthy()
    return started


@pytest.fixture(scope="module")
def demonstration(started: Cluster) -> str:
    return started.of_client(
        "import runpy, sys; sys.argv[1:] = ['front-end:8470']; runpy.run_path('" + DEMO + "', run_name='__main__')"
    )


def test_the_demonstration_gets_what_numpy_computes(demonstration: str) -> None:
    assert "8 cpu devices on 4 hosts" in demonstration
    assert "result equals np.diff, bit for bit" in demonstration
    held = dict(re.findall(r"(worker-\d) +holds rows (\S+ and \S+)", demonstration))
    assert set(held) == set(WORKERS)
    assert sorted(held.values()) == sorted(f"{a}:{a + 512} and {a + 512}:{a + 1024}" for a in range(0, 4096, 1024))


def test_a_client_reaches_no_worker(cluster: Cluster) -> None:
    code = f"""
import socket
from concurrent.futures import ThreadPoolExecutor

def find(name):
    try:
        return f"{{name}} is {{socket.gethostbyname(name)}}"
    except OSError:
        return f"{{name}} is nowhere"

names = ["{FRONT_END}", *{WORKERS!r}]
print(*ThreadPoolExecutor(len(names)).map(find, names), sep="\\n")
"""
    said = cluster.of_client(code).splitlines()
    assert not said[0].endswith("nowhere")
    assert said[1:] == [f"{worker} is nowhere" for worker in WORKERS]


def test_a_clients_token_does_not_make_it_a_host(cluster: Cluster) -> None:
    code = """
import subprocess
joined = ["shardcall", "worker", "--join", "front-end:8471", "--devices", "2", "--cache-dir", ""]
print(subprocess.run(joined, capture_output=True, text=True, timeout=60).stderr)
"""
    assert "needs the scope host" in cluster.of_client(code)


@pytest.mark.parametrize("service", [FRONT_END, "worker-1"])
def test_neither_has_any_rights(cluster: Cluster, service: str) -> None:
    check_has_no_rights(cluster.project.python(service, "print(open('/proc/self/status').read())"))
    state = cluster.inspect(service)["HostConfig"]
    assert state["ReadonlyRootfs"]
    assert state["Memory"] > 0
    assert 0 < state["NanoCpus"] <= 2e9
    assert not state["PortBindings"]


def test_every_service_has_the_secrets_that_it_needs_and_no_others(cluster: Cluster) -> None:
    snapshot = "import os; print({f: sorted(os.listdir('/trust/' + f)) for f in sorted(os.listdir('/trust'))})"
    nothing: dict[str, list[str]] = {"authority": [], "client": [], "hosts": [], "server": [], "tokens": []}
    of_front_end = {**nothing, "server": ["ca.pem", "server.key", "server.pem"], "tokens": ["admin-token", "token"]}
    assert str(of_front_end) in cluster.project.python(FRONT_END, snapshot)
    assert str({**nothing, "hosts": ["ca.pem", "token"]}) in cluster.project.python("worker-1", snapshot)


def listening(cluster: Cluster, service: str) -> list[tuple[str, int]]:
    """The addresses and ports of TCP at which a container's processes listen."""
    read = "print(open('/proc/net/tcp').read() + open('/proc/net/tcp6').read())"
    entries = []
    for line in cluster.project.python(service, read).splitlines():
        fields = line.split()
        if len(fields) > 3 and fields[3] == LISTENS:
            address, port = fields[1].split(":")
            assert len(address) == 8, f"it listens at an address of IPv6: {line}"
            dotted = ".".join(str(byte) for byte in reversed(bytes.fromhex(address)))
            entries.append((dotted, int(port, 16)))
    return sorted((address, port) for address, port in entries if address != DOCKER_DNS)


def test_only_what_security_says_listens(cluster: Cluster, demonstration: str) -> None:
    hosts = re.findall(r"process (\d)  (worker-\d) +(\S+)", demonstration)
    assert len(hosts) == len(WORKERS)
    assert listening(cluster, FRONT_END) == [(EVERYWHERE, 8470), (EVERYWHERE, 8471)]
    for process, service, address in hosts:
        entries = listening(cluster, service)
        assert {at for at, _ in entries} == {address}
        assert len(entries) == (2 if process == "0" else 1), "gloo's, and of process 0 the coordinator's"


def kill(cluster: Cluster, worker: str) -> Callable[[], None]:
    """Kills a container from inside, since one ended by `docker kill` is not restarted; returns how to restore it."""
    before = cluster.inspect(worker)["RestartCount"]
    cluster.project.try_in(worker, "sh", "-c", "kill -s KILL -- -1")

    def wait() -> None:
        waited("started again", HANGS_S, lambda: cluster.inspect(worker)["RestartCount"] > before, cluster.logs)

    return wait


def pause(cluster: Cluster, worker: str) -> Callable[[], None]:
    for attempt in range(5):
        try:
            cluster.docker("pause", cluster.ids[worker])
            break
        except AssertionError as error:  # the system could not freeze the processes at that moment
            if attempt == 4 or "unable to freeze" not in str(error):
                raise
            time.sleep(1)
    return lambda: cluster.docker("unpause", cluster.ids[worker])


def disconnect(cluster: Cluster, worker: str) -> Callable[[], None]:
    network = cluster.network(worker)
    cluster.docker("network", "disconnect", network, cluster.ids[worker])
    return lambda: cluster.docker("network", "connect", "--alias", worker, network, cluster.ids[worker])


def slow_down(cluster: Cluster, worker: str) -> Callable[[], None]:
    cluster.docker("update", "--cpus", "0.01", cluster.ids[worker])
    return lambda: cluster.docker("update", "--cpus", "2", cluster.ids[worker])


FAULTS = {"killed": kill, "frozen": pause, "unreachable": disconnect, "slow": slow_down}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_lost_worker_is_noticed_and_comes_back(
    cluster: Cluster, fault: str, record_property: Callable[[str, object], None]
) -> None:
    front_end = cluster.inspect(FRONT_END)["State"]["StartedAt"]
    code = READ_TOKEN + Path(__file__).with_name("cluster_load.py").read_text()
    command = ["docker", "exec", "--interactive", cluster.client, "python", "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as load:
        try:
            assert load.stdout is not None
            assert load.stdout.readline() == "begun\n"
            begin = time.time()
            bring_back = FAULTS[fault](cluster, WORKERS[1])
            noticed_s = cluster.wait_mesh_ends(begin) - begin
            bring_back()
            seen = json.loads(load.communicate("over\n", timeout=2 * HANGS_S)[0])
        finally:
            load.kill()
    assert {*seen["outcomes"]} <= {"", "MeshRestartedError"}
    assert seen["longest_s"] < HANGS_S
    assert seen["is_connected_still"], "the client had to connect again"
    assert seen["hosts"] == dict.fromkeys(WORKERS, True)
    state = cluster.inspect(FRONT_END)
    assert (state["State"]["StartedAt"], state["RestartCount"]) == (front_end, 0)
    figure = f"cluster, a worker {fault}: noticed after {noticed_s:.1f} s, answers again after {seen['back_s']:.1f} s"
    record_property("figure", figure)
