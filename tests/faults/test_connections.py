"""Connections and calls that send nothing, too much or nonsense, beside a client; the addresses of a server."""

import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import grpc
import numpy as np
import pytest
from end_to_end.messages import SMALL_WINDOW, header, open_channel, token_of
from end_to_end.processes import X, left_empty, wait_for
from end_to_end.scraping import log_lines, metrics_url, scrape
from faults import raw_connections as raw
from faults.callers import beside_a_canary
from faults.gauges import MIB
from servers import ServerProcess, running_server

import shardcall as sc
from shardcall.v1 import array_service_pb2, array_service_pb2_grpc, kernel_service_pb2_grpc
from shardcall_core.wire import token_file
from shardcall_core.wire.metadata import authorization
from shardcall_server.certificate_authority import make_authority
from shardcall_server.frontend.access.ports import listen
from shardcall_server.settings import Settings, SettingsError
from shardcall_server.settings_sources import load_settings

PLAN = "/shardcall.v1.KernelService/Plan"
CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"
_BEGUN = 400  # far more than there are threads and entries in the queue for them


@pytest.fixture
def unharmed(exclusive_server: ServerProcess, figure: Callable[[str], None]) -> Iterator[ServerProcess]:
    with beside_a_canary(exclusive_server, figure):
        yield exclusive_server


def user_metadata() -> tuple[tuple[str, str], ...]:
    return authorization(token_of(token_file.user_name()))


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
def test_a_compressed_bomb_is_refused_before_it_fills_memory(unharmed, figure, compression):
    pid = unharmed.process.pid
    with channel_to(unharmed.address) as channel:
        plan = channel.unary_unary(PLAN)

        def send(count: int) -> grpc.StatusCode:
            return status_of(lambda: plan(bytes(count), compression=compression, metadata=user_metadata(), timeout=300))

        largest = 64
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
    [(("x-one", "y" * MIB),), (("x-one", "y" * (20 << 10)),), tuple((f"x-{i}", "y") for i in range(2000))],
    ids=["1 MiB", "20 KiB", "2000 keys"],
)
def test_huge_metadata_is_refused(unharmed, metadata):
    with channel_to(unharmed.address) as channel:
        plan = channel.unary_unary(PLAN)
        status_of(lambda: plan(b"", metadata=user_metadata(), timeout=60))  # from now on it is exempt from the limits
        for _ in range(3):
            assert status_of(lambda: plan(b"", metadata=metadata, timeout=60)) is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_idle_connections_block_no_others(unharmed):
    with raw.connections(unharmed.address, 200, raw.IDLE_HTTP2) as sockets:
        with sc.connect(unharmed.address) as client:
            assert client.kernels()
        assert raw.count_open(sockets) == 200


def test_garbage_blocks_no_others(unharmed):
    for _ in range(20):
        with raw.connections(unharmed.address, 1, raw.garbage()) as sockets:
            raw.wait_closed(sockets)


def test_a_connection_may_have_so_many_calls_and_so_much_metadata(server):
    received = raw.settings_of(server.address)
    assert received[raw.MAX_CONCURRENT_STREAMS] == Settings.model_fields["max_streams_per_connection"].default
    assert received[raw.MAX_HEADER_LIST_SIZE] == 16 << 10


def test_connections_that_reset_their_calls_at_once_are_closed(unharmed, figure):
    """Rapid resets (CVE-2023-44487), from clients without a token."""
    with raw.connections(unharmed.address, 4, raw.IDLE_HTTP2) as sockets:
        with ThreadPoolExecutor(len(sockets)) as pool:
            counts = list(pool.map(raw.reset_streams, sockets))
        with sc.connect(unharmed.address) as client:
            assert client.kernels()
    figure(f"closed after {sum(counts)} resets on {len(counts)} connections")


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


def test_calls_whose_requests_never_come_leave_threads_for_others(exclusive_server, silence):
    """Methods that need no slot are bounded by client while their requests are awaited."""
    with (
        sc.connect(exclusive_server.address, retries=False) as client,
        open_channel(exclusive_server.address, token=token_of("guest")) as it,
    ):
        client.diff(X, axis=0)
        begin = it.stream_unary("/shardcall.v1.KernelService/ListKernels").future
        calls = [begin(silence(), timeout=120) for _ in range(_BEGUN)]
        wait_for(lambda: sum(call.done() for call in calls) > _BEGUN // 2)
        np.testing.assert_array_equal(client.diff(X, axis=0, timeout=30).array, np.diff(X, axis=0))
        assert {call.code() for call in calls if call.done()} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        for call in calls:
            call.cancel()


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("impatient") / "log"


@pytest.fixture(scope="module")
def impatient_server(log: Path) -> Iterator[ServerProcess]:
    with running_server(
        "--stream-idle-s", "1", "--metrics-port", "0", devices=1, log=log, why="it waits for no stalled caller"
    ) as running:
        yield running


@pytest.fixture
def impatient(impatient_server: ServerProcess) -> Iterator[ServerProcess]:
    """A server that waits a second for the next message of a call."""
    with left_empty(impatient_server) as server:
        yield server


def refusals(log: Path) -> float:
    """The number of calls that ended by stalling, on which metrics and log agree."""
    lines = sum(line.get("reason") == "STREAM_IDLE" for line in log_lines(log))
    counted = scrape(metrics_url(log)).total("shardcall_failed_calls_total", reason="STREAM_IDLE")
    return counted if counted == lines else -1.0


STALLS: dict[str, Callable[[grpc.Channel, Callable[..., Iterator[Any]]], object]] = {
    "operand": lambda channel, silence: next(
        kernel_service_pb2_grpc.KernelServiceStub(channel).ExecuteStream(silence(header([1 << 20])), timeout=120)
    ),
    "question": lambda channel, silence: channel.stream_unary("/shardcall.v1.ServerInfoService/GetUsage")(
        silence(), timeout=120
    ),
}


@pytest.mark.parametrize("stall", STALLS.values(), ids=STALLS)
def test_a_caller_that_sends_nothing_gets_an_error(impatient, log, silence, stall):
    before = refusals(log)
    with open_channel(impatient.address) as channel, pytest.raises(grpc.RpcError) as caught:
        stall(channel, silence)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert caught.value.details() == (
        "the caller sent nothing for 1 s, the longest that the server waits; repeat the call, or start the server with "
        "a larger --stream-idle-s (STREAM_IDLE)"
    )
    wait_for(lambda: refusals(log) == before + 1)


def test_a_caller_that_reads_nothing_gets_an_error(impatient, log):
    before = refusals(log)
    with sc.connect(impatient.address) as client, open_channel(impatient.address, SMALL_WINDOW) as channel:
        array = client.put(np.zeros((4096, 1024)))  # 32 MiB: far more than a connection has on its way
        get = array_service_pb2.GetArrayRequest(handle=bytes.fromhex(array.handle))
        stream = array_service_pb2_grpc.ArrayServiceStub(channel).GetArray(get, timeout=120)
        next(stream)
        wait_for(lambda: refusals(log) == before + 1)
        with pytest.raises(grpc.RpcError) as caught:
            list(stream)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert caught.value.details().startswith("the caller took none of the results for 1 s")


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
