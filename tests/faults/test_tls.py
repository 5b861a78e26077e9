"""TLS against clients that must be refused, and certificates that change under load."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import re
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from faults.callers import Callers, small_diff
from servers import ServerProcess, running_server
from typer.testing import CliRunner

import shardcall as sc
from shardcall import aio
from shardcall.cli import client_checks
from shardcall.cli.app import make_app
from shardcall_core.access.addresses import parse_address
from shardcall_core.access.tls import Tls
from shardcall_server.certificate_authority import make_authority, renew

VALUES = np.arange(12.0)


@dataclass(frozen=True)
class Trust:
    """A folder of `shardcall certificates`."""

    folder: Path

    @staticmethod
    def make(folder: Path) -> Trust:
        make_authority(folder, ["example.test"], 30)
        return Trust(folder)

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


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return Trust.make(tmp_path_factory.mktemp("tls") / "trust")


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    """Another authority and its certificates."""
    return Trust.make(tmp_path_factory.mktemp("tls") / "strangers")


@pytest.fixture(scope="module")
def unix_socket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("socket") / "server.sock"


@pytest.fixture(scope="module")
def mutual(trust: Trust) -> Iterator[ServerProcess]:
    """A server that admits only clients with a certificate."""
    flags = (*trust.serving, "--tls-client-ca", str(trust.authority))
    with running_server(*flags, devices=1, why="it asks for certificates") as running:
        yield running


@pytest.fixture(scope="module")
def encrypted(trust: Trust, unix_socket: Path) -> Iterator[ServerProcess]:
    """A server whose certificate changes; each test leaves a valid one."""
    flags = (*trust.serving, "--unix-socket", str(unix_socket))
    with running_server(*flags, devices=1, log=unix_socket.with_name("log"), why="it speaks TLS") as running:
        yield running


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
    said = refusal(mutual.address, ca_certificate=trust.authority, **strangers.client_files)
    assert "refuses this client certificate" in said
    assert "speaks TLS" in refusal(mutual.address)
    mixed = {"client_certificate": trust.folder / "client.pem", "client_key": trust.folder / "server.key"}
    assert "made together" in refusal(mutual.address, ca_certificate=trust.authority, **mixed)


def test_expired_certificates_are_refused_on_both_sides(mutual, encrypted, trust, tmp_path):
    copied = Trust(Path(shutil.copytree(trust.folder, tmp_path / "copy")))
    copied.replace("client", (-9, -1))
    said = refusal(mutual.address, ca_certificate=trust.authority, **copied.client_files)
    assert "refuses this client certificate" in said
    valid = (trust.folder / "server.pem").read_bytes()
    trust.replace("server", (-9, -1), "localhost")
    try:
        assert "has expired" in refusal(encrypted.address, ca_certificate=trust.authority)
    finally:
        (trust.folder / "server.pem").write_bytes(valid)
    assert computes_one(encrypted, trust)  # which has read the valid one again


def test_certificates_change_while_clients_stay_and_come(encrypted, trust):
    options = {"ca_certificate": trust.authority}
    with Callers(frozenset()).calling(encrypted.address, [small_diff] * 2, **options) as staying:
        for _ in range(5):
            renew(trust.folder, [], 30)
            assert computes_one(encrypted, trust)
            assert served_serial(encrypted) == trust.serial()
    assert staying.wrong == []


def test_a_damaged_pair_changes_nothing_and_is_logged_once(encrypted, trust):
    before, certificate, key = trust.serial(), trust.folder / "server.pem", trust.folder / "server.key"
    content = certificate.read_bytes()

    def new_clients_get_in_and_once_is_logged(what: str) -> bool:
        logged = encrypted.log.read_text().count(what)
        admitted = all(computes_one(encrypted, trust) and served_serial(encrypted) == before for _ in range(3))
        return admitted and encrypted.log.read_text().count(what) == logged + 1

    certificate.write_bytes(content[: len(content) // 2])
    assert new_clients_get_in_and_once_is_logged("invalid new certificate ignored")
    certificate.write_bytes(content)
    key.chmod(0o644)
    key.write_bytes(key.read_bytes())
    assert new_clients_get_in_and_once_is_logged("chmod 600")
    key.chmod(0o600)
    renew(trust.folder, [], 30)
    assert computes_one(encrypted, trust)
    assert served_serial(encrypted) == trust.serial() != before


def computes_one(server: ServerProcess, trust: Trust) -> bool:
    with sc.connect(server.address, ca_certificate=trust.authority) as client:
        return computes_rightly(client)


def test_the_unix_socket_beside_tls_is_plain(encrypted, unix_socket):
    with sc.connect(f"unix:{unix_socket}") as client:
        assert computes_rightly(client)


def shardcall_command(*arguments: object) -> tuple[int, str]:
    ended = CliRunner().invoke(make_app(), [*map(str, arguments)])
    return ended.exit_code, ended.output


def test_the_command_line_asks_by_tls_and_says_in_one_line_why_a_handshake_failed(encrypted, trust, strangers):
    for command, refused in (("info", 3), ("health", 1), ("status", 3)):
        assert shardcall_command(command, encrypted.address, "--ca-certificate", trust.authority)[0] == 0
        status, said = shardcall_command(command, encrypted.address)
        assert status == refused
        assert "speaks TLS; give its authority: --ca-certificate ca.pem, or --tls\n" in said
    command = [sys.executable, "-m", "shardcall", "health", encrypted.address, "--ca-certificate", strangers.authority]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert re.fullmatch(r"shardcall: the certificate of \S+ is not by the authority given; .*\n", ended.stderr)


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
    status, said = shardcall_command("doctor", server.address, "--ca-certificate", trust.authority, "--json")
    checks = {check["name"]: check for check in json.loads(said)["checks"]}
    assert "does not speak TLS" in checks["certificates"]["detail"]
    assert (checks["server"]["state"], status) == ("skipped", 1)
