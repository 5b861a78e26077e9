"""The containers: an unprivileged server that answers, drains, restarts and is scraped; and its demonstration."""

import json
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from project.compose import Project, isolated_project, waited
from project.conftest import Require, Run

import shardcall

pytestmark = [pytest.mark.docker, pytest.mark.long]


HEALTHY_TIMEOUT_S = 120

KILL_THE_CHILD_OF_INIT = """
import os, pathlib, signal
for status in pathlib.Path("/proc").glob("[0-9]*/status"):
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
    if int(fields["PPid"]) == 1 and int(fields["Pid"]) != os.getpid():
        os.kill(int(fields["Pid"]), signal.SIGKILL)
"""


@dataclass
class Container:
    """The server's container in a compose project of its own."""

    in_project: Project
    identity: str

    def inspect(self) -> dict[str, Any]:
        return self.in_project.inspect(self.identity)

    def python(self, code: str) -> str:
        return self.in_project.python("server", code)

    def of_client(self, code: str) -> str:
        """Returns the output of code in a container of the demonstration's kind."""
        entry = ("run", "--rm", "-T", "--entrypoint", "python", "demo", "-c", code)
        return self.in_project(*entry, timeout_s=180)

    def wait_for(self, what: str, met: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        def seen() -> dict[str, Any]:
            return state if met(state := self.inspect()) else {}

        return waited(what, HEALTHY_TIMEOUT_S, seen, lambda: self.in_project("logs", "server"))


def is_healthy(state: dict[str, Any]) -> bool:
    return bool(state["State"]["Running"] and state["State"]["Health"]["Status"] == "healthy")


@pytest.fixture(scope="module")
def project(run: Run, root: Path, require: Require) -> Iterator[Container]:
    with isolated_project(run, root, require) as project:
        project("up", "--detach", "server")
        yield Container(project, project.identity("server"))


@pytest.fixture
def server(project: Container) -> Container:
    project.wait_for("healthy", is_healthy)
    return project


def test_the_demonstration_gets_what_numpy_computes(server: Container) -> None:
    said = server.in_project("run", "--rm", "-T", "demo", timeout_s=180)
    assert "result equals np.diff, bit for bit" in said


CONNECT = """
import shardcall
try:
    with shardcall.connect("server:8470", {arguments}) as client:
        print("connected to", len(client.server_info().devices))
except shardcall.ShardcallError as error:
    print(type(error).__name__, error)
"""


CALLERS = {
    "token=open('/trust/client/token').read().strip()": "connected to 8",
    "": "AccessDeniedError the call has no token",
    "token='0123456789abcdef'": "AccessDeniedError the call's token is not valid on this server",
    "tls=False": "ServerUnavailableError the server at server:8470 speaks TLS",
}
WITHOUT_THE_AUTHORITY = "import os; del os.environ['SHARDCALL_CA_CERTIFICATE']\n" + CONNECT.format(arguments="tls=True")


def test_a_caller_needs_the_token_and_tls_and_does_not_trust_what_the_authority_did_not_sign(server: Container) -> None:
    codes = [*(CONNECT.format(arguments=arguments) for arguments in CALLERS), WITHOUT_THE_AUTHORITY]
    said = server.of_client("\n".join(codes)).splitlines()
    expected = [*CALLERS.values(), "is not by an authority that this system trusts"]
    outcomes = [line for line in said if line.startswith(("connected", "AccessDenied", "ServerUnavailable"))]
    assert len(outcomes) == len(expected), said
    for line, text in zip(outcomes, expected, strict=True):
        assert text in line


def test_every_service_has_the_secrets_that_it_needs_and_no_others(server: Container) -> None:
    listing = "import os; print(sorted(os.listdir('/trust/{0}')), oct(os.stat('/trust/{0}').st_mode & 0o777))"
    assert "['ca.pem', 'server.key', 'server.pem'] 0o700" in server.python(listing.format("server"))
    assert "['admin-token', 'token'] 0o700" in server.python(listing.format("tokens"))
    assert "[] 0o700" in server.python(listing.format("authority"))
    of_client = server.of_client("; ".join(map(listing.format, ("client", "server", "tokens"))))
    assert "['ca.pem', 'token'] 0o700\n[] 0o700\n[] 0o700" in of_client


def test_certificates_are_renewed_as_the_server_runs(server: Container) -> None:
    serial = "import ssl; print(ssl.get_server_certificate(('localhost', 8470)))"
    before, started = server.python(serial), server.inspect()["State"]["StartedAt"]
    server.in_project("run", "--rm", "-T", "-e", "RENEW=yes", "init")
    assert server.python(serial) != before
    assert "connected to 8" in server.of_client(
        CONNECT.format(arguments="token=open('/trust/client/token').read().strip()")
    )
    assert server.inspect()["State"]["StartedAt"] == started


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_client_on_this_machine_connects_by_what_client_config_prints(server: Container, host: str) -> None:
    (binding,) = server.inspect()["NetworkSettings"]["Ports"]["8470/tcp"]
    address = f"{host}:{binding['HostPort']}"
    command = ("shardcall", "client-config", "--json", "--address", address)
    config = json.loads(server.in_project("exec", "-T", "server", *command))
    with shardcall.connect(**config, connect_timeout=60) as client:
        assert client.diff([1, 4, 9], mesh=shardcall.Mesh(x=2), spec="x").array.tolist() == [3, 5]


def test_no_network_leads_out_of_the_machine(server: Container) -> None:
    for name in server.inspect()["NetworkSettings"]["Networks"]:
        (network,) = json.loads(server.in_project.run("docker", "network", "inspect", name))
        assert network["Internal"] or network["Options"]["com.docker.network.bridge.enable_ip_masquerade"] == "false"


def test_compiled_programs_are_kept_in_a_volume(server: Container) -> None:
    mounts = {mount["Destination"]: mount["Type"] for mount in server.inspect()["Mounts"]}
    assert mounts["/var/cache/shardcall"] == mounts["/var/lib/shardcall"] == "volume"
    listing = "import os; print(sorted(os.listdir('/var/cache/shardcall')))"
    assert "programs" in server.python(listing)
    assert "Read-only" not in server.in_project("logs", "server")


def test_a_killed_server_comes_back_by_itself(server: Container) -> None:
    before = server.inspect()
    # From inside: a `docker kill` counts as stopped on purpose, and is not restarted.
    server.in_project.try_in("server", "python", "-c", KILL_THE_CHILD_OF_INIT)
    after = server.wait_for(
        "restarted and healthy", lambda state: state["RestartCount"] > before["RestartCount"] and is_healthy(state)
    )
    assert after["State"]["StartedAt"] > before["State"]["StartedAt"]


def test_a_stopped_server_ends_well_within_its_grace(server: Container) -> None:
    server.in_project("stop", "server")
    try:
        stopped = server.inspect()["State"]
    finally:
        server.in_project("start", "server")
    assert stopped["ExitCode"] == 0


SCRAPED_TIMEOUT_S = 180


@pytest.fixture
def monitored(run: Run, root: Path, require: Require) -> Iterator[Project]:
    with isolated_project(run, root, require, "monitoring") as project:
        project("up", "--detach", "server", "prometheus", timeout_s=300)
        yield project


def values_of(address: str, query: str) -> list[str]:
    """Returns the values of the series that Prometheus has for a query."""
    url = f"http://{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return [series["value"][1] for series in json.load(answer)["data"]["result"]]
    except OSError:  # it starts
        return []


def test_prometheus_scrapes_the_server(monitored: Project) -> None:
    record = monitored.inspect(monitored.identity("prometheus"))
    (binding,) = record["NetworkSettings"]["Ports"]["9090/tcp"]
    assert binding["HostIp"] == "127.0.0.1"
    address = f"127.0.0.1:{binding['HostPort']}"

    def is_scraped() -> bool:
        return values_of(address, "shardcall_ready") == ["1"]

    waited("scraped", SCRAPED_TIMEOUT_S, is_scraped, lambda: monitored("logs", "prometheus", "server"))
