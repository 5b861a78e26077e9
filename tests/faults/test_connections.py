"""Connections that send nothing, too much or nonsense, while a client beside them computes correctly."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import grpc
import numpy as np
import pytest
from end_to_end.messages import open_channel, token_of
from end_to_end.processes import X, wait_for
from faults import raw_connections as raw
from faults.callers import beside_a_canary
from faults.gauges import MIB
from servers import ServerProcess

import shardcall as sc
from shardcall_core.wire import token_file
from shardcall_server.settings import Settings

PLAN = "/shardcall.v1.KernelService/Plan"
CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"
_BEGUN = 400  # far more than there are threads and entries in the queue for them


@pytest.fixture
def unharmed(exclusive_server: ServerProcess, figure: Callable[[str], None]) -> Iterator[ServerProcess]:
    with beside_a_canary(exclusive_server, figure):
        yield exclusive_server


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
