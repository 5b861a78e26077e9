"""Connections that send nothing, too much or nonsense, while a client beside them computes correctly."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest
from end_to_end.processes import wait_for
from faults import raw_connections as raw
from faults.canary import Canary
from grpc_reflection.v1alpha import reflection_pb2
from servers import ServerProcess, running_server

import shardcall as sc
from shardcall_core.wire import token_file
from shardcall_server.certificate_authority import make_authority
from shardcall_server.settings import Settings

MIB = 1 << 20
PLAN = "/shardcall.v1.KernelService/Plan"
CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"
REFLECT = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with TLS and short limits for connections."""
    trust = tmp_path_factory.mktemp("tls") / "trust"
    make_authority(trust, [], 30)
    tls = ["--tls-cert", str(trust / "server.pem"), "--tls-key", str(trust / "server.key")]
    limits = ["--max-connections", "150", "--handshake-timeout-s", "2", "--max-connection-idle-s", "2"]
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SHARDCALL_CA_CERTIFICATE", str(trust / "ca.pem"))
        with running_server(*tls, *limits, "--max-streams-per-connection", "5") as running:
            yield running


@pytest.fixture(autouse=True)
def _plain(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only connections to the strict server are encrypted."""
    if "strict" not in request.fixturenames:
        monkeypatch.delenv("SHARDCALL_CA_CERTIFICATE", raising=False)


@pytest.fixture
def unharmed(request: pytest.FixtureRequest, figure: Callable[[str], None]) -> Iterator[ServerProcess]:
    """The server of the test; beside what is done to it a canary computes rightly, and its processes stay."""
    name = "strict" if "strict" in request.fixturenames else "server"
    server: ServerProcess = request.getfixturevalue(name)
    before = server.worker_pids()
    with Canary(server.address) as canary:
        yield server
    canary.check()
    assert server.process.poll() is None
    assert server.worker_pids() == before
    figure(str(canary))


def user_metadata() -> tuple[tuple[str, str], ...]:
    token = token_file.read(os.environ[token_file.FILE_VARIABLE])[0].token
    return (("authorization", f"Bearer {token}"),)


def channel_to(address: str) -> grpc.Channel:
    return grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)])


def status_of(call: Callable[[], object]) -> grpc.StatusCode:
    try:
        call()
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()  # type: ignore[attr-defined]
        return code
    return grpc.StatusCode.OK


def memory_bytes(pid: int, name: str) -> int:
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) << 10


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_a_compressed_bomb_is_refused_before_it_fills_memory(unharmed, full, figure, compression):
    pid = unharmed.process.pid
    with channel_to(unharmed.address) as channel:
        plan = channel.unary_unary(PLAN)

        def send(count: int) -> grpc.StatusCode:
            return status_of(lambda: plan(bytes(count), compression=compression, metadata=user_metadata(), timeout=300))

        largest = 128 if full else 64
        send(5 * MIB)
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # the high-water mark begins anew
        before = memory_bytes(pid, "VmHWM")
        statuses = {send(count * MIB) for count in (8, largest)}
        grown = memory_bytes(pid, "VmHWM") - before
    assert statuses == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert grown < 32 * MIB
    figure(f"bombs of 8 and {largest} MiB made the front end {grown / MIB:.1f} MiB larger")


@pytest.mark.parametrize(
    "metadata",
    [
        (("x-one", "y" * MIB),),
        (("x-one", "y" * (20 << 10)),),
        tuple((f"x-{i}", "y") for i in range(2000)),
    ],
    ids=["1 MiB", "20 KiB", "2000 keys"],
)
def test_huge_metadata_is_refused(unharmed, full, metadata):
    with channel_to(unharmed.address) as channel:
        plan = channel.unary_unary(PLAN)
        status_of(lambda: plan(b"", metadata=user_metadata(), timeout=60))  # from now on it is exempt from the limits
        for _ in range(100 if full else 3):
            assert status_of(lambda: plan(b"", metadata=metadata, timeout=60)) is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_idle_connections_block_no_others(unharmed):
    with raw.connections(unharmed.address, 200, raw.idle_http2()) as sockets:
        with sc.connect(unharmed.address) as client:
            assert client.kernels()
        assert raw.count_open(sockets) == 200


def test_garbage_blocks_no_others(unharmed, times):
    for _ in range(times(1000)):
        with raw.connections(unharmed.address, 1, raw.garbage()) as sockets:
            raw.wait_closed(sockets)


def test_handshakes_that_never_end_are_ended(strict, unharmed, figure):
    """Half of them say nothing, half a half of TLS's hello."""
    with (
        raw.connections(strict.address, 50, b"") as silent,
        raw.connections(strict.address, 50, raw.half_hello()) as begun,
    ):
        with sc.connect(strict.address) as client:
            assert client.kernels()
        took_s = raw.wait_closed([*silent, *begun])
        figure(f"100 handshakes that said no more were closed within {took_s:.1f} s, limit 2 s")


def test_more_connections_than_allowed_are_closed_at_once(strict, unharmed):
    with raw.connections(strict.address, 200, raw.half_hello()) as sockets:
        raw.wait_closed(sockets[180:])
        with pytest.raises(sc.ServerUnavailableError, match="closed the connection at once"):
            sc.connect(strict.address)
        raw.wait_closed(sockets)
    with sc.connect(strict.address) as client:
        assert client.kernels()


def test_a_connection_may_have_so_many_calls_and_so_much_metadata(server):
    received = raw.settings_of(server.address)
    assert received[raw.MAX_CONCURRENT_STREAMS] == Settings.model_fields["max_streams_per_connection"].default
    assert received[raw.MAX_HEADER_LIST_SIZE] == 16 << 10


def test_calls_above_those_of_a_connection_wait_at_the_client(strict):
    x = [float(i) for i in range(50)]
    with sc.connect(strict.address) as client, ThreadPoolExecutor(30) as pool:
        results = list(pool.map(lambda _: client.diff(x).array.tolist(), range(90)))
    assert results == [[1.0] * 49] * 90


def test_calls_that_are_cancelled_at_once_block_no_others(unharmed, times, figure):
    count, metadata = times(10_000), user_metadata()
    with channel_to(unharmed.address) as channel:
        plan = channel.unary_unary(PLAN)
        for _ in range(count):
            plan.future(b"", metadata=metadata).cancel()
        with sc.connect(unharmed.address) as client:
            assert client.kernels()
    figure(f"{count} calls begun and cancelled at once")


def test_connections_that_reset_their_calls_at_once_are_closed(unharmed, figure):
    """Rapid resets (CVE-2023-44487), from clients without a token."""
    with raw.connections(unharmed.address, 4, raw.idle_http2()) as sockets:
        with ThreadPoolExecutor(len(sockets)) as pool:
            counts = list(pool.map(raw.reset_streams, sockets))
        with sc.connect(unharmed.address) as client:
            assert client.kernels()
    figure(f"closed after {sum(counts)} resets on {len(counts)} connections")


def test_calls_of_a_connection_leave_nothing_behind(strict):
    with sc.connect(strict.address) as client:
        for _ in range(100):  # twenty times as many as it may have at once
            assert client.diff([1.0, 3.0]).array.tolist() == [2.0]


def test_an_idle_connection_ends_and_its_client_goes_on(strict, idle_connection):
    with sc.connect(strict.address) as client:
        assert client.kernels()
        raw.wait_closed([idle_connection])  # idle as long as the client's own
        assert client.kernels()


@pytest.fixture
def idle_connection(strict: ServerProcess) -> Iterator[ssl.SSLSocket]:
    """An encrypted connection that never calls."""
    context = ssl.create_default_context(cafile=os.environ["SHARDCALL_CA_CERTIFICATE"])
    context.set_alpn_protocols(["h2"])
    host, port = raw.port_of(strict.address)
    plain = socket.create_connection((host, port), 30)
    with context.wrap_socket(plain, server_hostname=host) as encrypted:
        encrypted.sendall(raw.idle_http2())
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


@pytest.mark.long
def test_questions_that_never_end_take_no_call_s_thread(unharmed, silence, figure):
    asked = reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString()
    with channel_to(unharmed.address) as dialogues, channel_to(unharmed.address) as checks:
        reflect = dialogues.stream_stream(REFLECT)
        half_sent = checks.stream_unary(CHECK)
        calls = [reflect(silence(), metadata=user_metadata()) for _ in range(60)]
        calls += [half_sent.future(silence(), metadata=user_metadata()) for _ in range(60)]
        with sc.connect(unharmed.address) as client:
            assert client.kernels()
        statuses = [call.code() for call in calls]  # all of them end by themselves
    assert grpc.StatusCode.OK not in statuses
    with channel_to(unharmed.address) as channel:
        # Their callers get an answer before their slots are free.
        wait_for(lambda: _lists_services(channel, asked))
        assert channel.unary_unary(CHECK)(b"", timeout=120) == b"\x08\x01"
    figure(f"{len(calls)} questions that never came ended: { {s.name: statuses.count(s) for s in set(statuses)} }")


def test_stalled_health_checks_block_no_others(unharmed, silence, figure):
    with ExitStack() as stack:
        channels = [stack.enter_context(channel_to(unharmed.address)) for _ in range(5)]
        probe = channels.pop().unary_unary(CHECK)
        assert probe(b"", timeout=60) == b"\x08\x01"
        stalled = [channel.stream_unary(CHECK).future(silence()) for channel in channels for _ in range(40)]
        wait_for(lambda: sum(call.done() for call in stalled) >= 96)  # the others hold threads, or wait for one
        assert probe(b"", timeout=60) == b"\x08\x01"
        figure(f"beside {sum(not call.done() for call in stalled)} of {len(stalled)} stalled checks one was answered")


def test_watches_of_the_health_are_limited_by_connection(unharmed):
    with channel_to(unharmed.address) as one, channel_to(unharmed.address) as two:
        watches = [one.unary_stream(WATCH)(b"", metadata=user_metadata()) for _ in range(32)]
        assert {next(watch) for watch in watches} == {b"\x08\x01"}
        more = one.unary_stream(WATCH)(b"", metadata=user_metadata())
        assert status_of(lambda: next(more)) is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert next(two.unary_stream(WATCH)(b"", metadata=user_metadata())) == b"\x08\x01"


@pytest.fixture
def silence() -> Iterator[Callable[[], Iterator[bytes]]]:
    """Makes streams of requests that never have one, until the test has ended."""
    ended = threading.Event()

    def requests() -> Iterator[bytes]:
        ended.wait()
        yield from ()

    yield requests
    ended.set()
