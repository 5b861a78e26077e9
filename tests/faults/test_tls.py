"""TLS against clients that must be refused, and certificates that change under load."""

from __future__ import annotations

import contextlib
import datetime
import json
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from servers import ServerProcess, running_server

import shardcall as sc
from shardcall import aio
from shardcall.cli import client_checks
from shardcall_core.access.addresses import parse_address
from shardcall_core.access.tls import Tls
from shardcall_server.certificate_authority import make_authority, renew

VALUES = np.arange(12.0)


@dataclass(frozen=True)
class Trust:
    """A folder of `shardcall certificates`."""

    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def serving(self) -> list[str]:
        return ["--tls-cert", str(self.folder / "server.pem"), "--tls-key", str(self.folder / "server.key")]

    @property
    def client_files(self) -> dict[str, Path]:
        return {"client_certificate": self.folder / "client.pem", "client_key": self.folder / "client.key"}

    def replace(self, role: str, days: tuple[int, int], *names: str) -> None:
        """Replaces a certificate by one that is valid between two days from now, for other names."""
        authority = x509.load_pem_x509_certificate(self.authority.read_bytes())
        signer = serialization.load_pem_private_key((self.folder / "ca.key").read_bytes(), None)
        key = serialization.load_pem_private_key((self.folder / f"{role}.key").read_bytes(), None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        begins, ends = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(day) for day in days)
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, role)])
        builder = x509.CertificateBuilder(authority.subject, subject, key.public_key())
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(begins).not_valid_after(ends)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(list(map(x509.DNSName, names))), False)
        certificate = builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        (self.folder / f"{role}.pem").write_bytes(certificate)

    def serial(self) -> int:
        return x509.load_pem_x509_certificate((self.folder / "server.pem").read_bytes()).serial_number


def make_trust(folder: Path) -> Trust:
    make_authority(folder, ["example.test"], 30)
    return Trust(folder)


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(tmp_path_factory.mktemp("tls") / "trust")


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    """Another authority and its certificates."""
    return make_trust(tmp_path_factory.mktemp("tls") / "strangers")


@pytest.fixture(scope="module")
def unix_socket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("socket") / "server.sock"


@pytest.fixture(scope="module")
def mutual(trust: Trust) -> Iterator[ServerProcess]:
    """A server that admits only clients with a certificate."""
    flags = (*trust.serving, "--tls-client-ca", str(trust.authority))
    with running_server(*flags, devices=1, why="it asks for certificates") as running:
        yield running


@dataclass(frozen=True)
class ChangingServer:
    """A server whose certificate changes, the certificate's folder, and the server's log."""

    server: ServerProcess
    trust: Trust
    log: Path

    def count_logged(self, what: str) -> int:
        """Counts a text in the log."""
        return self.log.read_text().count(what)


@pytest.fixture(scope="module")
def changing(trust: Trust, unix_socket: Path) -> Iterator[ChangingServer]:
    log = unix_socket.with_name("log")
    flags = (*trust.serving, "--unix-socket", str(unix_socket))
    with running_server(*flags, devices=1, log=log, why="it speaks TLS") as running:
        yield ChangingServer(running, trust, log)


@pytest.fixture
def encrypted(changing: ChangingServer) -> ServerProcess:
    """A server whose current certificate is valid."""
    return changing.server


def computes_rightly(client: sc.Client) -> bool:
    return np.array_equal(client.diff(VALUES).array, np.diff(VALUES))


def refusal(address: str, **arguments: object) -> str:
    with pytest.raises(sc.ServerUnavailableError) as caught:
        sc.connect(address, **arguments)  # type: ignore[arg-type]
    return str(caught.value)


def port_of(server: ServerProcess) -> int:
    return int(server.address.rpartition(":")[2])


def served_serial(server: ServerProcess) -> int:
    pem = ssl.get_server_certificate(("127.0.0.1", port_of(server)), timeout=30)
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_a_client_that_trusts_the_authority_gets_in(encrypted, trust, host):
    if host == "[::1]" and not socket.has_ipv6:
        pytest.skip("needs IPv6")
    with sc.connect(f"{host}:{port_of(encrypted)}", ca_certificate=trust.authority) as client:
        assert computes_rightly(client)


def test_the_certificate_may_be_bytes_or_come_from_the_environment(encrypted, trust, monkeypatch):
    with sc.connect(encrypted.address, ca_certificate=trust.authority.read_bytes()) as client:
        assert computes_rightly(client)
    monkeypatch.setenv("SHARDCALL_CA_CERTIFICATE", str(trust.authority))
    with sc.connect(encrypted.address) as client:
        assert computes_rightly(client)


