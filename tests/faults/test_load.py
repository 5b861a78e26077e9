"""Far more calls than a server works on at once: none lost, none wrong, and refusals say when to retry."""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import grpc
import numpy as np
import pytest
from end_to_end.messages import EXHAUSTED, chunk, details, execute, header, open_channel, operand, token_of
from end_to_end.processes import X, left_empty, stopped, wait_for
from end_to_end.segments_by_hand import held_segment
from faults.callers import is_quiet, settles
from faults.gauges import MIB
from servers import ServerProcess, running_server

import shardcall as sc
from shardcall.v1 import kernel_service_pb2, kernel_service_pb2_grpc
from shardcall.v1.segment_service_pb2_grpc import SegmentServiceStub

pytestmark = pytest.mark.long

SEPARATE_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]
SMALL = np.arange(6.0)
LARGE = np.arange(float(MIB))  # 8 MiB
DIFFERENCES = bytes(np.ones(MIB - 1).data)


@pytest.fixture(scope="module")
def crowded() -> Iterator[ServerProcess]:
    """A server of two devices, which works on few calls at once."""
    with running_server("--max-concurrent-calls", "16", devices=2, why="it works on few calls") as running:
        yield running


@pytest.fixture(scope="module")
def narrow_server() -> Iterator[ServerProcess]:
    flags = ("--max-concurrent-calls", "8", "--max-launched-calls", "1", "--max-call-bytes", str(MIB))
    with running_server(*flags, devices=1, why="it works on few calls") as running:
        yield running


@pytest.fixture
def narrow(narrow_server: ServerProcess) -> Iterator[ServerProcess]:
    """A server of one device, which works on eight small calls at once and runs them on the mesh one at a time."""
    with left_empty(narrow_server) as server:
        yield server


def is_right(response: object) -> bool:
    assert isinstance(response, kernel_service_pb2.ExecuteResponse)
    return np.frombuffer(response.results[0].inline.data).tolist() == [1.0] * 5


def small(channel: grpc.Channel) -> Callable[[], grpc.Future]:
    stub, request = kernel_service_pb2_grpc.KernelServiceStub(channel), execute(operand(SMALL))
    return partial(stub.Execute.future, request, timeout=600)


def test_a_thousand_threads_of_one_client_with_arrays_of_eight_mib(crowded):
    """The client respects its connection's limits: no call is refused, and nothing is sent twice."""
    calls = 1000
    with sc.connect(crowded.address, shared_memory=False, retries=False) as client, ThreadPoolExecutor(calls) as pool:
        answers = list(pool.map(lambda _: client.diff(LARGE, timeout=600).array, range(calls)))
    assert all(answer.tobytes() == DIFFERENCES for answer in answers)
    settles(crowded)


def test_a_limit_says_whose_it_is_and_what_waiting_is_good_for(narrow, silence):
    with (
        open_channel(narrow.address, SEPARATE_CONNECTION) as channel,
        open_channel(narrow.address, SEPARATE_CONNECTION) as more,
        open_channel(narrow.address, token=token_of("guest")) as others,
    ):
        stub = kernel_service_pb2_grpc.KernelServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            next(stub.ExecuteStream(iter([header([MIB])]), timeout=60))
        assert limit_of(caught.value) == ("CALL_TOO_LARGE", "server:call_too_large", "-1")
        held: list[grpc.Future] = []
        with sc.connect(narrow.address) as client:
            for one, whose, count in ((channel, "connection", 4), (more, "client", 6)):
                stub = kernel_service_pb2_grpc.KernelServiceStub(one)
                held += [stub.ExecuteStream(silence(header([4, 100])), timeout=60) for _ in range(count - len(held))]
                wait_for(lambda count=count: client.usage().calls == count)
                with pytest.raises(grpc.RpcError) as caught:
                    small(one)().result()
                reason, subject, pushback = limit_of(caught.value)
                assert (reason, subject) == ("QUOTA_EXCEEDED", f"client:max_concurrent_calls_per_{whose}")
                assert int(pushback) > 0
        # There is capacity for others.
        assert is_right(small(others)().result())
        for one in held:
            one.cancel()


