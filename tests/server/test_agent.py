"""Log messages of an agent that cannot join; tests/faults lets real agents try."""

from types import SimpleNamespace
from typing import Any

import grpc
from structlog.testing import capture_logs

from shardcall_core.access.addresses import parse_address
from shardcall_core.access.tls import Tls
from shardcall_core.access.token import Token
from shardcall_server.agent.agent import Agent, AgentSettings

TOKEN = Token()


def refusal(text: str) -> Any:
    """The error that gRPC raises without a connection."""
    return SimpleNamespace(code=lambda: grpc.StatusCode.UNAVAILABLE, details=lambda: text)


def test_the_reason_of_a_refused_join_is_logged_again_only_when_it_changes_and_an_absent_server_little():
    server = parse_address("server.test:8471")
    agent = Agent(AgentSettings(server, Tls(b"ca"), lambda: TOKEN, "a", "", 1, "", "", False, "info"))
    distrusted, expired = "CERTIFICATE_VERIFY_FAILED: who", "CERTIFICATE_VERIFY_FAILED: certificate has expired"
    with capture_logs() as logs:
        for attempt, details in enumerate([distrusted] * 70 + [expired] * 70 + [distrusted]):
            agent._explain(refusal(details), attempt, TOKEN, joined=False)
        for attempt in range(60):
            agent._explain(refusal("Connection refused"), attempt, TOKEN, joined=False)
    says = ["is not by the authority given", "has expired", "is not by the authority given"]
    assert [line["reason"].partition(";")[0] for line in logs[:3]] == [
        f"the certificate of server.test:8471 {reason}" for reason in says
    ]
    assert [line["log_level"] for line in logs] == ["warning"] * 3 + ["info"] * 2
