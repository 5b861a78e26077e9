"""Log messages of an agent that cannot join; tests/faults lets real agents try."""

from __future__ import annotations

from dataclasses import dataclass

import grpc
import pytest
from structlog.testing import capture_logs

from shardcall_core.access.addresses import parse_address
from shardcall_core.access.tls import Tls
from shardcall_core.access.token import Token
from shardcall_server.agent.agent import Agent, AgentSettings

TOKEN = Token()


@dataclass(frozen=True)
class Refusal:
    """The error that gRPC raises without a connection."""

    text: str

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return self.text


@pytest.fixture
def agent() -> Agent:
    server = parse_address("server.test:8471")
    return Agent(AgentSettings(server, Tls(b"ca"), lambda: TOKEN, "a", "", 1, "", "", False, "info"))


def test_the_reason_of_a_refused_join_is_logged_again_only_when_it_changes(agent):
    distrusted, expired = "CERTIFICATE_VERIFY_FAILED: who", "CERTIFICATE_VERIFY_FAILED: certificate has expired"
    with capture_logs() as logs:
        for attempt, details in enumerate([distrusted] * 70 + [expired] * 70 + [distrusted]):
            agent._explain(Refusal(details), attempt, TOKEN, joined=False)
    assert [(line["log_level"], line["reason"].partition(";")[0]) for line in logs] == [
        ("warning", "the certificate of server.test:8471 is not by the authority given"),
        ("warning", "the certificate of server.test:8471 has expired"),
        ("warning", "the certificate of server.test:8471 is not by the authority given"),
    ]


def test_waiting_for_an_absent_server_logs_little(agent):
    with capture_logs() as logs:
        for attempt in range(60):
            agent._explain(Refusal("Connection refused"), attempt, TOKEN, joined=False)
    assert [line["log_level"] for line in logs] == ["info", "info"]
