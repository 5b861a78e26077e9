"""Processes of agents that a server refuses: they say why, and end or try again."""

import socket
import subprocess
import sys

import grpc
import pytest
from clusters import Cluster
from end_to_end.messages import token_of
from faults.scripted_agent import ScriptedAgent

from shardcall_server.certificate_authority import make_authority

pytestmark = pytest.mark.long


def test_who_says_nothing_is_let_go(waiting, user_token):
    with ScriptedAgent(waiting.hosts_address, user_token) as agent:
        assert agent.end()[0] is grpc.StatusCode.CANCELLED


def test_an_agent_that_is_refused_says_so_and_ends(waiting):
    """It would be refused again; a service manager shows that it failed."""
    for environment, why in [
        ({"SHARDCALL_TOKEN": "x" * 43}, "is not valid on this server"),
        ({"SHARDCALL_TOKEN": token_of("runner")}, "host"),
    ]:
        agent = waiting.start_agent("refused", "--devices", "1", environment=environment)
        agent.log.wait_for(f"shardcall: .*{why}")
        assert agent.process.wait(60) == 2


def test_two_running_agents_with_one_name_do_not_alternate(waiting):
    """Otherwise each would end the other's worker repeatedly. The later one waits, and joins when the other leaves."""
    former = waiting.start_agent("same", "--devices", "1")
    former.log.wait_for('"joined"')
    later = waiting.start_agent("same", "--devices", "1")
    later.log.wait_for("a host same is there already; give every host a --name of its own")
    former.process.terminate()
    assert former.process.wait(60) == 0
    waiting.log.wait_for('"host": "same", "reason": "its agent was stopped"')
    later.log.wait_for('"joined"')
    later.end()


def test_an_agent_says_why_encryption_keeps_it_from_joining(waiting, tmp_path):
    """And the server that they cannot join logs its address as they would write it."""
    for name in ("trust", "strangers"):
        make_authority(tmp_path / name, [], 30)
    files = tmp_path / "trust"
    serving = ("--tls-cert", str(files / "server.pem"), "--tls-key", str(files / "server.key"), "--host", "0.0.0.0")
    encrypted = Cluster(2, serving, {})
    authority = ("--ca-certificate", str(tmp_path / "strangers/ca.pem"))
    try:
        host_name, port = encrypted.log.wait_for(r'"by": "shardcall worker --join (\S+):(\d+)"').groups()
        assert host_name == socket.gethostname()
        encrypted.hosts_address = f"localhost:{port}"
        plain, distrusting = encrypted.start_agent("plain"), encrypted.start_agent("distrusting", *authority)
        plain.log.wait_for(r'"reason": "the server at .* speaks TLS; give its authority: --ca-certificate ca.pem, or')
        distrusting.log.wait_for(r'"reason": "the certificate of .* is not by the authority given; .*"level": "warn')
    finally:
        encrypted.end()
    alone = waiting.start_agent("encrypting", *authority)
    alone.log.wait_for(r'"reason": "the server at .* speaks no TLS; leave out --ca-certificate and --tls, or')
    alone.end()


@pytest.mark.parametrize("address", ["nowhere.invalid", "192.0.2.1"])
def test_a_host_that_cannot_listen_at_its_address_says_so_and_does_not_join(waiting, address):
    agent = waiting.start_agent("elsewhere", "--devices", "1", "--address", address)
    agent.log.wait_for(f'"address": "{address}", "event": "this host cannot listen at its address; trying again"')
    agent.end()
    assert not [line for line in waiting.log.lines if '"elsewhere"' in line]


def test_the_port_for_clients_takes_no_hosts(server):
    command = [sys.executable, "-m", "shardcall.cli", "worker", "--join", server.address, "--devices", "1"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "accepts no hosts; a server started with --hosts accepts them at its --hosts-port" in ended.stderr
