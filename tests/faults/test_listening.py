"""Listening addresses of a server: exactly those that were declared; and addresses that it refuses."""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import MagicMock

import grpc
import numpy as np
import pytest
from faults import raw_connections as raw
from servers import ServerProcess

import shardcall as sc
from shardcall_server.certificate_authority import make_authority
from shardcall_server.frontend.access.ports import listen
from shardcall_server.settings import SettingsError
from shardcall_server.settings_sources import load_settings

SERVING = {"tls_cert": "server.pem", "tls_key": "server.key"}
SEGMENTS = r"unix .*/shardcall-[^/]+/segments"
"""The segment broker, at which clients of the same user get their memory."""
SESSIONS = r"unix .*/shardcall-[^/]+/"
"""The sockets at which tokens of the same user are exchanged, one for each address."""


def all_pids(pid: int) -> list[int]:
    """A process and all its descendants."""
    children: list[int] = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as listed:
            children += map(int, listed.read().split())
    return [pid, *(descendant for child in children for descendant in all_pids(child))]


def test_a_certificate_that_grpc_cannot_serve_is_distinguished_from_a_port(tmp_path):
    make_authority(tmp_path / "trust", [], 30)
    files = {"tls_cert": f"{tmp_path}/trust/ca.pem", "tls_key": f"{tmp_path}/trust/ca.key"}
    with pytest.raises(SettingsError, match=r"--tls-cert is '.*/ca\.pem', which .* --tls-key, .*; use server\.pem"):
        listen(grpc.server(ThreadPoolExecutor(1)), load_settings({"port": 0, **files}))


def check_sockets(server: ServerProcess, *flags: str) -> None:
    """Raises unless a server listens where these flags say and nowhere else."""
    with sc.connect(server.address) as client:
        assert client.diff([1.0, 3.0]).array.tolist() == [2.0]
        sockets = raw.listening(all_pids(server.process.pid))
    port = server.address.rpartition(":")[2]
    declared = [rf"tcp 127\.0\.0\.1:{port}", rf"tcp ::1:{port}"]
    reached = ["localhost", r"127\.0\.0\.1", "::1"]
    declared += [SESSIONS + rf"{host}:{port}" for host in reached]
    declared += [SESSIONS + r"unix:[0-9a-f]{32}"] if "--unix-socket" in flags else []
    declared += [] if "--no-segments" in flags else [SEGMENTS]
    declared += [r"tcp 127\.0\.0\.1:\d+"] if "--metrics-port" in flags else []
    declared += [rf"unix {os.getcwd()}/own\.sock"] if "--unix-socket" in flags else []
    unmatched = sorted(sockets)
    for pattern in declared:
        one = next((socket for socket in unmatched if re.fullmatch(pattern, socket)), None)
        assert one or "::1" in pattern, f"nothing listens at {pattern}: {sockets}"
        unmatched = [socket for socket in unmatched if socket != one]
    assert unmatched == []


def test_only_what_was_declared_listens(server):
    check_sockets(server)


@pytest.mark.parametrize(
    ("flags", "tls", "says"),
    [
        ({}, False, "lacks TLS; use localhost, make certificates"),
        ({"auth": False}, False, "lacks TLS and authentication; use localhost, make"),
        ({"auth": False}, True, "lacks authentication; use localhost, leave out --no-auth, or add"),
        ({"auth": False, "hosts": 2, "tls_client_ca": "/ca.pem"}, True, "lacks authentication of hosts; use localhost"),
    ],
)
def test_other_machines_need_tls_and_a_caller_with_a_token(tmp_path, flags, tls, says):
    if tls:
        make_authority(tmp_path / "trust", [], 30)
        flags = {**flags, "tls_cert": f"{tmp_path}/trust/server.pem", "tls_key": f"{tmp_path}/trust/server.key"}
    server = MagicMock()
    with pytest.raises(SettingsError, match=says):
        listen(server, load_settings({"host": "0.0.0.0", **flags}))
    assert not server.mock_calls, "settings are refused before it listens"


@pytest.mark.parametrize(
    ("files", "flags"),
    [
        (SERVING, {}),
        ({**SERVING, "tls_client_ca": "ca.pem"}, {"auth": False}),
        ({}, {"auth": False, "insecure_allow_remote": True}),
    ],
    ids=["TLS and tokens", "TLS and certificates of clients", "whoever asks for it"],
)
def test_other_machines_are_let_in_by_tls_with_tokens_or_certificates_or_on_request(tmp_path, files, flags):
    make_authority(tmp_path / "trust", [], 30)
    paths = {name: f"{tmp_path}/trust/{file}" for name, file in files.items()}
    server = MagicMock()
    server.add_insecure_port.return_value = server.add_secure_port.return_value = 1
    assert listen(server, load_settings({"host": "0.0.0.0", "port": 0, **paths, **flags})) == "0.0.0.0:1"
    assert server.add_secure_port.called is bool(files)
    assert server.add_insecure_port.called is not bool(files)


def test_a_worker_has_no_connection_to_clients(server):
    """It shares memory with them, and the front end passes on everything else."""
    x = np.arange(float(1 << 20))
    with sc.connect(server.address) as client, sc.connect(server.address, shared_memory=False) as plain:
        for caller in (client, plain):
            np.testing.assert_array_equal(caller.diff(x).array, np.ones(x.size - 1))
        workers = [pid for worker in server.worker_pids() for pid in all_pids(worker)]
        assert workers
        assert raw.sockets(workers) == {"unix"}
        assert "tcp" in raw.sockets([server.process.pid])