def test_memory_is_shared_beside_tls_too(encrypted, trust):
    x = np.random.default_rng(0).standard_normal((512, 512))
    with sc.connect(encrypted.address, ca_certificate=trust.authority) as client:
        result = client.diff(x, axis=0)
        assert np.array_equal(result.array, np.diff(x, axis=0))
        assert client.usage().segments > 0


async def connect_awaited(address: str, **arguments: object) -> bool:
    async with aio.connect(address, **arguments) as client:  # type: ignore[arg-type]
        return np.array_equal((await client.diff(VALUES)).array, np.diff(VALUES))


def test_awaited_clients_are_encrypted_too(encrypted, trust, mutual):
    import asyncio

    assert asyncio.run(connect_awaited(encrypted.address, ca_certificate=trust.authority))
    assert asyncio.run(connect_awaited(mutual.address, ca_certificate=trust.authority, **trust.client_files))
    with pytest.raises(sc.ServerUnavailableError, match="speaks TLS"):
        asyncio.run(connect_awaited(encrypted.address))


def test_another_authority_is_not_trusted(encrypted, strangers):
    assert "is not by the authority given" in refusal(encrypted.address, ca_certificate=strangers.authority)
    assert "is not by an authority that this system trusts" in refusal(encrypted.address, tls=True)


def test_plain_calls_to_tls_and_tls_calls_to_plain_are_distinguished(encrypted, server, trust):
    assert "speaks TLS; give its authority" in refusal(encrypted.address)
    assert "speaks no TLS" in refusal(server.address, ca_certificate=trust.authority)


def test_clients_without_a_certificate_are_refused_where_one_is_required(mutual, trust, strangers):
    with sc.connect(mutual.address, ca_certificate=trust.authority, **trust.client_files) as client:
        assert computes_rightly(client)
    assert "wants a client certificate" in refusal(mutual.address, ca_certificate=trust.authority)
    assert "refuses this client certificate" in refusal(
        mutual.address, ca_certificate=trust.authority, **strangers.client_files
    )
    assert "speaks TLS" in refusal(mutual.address)
    mixed = {"client_certificate": trust.folder / "client.pem", "client_key": trust.folder / "server.key"}
    assert "made together" in refusal(mutual.address, ca_certificate=trust.authority, **mixed)


def test_expired_certificates_are_refused_on_both_sides(mutual, changing, trust, tmp_path):
    copied = Trust(Path(shutil.copytree(trust.folder, tmp_path / "copy")))
    copied.replace("client", (-9, -1))
    assert "refuses this client certificate" in refusal(
        mutual.address, ca_certificate=trust.authority, **copied.client_files
    )
    valid = (trust.folder / "server.pem").read_bytes()
    trust.replace("server", (-9, -1), "localhost")
    try:
        assert "has expired" in refusal(changing.server.address, ca_certificate=trust.authority)
    finally:
        (trust.folder / "server.pem").write_bytes(valid)
    assert computes_one(changing.server, trust)  # which has read the valid one again


def test_certificates_change_while_clients_stay_and_come(changing):
    server, trust = changing.server, changing.trust
    ended, wrong, calls = threading.Event(), [], 0

    def stay(client: sc.Client) -> None:
        nonlocal calls
        while not ended.is_set():
            calls += 1
            try:
                wrong.extend([] if computes_rightly(client) else ["another result"])
            except sc.ShardcallError as error:
                wrong.append(str(error))

    rotations = 5
    with sc.connect(server.address, ca_certificate=trust.authority) as staying:
        thread = threading.Thread(target=stay, args=[staying])
        thread.start()
        try:
            for _ in range(rotations):
                renew(trust.folder, [], 30)
                with sc.connect(server.address, ca_certificate=trust.authority) as coming:
                    assert computes_rightly(coming)
                assert served_serial(server) == trust.serial()
        finally:
            ended.set()
            thread.join()
    assert not wrong


