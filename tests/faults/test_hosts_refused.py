"""Admission of hosts to a mesh: hosts that a server accepts, and those that it refuses with a reason."""

import grpc
import pytest
from clusters import Cluster
from end_to_end.messages import token_of
from faults.scripted_agent import ScriptedAgent, hello
from rows import rows
from typer.testing import CliRunner

from shardcall.cli.app import make_app
from shardcall_core.wire import token_file

_INVALID = grpc.StatusCode.INVALID_ARGUMENT
_NO_HELLOS = {
    "nothing": b"",
    "no name": hello(""),
    "a path": hello("../up"),
    "65 letters": hello("n" * 65),
    "two lines": hello("na\nme"),
    "a heartbeat": b"\x12\x00",
    "a chunk": b"\x32\x02\x10\x01",
    "no message": b"\xff\xff\xff\xff",
    "half a message": b"\x0a\x7f" + b"\xff" * 20,
}


def end(waiting: Cluster, token: str, *messages: bytes) -> tuple[grpc.StatusCode, str]:
    """The status with which an agent is refused."""
    with ScriptedAgent(waiting.hosts_address, token, *messages) as agent:
        return agent.end()


@pytest.mark.parametrize("name", [token_file.user_name(), "guest"])
def test_a_host_is_welcome_with_any_token_that_has_the_scope(waiting, name):
    with ScriptedAgent(waiting.hosts_address, token_of(name), hello("welcome")) as agent:
        assert agent.hears() == "welcome"


def test_no_token_a_wrong_one_and_one_without_the_scope_are_refused_and_logged(waiting):
    unauthenticated, denied = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED
    for token, code, why in (
        ("", unauthenticated, "has no token"),
        ("x" * 43, unauthenticated, "is not valid on this server"),
        (token_of("runner"), denied, "host"),
        (token_of("watcher"), denied, "host"),
    ):
        ended = end(waiting, token, hello())
        assert ended[0] is code
        assert why in ended[1]
    assert waiting.log.wait_for(r'"last_method": "Join"[^\n]*"last_reason": "(\w+)"')


@pytest.mark.parametrize("first", _NO_HELLOS.values(), ids=_NO_HELLOS)
def test_what_is_no_hello_is_refused(waiting, user_token, first):
    code, details = end(waiting, user_token, first)
    assert code is _INVALID
    assert "the first message must be a Hello" in details


def test_nonsense_after_the_hello_ends_the_visit_and_nothing_else(waiting, user_token):
    for nonsense in (b"\xff\xff\xff\xff", hello("other"), b"\x2a\x02\xff\xff"):
        with ScriptedAgent(waiting.hosts_address, user_token, hello("talks-nonsense")) as agent:
            assert agent.hears() == "welcome"
            agent.say(nonsense)
            agent.say(b"\x12\x00")
    with ScriptedAgent(waiting.hosts_address, user_token, hello("talks-nonsense")) as agent:
        assert agent.hears() == "welcome"
        agent.say(b"\xff\xff\xff\xff")
        assert agent.end()[0] is _INVALID


@rows(
    ("options", "says"),
    [
        (["--join", "nothing"], "--join is 'nothing'; give host:port, such as server:8471"),
        (["--join", "unix:/tmp/x"], "--join is 'unix:/tmp/x'; give host:port"),
        (["--name", "a b"], "--name is 'a b'; give 1 to 64 letters, digits"),
        (["--log-level", "loud"], "shardcall: --log-level is 'loud'; give debug, info, warning, error\n"),
    ],
)
def test_an_agent_reports_wrong_settings_at_once(monkeypatch, options, says):
    for not_here in ("ensure_environment", "configure_logging"):  # they are for a process of the agent's own
        monkeypatch.setattr(f"shardcall_server.commands.worker.{not_here}", lambda *_: None)
    monkeypatch.setattr("shardcall_server.commands.worker.Agent", None)  # none begins
    ended = CliRunner().invoke(make_app(), ["worker", "--join", "localhost:1", *options])
    assert ended.exit_code == 2, ended.exception
    assert says in ended.output
