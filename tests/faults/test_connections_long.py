"""Connections to a server with TLS and small limits: handshakes that never end, too many and idle ones."""

import socket
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from end_to_end.processes import wait_for
from faults import raw_connections as raw
from faults.callers import beside_a_canary
from faults.test_connections import CHECK, channel_to, check_sockets, user_metadata
from faults.test_tls import Trust
from grpc_reflection.v1alpha import reflection_pb2
from servers import ServerProcess, running_server

import shardcall as sc

pytestmark = pytest.mark.long

REFLECT = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return Trust.make(tmp_path_factory.mktemp("tls") / "trust")


@pytest.fixture(scope="module")
def strict_server(trust: Trust) -> Iterator[ServerProcess]:
    limits = ("--max-connections", "150", "--handshake-timeout-s", "2", "--max-connection-idle-s", "2")
    flags = (*trust.serving, *limits, "--max-streams-per-connection", "5")
    with running_server(*flags, why="few may connect") as running:
        yield running


@pytest.fixture
def strict(strict_server: ServerProcess, trust: Trust, monkeypatch: pytest.MonkeyPatch) -> ServerProcess:
    """A server with TLS and short limits for connections, whose authority clients find."""
    monkeypatch.setenv("SHARDCALL_CA_CERTIFICATE", str(trust.authority))
    return strict_server


@pytest.fixture
def unharmed(strict: ServerProcess, figure: Callable[[str], None]) -> Iterator[ServerProcess]:
    """The strict server, which is asked over its connections with TLS by a canary."""
    with beside_a_canary(strict, figure):
        yield strict


@pytest.fixture
def unharmed_plain(exclusive_server: ServerProcess, figure: Callable[[str], None]) -> Iterator[ServerProcess]:
    """A server without TLS, with a canary."""
    with beside_a_canary(exclusive_server, figure):
        yield exclusive_server


def test_handshakes_that_never_end_are_ended(strict, unharmed, figure):
    """Half of them say nothing, half a half of TLS's hello."""
    with (
        raw.connections(strict.address, 50, b"") as silent,
        raw.connections(strict.address, 50, raw.HALF_HELLO) as begun,
    ):
        with sc.connect(strict.address) as client:
            assert client.kernels()
        took_s = raw.wait_closed([*silent, *begun])
        figure(f"100 handshakes that said no more were closed within {took_s:.1f} s, limit 2 s")


def test_more_connections_than_allowed_are_closed_at_once(strict, unharmed):
    with raw.connections(strict.address, 200, raw.HALF_HELLO) as sockets:
        raw.wait_closed(sockets[180:])
        with pytest.raises(sc.ServerUnavailableError, match="closed the connection at once"):
            sc.connect(strict.address)
        raw.wait_closed(sockets)
    with sc.connect(strict.address) as client:
        assert client.kernels()


def test_calls_above_those_of_a_connection_wait_at_the_client(strict):
    x = [float(i) for i in range(50)]
    with sc.connect(strict.address) as client, ThreadPoolExecutor(30) as pool:
        results = list(pool.map(lambda _: client.diff(x).array.tolist(), range(90)))
    assert results == [[1.0] * 49] * 90


def test_an_idle_connection_ends_and_its_client_goes_on(strict, idle_connection):
    with sc.connect(strict.address) as client:
        assert client.kernels()
        raw.wait_closed([idle_connection])  # idle as long as the client's own
        assert client.kernels()


@pytest.fixture
def idle_connection(strict: ServerProcess, trust: Trust) -> Iterator[ssl.SSLSocket]:
    """An encrypted connection that never calls."""
    context = ssl.create_default_context(cafile=trust.authority)
    context.set_alpn_protocols(["h2"])
    host, port = raw.port_of(strict.address)
    plain = socket.create_connection((host, port), 30)
    with context.wrap_socket(plain, server_hostname=host) as encrypted:
        encrypted.sendall(raw.IDLE_HTTP2)
        yield encrypted


def _lists_services(channel, asked):
    answers = channel.stream_stream(REFLECT)(iter([asked]), metadata=user_metadata(), timeout=120)
    try:
        (answer,) = map(reflection_pb2.ServerReflectionResponse.FromString, answers)
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.RESOURCE_EXHAUSTED:
            raise
        return False
    assert "shardcall.v1.KernelService" in str(answer)
    return True


def test_questions_that_never_end_take_no_call_s_thread(unharmed_plain, silence, figure):
    asked = reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString()
    with channel_to(unharmed_plain.address) as dialogues, channel_to(unharmed_plain.address) as checks:
        reflect = dialogues.stream_stream(REFLECT)
        half_sent = checks.stream_unary(CHECK)
        calls = [reflect(silence(), metadata=user_metadata()) for _ in range(60)]
        calls += [half_sent.future(silence(), metadata=user_metadata()) for _ in range(60)]
        with sc.connect(unharmed_plain.address) as client:
            assert client.kernels()
        statuses = [call.code() for call in calls]  # all of them end by themselves
    assert grpc.StatusCode.OK not in statuses
    with channel_to(unharmed_plain.address) as channel:
        # Their callers get an answer before their slots are free.
        wait_for(lambda: _lists_services(channel, asked))
        assert channel.unary_unary(CHECK)(b"", timeout=120) == b"\x08\x01"
    figure(f"{len(calls)} questions that never came ended: { {s.name: statuses.count(s) for s in set(statuses)} }")


def test_only_what_was_declared_listens(server_factory, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = ("--metrics-port", "0", "--no-segments", "--unix-socket", "own.sock")
    check_sockets(server_factory(*flags, devices=1, why="it listens elsewhere"), *flags)