def test_a_damaged_pair_changes_nothing_and_is_logged_once(changing):
    server, trust, before = changing.server, changing.trust, changing.trust.serial()
    logged = {what: changing.count_logged(what) for what in ("invalid new certificate ignored", "chmod 600")}
    content = (trust.folder / "server.pem").read_bytes()
    key = trust.folder / "server.key"

    def new_clients_get_in() -> bool:
        return all(computes_one(server, trust) and served_serial(server) == before for _ in range(3))

    (trust.folder / "server.pem").write_bytes(content[: len(content) // 2])
    assert new_clients_get_in()
    assert changing.count_logged("invalid new certificate ignored") == logged["invalid new certificate ignored"] + 1
    (trust.folder / "server.pem").write_bytes(content)
    key.chmod(0o644)
    key.write_bytes(key.read_bytes())
    assert new_clients_get_in()
    assert changing.count_logged("chmod 600") == logged["chmod 600"] + 1
    key.chmod(0o600)
    renew(trust.folder, [], 30)
    assert computes_one(server, trust)
    assert served_serial(server) == trust.serial() != before


def computes_one(server: ServerProcess, trust: Trust) -> bool:
    with sc.connect(server.address, ca_certificate=trust.authority) as client:
        return computes_rightly(client)


def test_the_unix_socket_beside_tls_is_plain(encrypted, unix_socket):
    with sc.connect(f"unix:{unix_socket}") as client:
        assert computes_rightly(client)


@pytest.mark.parametrize(("command", "refused"), [("info", 3), ("health", 1), ("status", 3)])
def test_the_command_line_asks_by_tls(
    encrypted, trust, shardcall_command: Callable[..., tuple[int, str]], command, refused
):
    assert shardcall_command(command, encrypted.address, "--ca-certificate", str(trust.authority))[0] == 0
    status, said = shardcall_command(command, encrypted.address)
    assert status == refused
    assert "speaks TLS; give its authority: --ca-certificate ca.pem, or --tls\n" in said


def test_the_command_line_says_in_one_line_why_a_handshake_failed(encrypted, strangers):
    command = [sys.executable, "-m", "shardcall", "health", encrypted.address, "--ca-certificate", strangers.authority]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert re.fullmatch(r"shardcall: the certificate of \S+ is not by the authority given; .*\n", ended.stderr)


@pytest.fixture
def shardcall_command() -> Callable[..., tuple[int, str]]:
    testing = pytest.importorskip("typer.testing")
    from shardcall.cli.app import make_app

    def run(*args: str) -> tuple[int, str]:
        ended = testing.CliRunner().invoke(make_app(), args)
        return ended.exit_code, ended.output

    return run


@pytest.mark.parametrize(
    ("days", "name", "authority", "problem", "fix"),
    [
        ((-2, 9), "localhost", "copy/ca.pem", "", ""),
        ((-2, 9), "localhost", "copy/server.pem", "", ""),
        ((-9, -2), "localhost", "copy/ca.pem", "certificate has expired", "certificates FOLDER --renew"),
        ((-2, 9), "example.test", "copy/ca.pem", "not valid for 'localhost'", "--renew --host localhost"),
        (None, "localhost", "strangers/ca.pem", "local issuer", "--ca-certificate ca.pem"),
    ],
    ids=["right", "the certificate itself is trusted", "expired", "another name", "another authority"],
)
def test_doctor_explains_a_certificate_that_is_refused(days, name, authority, problem, fix, trust, strangers, tmp_path):
    copied = Trust(Path(shutil.copytree(trust.folder, tmp_path / "copy")))
    shutil.copytree(strangers.folder, tmp_path / "strangers")
    if days:
        copied.replace("server", days, name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(copied.folder / "server.pem", copied.folder / "server.key")
    with socket.create_server(("localhost", 0)) as listener, ThreadPoolExecutor(1) as threads:

        def serve():
            with listener.accept()[0] as accepted, contextlib.suppress(OSError):
                context.wrap_socket(accepted, server_side=True).close()

        served = threads.submit(serve)
        (check,) = client_checks.certificates(
            parse_address(f"localhost:{listener.getsockname()[1]}"), Tls((tmp_path / authority).read_bytes())
        )
        served.result(60)
    assert (check.state == "failed", problem in check.detail, fix in check.fix) == (bool(problem), True, True)


def test_doctor_explains_a_server_without_tls(server, trust):
    command = ["doctor", server.address, "--ca-certificate", trust.authority, "--json"]
    ran = subprocess.run(
        [sys.executable, "-m", "shardcall.cli", *command], capture_output=True, check=False, timeout=60
    )
    checks = {check["name"]: check for check in json.loads(ran.stdout)["checks"]}
    assert "does not speak TLS" in checks["certificates"]["detail"]
    assert (checks["server"]["state"], ran.returncode) == ("skipped", 1)
