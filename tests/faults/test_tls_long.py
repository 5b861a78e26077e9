"""Certificates for other names, and another authority of clients, which counts from the next connection on."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults.test_tls import Trust, computes_rightly, make_trust, refusal

import shardcall as sc

pytestmark = pytest.mark.long


@pytest.fixture
def private_trust(tmp_path: Path) -> Trust:
    return make_trust(tmp_path / "trust")


def test_a_certificate_for_another_name_is_refused(server_factory, private_trust):
    private_trust.replace("server", (-1, 1), "elsewhere.test")
    server = server_factory(*private_trust.serving, devices=1, why="its certificate is for another name")
    said = refusal(server.address, ca_certificate=private_trust.authority)
    assert "is for other names" in said
    assert "--host 127.0.0.1" in said


def test_another_authority_of_clients_counts_from_the_next_connection_on(server_factory, private_trust, tmp_path):
    strangers = make_trust(tmp_path / "strangers")
    flags = (*private_trust.serving, "--tls-client-ca", str(private_trust.authority))
    server = server_factory(*flags, devices=1, why="it trusts another authority")
    with sc.connect(server.address, ca_certificate=private_trust.authority, **private_trust.client_files) as staying:
        trusted = private_trust.authority.read_bytes()
        private_trust.authority.write_bytes(strangers.authority.read_bytes())
        with sc.connect(server.address, ca_certificate=trusted, **strangers.client_files) as coming:
            assert computes_rightly(coming)
        assert "refuses this client certificate" in refusal(
            server.address, ca_certificate=trusted, **private_trust.client_files
        )
        assert computes_rightly(staying)