def test_stalled_uploads_of_two_clients_keep_a_third_from_nothing(narrow, silence):
    with ExitStack() as stack, sc.connect(narrow.address, token=token_of("guest"), retries=False) as third:
        held = []
        for token in ("runner", "runner", "owner"):
            channel = stack.enter_context(open_channel(narrow.address, SEPARATE_CONNECTION, token=token_of(token)))
            stub = kernel_service_pb2_grpc.KernelServiceStub(channel)
            held += [stub.ExecuteStream(silence(header([4, 100])), timeout=60) for _ in range(8)]
        wait_for(lambda: third.usage().calls == 8)  # all upload slots
        for _ in range(3):
            np.testing.assert_array_equal(third.diff(X, axis=0, timeout=60).array, np.diff(X, axis=0))
        stub = kernel_service_pb2_grpc.KernelServiceStub(
            stack.enter_context(open_channel(narrow.address, token=token_of("guest")))
        )
        responses = stub.ExecuteStream(iter([header([4, 100]), chunk(0, 0, 3200)]), timeout=60)
        assert [message.WhichOneof("message") for message in responses] == ["header", "chunk", "timing"]
        assert third.usage().calls == 8


def limit_of(error: grpc.RpcError) -> tuple[str, str, str]:
    """Reason, subject and pushback of a refusal."""
    assert error.code() is EXHAUSTED
    parts = details(error)
    pushback = dict(error.trailing_metadata())["grpc-retry-pushback-ms"]
    assert ("RetryInfo" in parts) == (int(pushback) > 0)
    if "RetryInfo" in parts:
        assert int(pushback) == round(1000 * parts["RetryInfo"].retry_delay.ToTimedelta().total_seconds())
    return parts["ErrorInfo"].reason, parts["QuotaFailure"].violations[0].subject, pushback


def test_the_refusal_arrives_while_every_thread_is_busy(narrow):
    """More calls than threads and waiting slots: all are answered, none by gRPC itself."""
    with open_channel(narrow.address) as channel, sc.connect(narrow.address) as client:
        client.diff(X, axis=0)
        assert is_right(small(channel)().result())
        with stopped(narrow):
            futures = [small(channel)() for _ in range(1500)]
            wait_for(lambda: sum(future.done() for future in futures) >= 1492)
        refused = [error for future in futures if (error := future.exception())]
        for error in refused:
            assert int(limit_of(error)[2]) > 0
        answered = [future.result() for future in futures if not future.exception()]
    assert all(map(is_right, answered))
    assert 1 <= len(answered) <= 8  # half of eight for a connection; more may have come when those were done


def test_calls_that_wait_when_the_mesh_ends_go_to_the_next(narrow):
    with open_channel(narrow.address) as channel, sc.connect(narrow.address) as client:
        assert is_right(small(channel)().result())
        (worker,) = narrow.worker_pids()
        os.kill(worker, signal.SIGSTOP)
        launched = small(channel)()
        wait_for(lambda: client.usage().program_device_bytes > 0)
        waiting = [small(channel)() for _ in range(3)]  # with the first as many as a connection may have
        wait_for(lambda: client.usage().queued_calls == 3)
        os.kill(worker, signal.SIGKILL)
        assert details(launched.exception())["ErrorInfo"].reason == "MESH_RESTARTED"
        assert all(is_right(one.result()) for one in waiting)
        wait_for(lambda: is_quiet(client))


def test_budgets_are_a_principals_whatever_its_connections(server_factory):
    budgets = {"--max-bytes-in-flight": 64 * MIB, "--max-bytes-per-client": 8 * MIB, "--max-call-bytes": 32 * MIB}
    server = server_factory(*(str(part) for flag in budgets.items() for part in flag), why="its budgets are small")
    with (
        open_channel(server.address, token=token_of("owner")) as first,
        open_channel(server.address, token=token_of("owner")) as second,
        open_channel(server.address, token=token_of("guest")) as other,
        held_segment(SegmentServiceStub(first), 6 * MIB),
    ):
        with pytest.raises(grpc.RpcError) as caught, held_segment(SegmentServiceStub(second), 6 * MIB):
            pass
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        with held_segment(SegmentServiceStub(other), 6 * MIB):
            pass
