"""Processes that die or hang, callers that leave, limits that are reached."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest
from end_to_end.messages import header
from grpc_health.v1 import health_pb2, health_pb2_grpc

import shardcall as sc
from shardcall import P
from shardcall.v1 import kernel_pb2, kernel_service_pb2, kernel_service_pb2_grpc

MESH = sc.Mesh(x=8)
LONG = np.ones((3000, 3000))  # 54 GFLOP squared: about a second here
X = np.random.default_rng(0).standard_normal((64, 4))


def until(condition: Callable[[], bool], limit_s: float = 30.0) -> None:
    """Waits for a condition, looking every 2 ms."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "it did not come to pass in time"
        time.sleep(0.002)


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def computing(pid: int) -> Callable[[], bool]:
    """Whether a worker has computed for a while since now: far more than placing operands takes."""
    before = cpu_s(pid)
    return lambda: cpu_s(pid) > before + 0.3


def memory_files(pid: int) -> list[str]:
    """The call regions that a process has open or mapped."""
    opened = [str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink()]
    mapped = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return [name for name in [*opened, *mapped] if "shardcall-call" in name]


def test_the_memory_of_a_call_goes_with_its_answer(own_server):
    server = own_server()
    large = np.ones((1024, 2048))
    with sc.connect(server.address) as client:
        (worker,) = server.worker_pids()
        for mesh in (MESH, sc.Mesh(x=1)):
            client.diff(large, axis=0, mesh=mesh, spec=P("x", None))
            # No further call: an idle server holds nothing of the last one.
            until(lambda: not memory_files(worker), limit_s=5)
            until(lambda: not memory_files(server.process.pid), limit_s=5)


def test_a_worker_killed_in_the_middle_of_a_call_ends_that_call_and_the_next_is_right(own_server):
    server = own_server()
    with sc.connect(server.address) as client, ThreadPoolExecutor(1) as pool:
        client.compile("matmul", sc.Array(LONG.shape, "float64"), sc.Array(LONG.shape, "float64"))
        epoch, (worker,) = client.server_info().epoch, server.worker_pids()
        before_call = cpu_s(worker)
        call = pool.submit(client.matmul, LONG, LONG)
        until(lambda: cpu_s(worker) > before_call + 0.3)
        os.kill(worker, signal.SIGKILL)
        with pytest.raises(sc.MeshRestartedError) as caught:
            call.result(30)
        assert caught.value.reason == "MESH_RESTARTED"
        assert isinstance(caught.value, ConnectionError)
        assert caught.value.timing.total > 0

        result = client.diff(X, axis=0, prepend=0.0, mesh=MESH, spec=P("x", None))
        np.testing.assert_array_equal(result.array, np.diff(X, axis=0, prepend=0.0))
        assert server.process.poll() is None
        assert client.server_info().epoch != epoch
        (successor,) = server.worker_pids()
        assert successor != worker
        assert not alive(worker)
        until(lambda: not memory_files(server.process.pid))
        assert not memory_files(successor)


def test_calls_that_wait_while_the_mesh_restarts_are_answered_by_the_next(own_server):
    server = own_server()
    with sc.connect(server.address) as client:
        for _ in range(3):
            (worker,) = server.worker_pids()
            os.kill(worker, signal.SIGKILL)
            until(lambda worker=worker: worker not in server.worker_pids())  # the front end has noticed
            np.testing.assert_array_equal(client.diff(X, axis=0).array, np.diff(X, axis=0))


def test_health_follows_the_mesh(own_server):
    server = own_server()
    with grpc.insecure_channel(server.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)

        def status(service: str = "shardcall.v1.KernelService") -> int:
            return stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=10).status

        assert status() == status("") == health_pb2.HealthCheckResponse.SERVING
        os.kill(server.worker_pids()[0], signal.SIGKILL)
        until(lambda: status() == health_pb2.HealthCheckResponse.NOT_SERVING)
        until(lambda: status() == health_pb2.HealthCheckResponse.SERVING)


def test_a_stopped_worker_costs_its_callers_their_deadline_and_nobody_a_hang(own_server):
    server = own_server()
    with sc.connect(server.address) as client, ThreadPoolExecutor(12) as pool:
        client.diff(X, axis=0)
        (worker,) = server.worker_pids()
        os.kill(worker, signal.SIGSTOP)
        began = time.monotonic()
        calls = [pool.submit(client.diff, X, axis=0, timeout=1.0) for _ in range(12)]
        for call in calls:
            with pytest.raises(sc.DeadlineExceededError) as caught:
                call.result(10)
            assert "running the kernel" in str(caught.value)
        assert time.monotonic() - began < 2.0
        assert client.server_info().platform == "cpu"  # what needs no mesh is answered meanwhile
        os.kill(worker, signal.SIGCONT)
        np.testing.assert_array_equal(client.diff(X, axis=0).array, np.diff(X, axis=0))


def test_a_front_end_killed_leaves_nothing_behind(own_server):
    server = own_server()
    (worker,) = server.worker_pids()
    with sc.connect(server.address) as client:
        server.process.kill()
        server.process.wait(10)
        until(lambda: not alive(worker), limit_s=10)
        with pytest.raises(sc.ServerUnavailableError):
            client.diff(X, timeout=5)


def test_a_worker_busy_in_a_kernel_ends_with_its_front_end_too(own_server):
    server = own_server()
    with sc.connect(server.address) as client, ThreadPoolExecutor(1) as pool:
        (worker,) = server.worker_pids()
        client.compile("matmul", sc.Array(LONG.shape, "float64"), sc.Array(LONG.shape, "float64"))
        busy = computing(worker)
        call = pool.submit(client.matmul, LONG, LONG)
        until(busy)
        server.process.kill()
        until(lambda: not alive(worker), limit_s=5)
        with pytest.raises(sc.ServerUnavailableError):
            call.result(10)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_a_signal_to_all_processes_drains(own_server, number):
    server = own_server()
    with sc.connect(server.address) as client, ThreadPoolExecutor(1) as pool:
        (worker,) = server.worker_pids()
        client.compile("matmul", sc.Array(LONG.shape, "float64"), sc.Array(LONG.shape, "float64"))
        busy = computing(worker)
        call = pool.submit(client.matmul, LONG, LONG)
        until(busy)
        os.kill(worker, number)
        server.process.send_signal(number)
        assert call.result(30).array[0, 0] == 3000.0
    assert server.process.wait(30) == 0
    assert not alive(worker)


def test_a_second_signal_ends_at_once(own_server):
    server = own_server("--max-concurrent-calls", "1")
    with sc.connect(server.address) as client, ThreadPoolExecutor(1) as pool:
        client.diff(X, axis=0)
        (worker,) = server.worker_pids()
        os.kill(worker, signal.SIGSTOP)
        call = pool.submit(client.diff, X, axis=0, timeout=20)
        until(lambda: _is_busy(client))
        server.process.send_signal(signal.SIGTERM)
        until(lambda: _refuses(client))
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(5) == 128 + signal.SIGTERM
        until(lambda: not alive(worker), limit_s=5)
        with pytest.raises(sc.ServerUnavailableError):
            call.result(10)


def _refuses(client: sc.Client) -> bool:
    try:
        client.kernels(timeout=1.0)
    except (sc.ServerUnavailableError, sc.CallCancelledError):
        return True
    return False


def test_a_call_cancelled_while_it_waits_leaves_at_once_and_holds_nothing(own_server):
    server = own_server("--max-concurrent-calls", "1")
    with sc.connect(server.address) as client, grpc.insecure_channel(server.address) as channel:
        client.diff(X, axis=0)
        (worker,) = server.worker_pids()
        os.kill(worker, signal.SIGSTOP)
        stub = kernel_service_pb2_grpc.KernelServiceStub(channel)
        operand = kernel_service_pb2.Operand(type={"element_type": 15, "shape": [4]}, inline={"data": bytes(32)})
        request = kernel_service_pb2.ExecuteRequest(call=kernel_pb2.KernelCall(kernel="diff"), operands=[operand])
        call = stub.Execute.future(request, timeout=30)
        until(lambda: _is_busy(client))
        call.cancel()
        until(lambda: not _is_busy(client))
        os.kill(worker, signal.SIGCONT)
        np.testing.assert_array_equal(client.diff(X, axis=0).array, np.diff(X, axis=0))


def _is_busy(client: sc.Client) -> bool:
    try:
        client.plan("diff", X, axis=0, timeout=5.0)  # cached: it needs a place, and no mesh
    except sc.ResourceExhaustedError as error:
        return error.reason == "SERVER_BUSY"
    return False


def test_calls_over_the_memory_budget_are_refused_and_it_comes_back(own_server):
    server = own_server("--max-bytes-in-flight", str(16 << 20), "--max-call-bytes", str(16 << 20))
    large = np.ones((512, 2048))  # 8 MiB in, 8 MiB out
    with sc.connect(server.address) as client:
        for _ in range(5):
            np.testing.assert_array_equal(client.diff(large, axis=0).array, np.diff(large, axis=0))
        (worker,) = server.worker_pids()
        os.kill(worker, signal.SIGSTOP)
        with pytest.raises(sc.DeadlineExceededError):
            client.diff(large, axis=0, timeout=1.0)
        # The worker has not answered, so the region is still its own, whatever became of the caller.
        with pytest.raises(sc.ResourceExhaustedError) as caught:
            client.diff(large, axis=0, timeout=5.0)
        assert caught.value.reason == "SERVER_BUSY"
        os.kill(worker, signal.SIGCONT)

        def works() -> bool:
            try:
                return bool(client.diff(large, axis=0).array.shape == (511, 2048))
            except sc.ResourceExhaustedError:
                return False

        until(works)
        with pytest.raises(sc.ResourceExhaustedError, match="one call may have"):
            client.diff(np.ones((1024, 2048)), axis=0)


def test_questions_about_the_server_are_answered_while_every_place_is_taken(own_server):
    server = own_server("--max-concurrent-calls", "1")
    with sc.connect(server.address) as client, ThreadPoolExecutor(1) as pool:
        client.diff(X, axis=0)
        (worker,) = server.worker_pids()
        os.kill(worker, signal.SIGSTOP)
        call = pool.submit(client.diff, X, axis=0)
        until(lambda: _is_busy(client))
        with sc.connect(server.address) as other:
            assert [kernel.name for kernel in other.kernels()] == [kernel.name for kernel in client.kernels()]
        os.kill(worker, signal.SIGCONT)
        call.result(30)


def test_a_claim_takes_nothing_of_the_budget_that_others_need(own_server):
    server = own_server("--max-bytes-in-flight", str(64 << 20), "--max-call-bytes", str(64 << 20))
    done = threading.Event()

    def claim() -> Iterator[kernel_service_pb2.ExecuteStreamRequest]:
        yield header([4 << 20])  # 32 MiB in and as much out
        done.wait(30)

    with grpc.insecure_channel(server.address) as channel, sc.connect(server.address) as client:
        stub = kernel_service_pb2_grpc.KernelServiceStub(channel)
        stalled = [stub.ExecuteStream(claim(), timeout=30) for _ in range(3)]
        large = np.ones((1024, 1024))
        for _ in range(3):
            np.testing.assert_array_equal(client.diff(large, axis=0).array, np.diff(large, axis=0))
        for stream in stalled:
            stream.cancel()
        done.set()


@pytest.mark.parametrize(
    ("flags", "metadata"), [(["--max-call-s", "1"], []), ([], [("shardcall-timeout", "1")])], ids=["server", "caller"]
)
def test_a_stalled_upload_ends_in_time(own_server, flags, metadata):
    server = own_server(*flags)
    done = threading.Event()

    def stall() -> Iterator[kernel_service_pb2.ExecuteStreamRequest]:
        yield header([1 << 20])
        done.wait(30)

    with grpc.insecure_channel(server.address) as channel:
        stub = kernel_service_pb2_grpc.KernelServiceStub(channel)
        began = time.monotonic()
        with pytest.raises(grpc.RpcError) as caught:
            next(stub.ExecuteStream(stall(), timeout=30, metadata=metadata))
        assert time.monotonic() - began < 2.0
        done.set()
        assert caught.value.code() in {grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED}


def test_abandoned_compilations_are_bounded(own_server):
    server = own_server(log=Path(os.devnull))
    with sc.connect(server.address) as client:
        (worker,) = server.worker_pids()
        os.kill(worker, signal.SIGSTOP)
        reasons = set()
        for rows in range(80):
            with pytest.raises(sc.ShardcallError) as caught:
                client.plan("diff", sc.Array((rows + 8,), "float32"), timeout=0.01)
            reasons.add(caught.value.reason)
        assert reasons == {"DEADLINE_EXCEEDED", "SERVER_BUSY"}
        os.kill(worker, signal.SIGCONT)
        until(lambda: _plans(client))


def _plans(client: sc.Client) -> bool:
    try:
        return client.plan("diff", sc.Array((999,), "float32")).kernel == "diff"
    except sc.ResourceExhaustedError:
        return False


def test_clients_that_die_while_uploading_leave_nothing(own_server):
    server = own_server()
    script = (
        "import sys, numpy as np, shardcall as sc\n"
        "client = sc.connect(sys.argv[1])\n"
        "print('go', flush=True)\n"
        "while True: client.diff(np.ones((2048, 2048)), axis=0)\n"
    )
    for _ in range(3):
        victim = subprocess.Popen(
            [sys.executable, "-c", script, server.address], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        with victim:
            assert victim.stdout is not None
            victim.stdout.readline()
            until(lambda: bool(memory_files(server.process.pid)))
            victim.kill()
    until(lambda: not memory_files(server.process.pid), limit_s=5)
    with sc.connect(server.address) as client:
        np.testing.assert_array_equal(client.diff(X, axis=0).array, np.diff(X, axis=0))


def test_five_hundred_keys_through_a_cache_of_fifty_leave_memory_flat(own_server):
    server = own_server("--max-cached-programs", "50", log=Path(os.devnull))
    (worker,) = server.worker_pids()

    def anonymous_kib() -> int:
        lines = Path(f"/proc/{worker}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

    with sc.connect(server.address) as client:
        sizes = []
        for rows in range(500):
            plan = client.plan("diff", sc.Array((rows + 8,), "float32"), mesh=sc.Mesh(x=1), spec=P("x"))
            assert not plan.cache_hit
            sizes.append(anonymous_kib())
        assert client.plan("diff", sc.Array((507,), "float32"), mesh=sc.Mesh(x=1), spec=P("x")).cache_hit
        assert not client.plan("diff", sc.Array((8,), "float32"), mesh=sc.Mesh(x=1), spec=P("x")).cache_hit
    # A program takes about 0.3 MiB: 350 kept would be 100.
    assert sizes[-1] - sizes[149] < 15 << 10


def test_the_cache_is_bounded_by_bytes_too(own_server):
    server = own_server("--max-cached-bytes", str(1 << 20), log=Path(os.devnull))
    with sc.connect(server.address) as client:

        def hit(rows: int) -> bool:
            return client.plan("diff", sc.Array((rows,), "float32"), mesh=sc.Mesh(x=8), spec=P("x")).cache_hit

        assert not hit(64)
        assert hit(64)
        for rows in range(72, 72 + 8 * 30, 8):  # far fewer than the 256 programs that would be kept by count
            hit(rows)
        assert not hit(64)


def test_evicted_programs_come_back_under_callers_that_use_them(own_server):
    server = own_server("--max-cached-programs", "2", log=Path(os.devnull))
    done = threading.Event()

    def work(rows: int) -> int:
        x, count = np.arange(float(rows)) ** 2, 0
        with sc.connect(server.address) as client:
            while not done.is_set() or count < 10:
                np.testing.assert_array_equal(client.diff(x).array, np.diff(x))
                count += 1
                if count == 25:
                    done.set()
        return count

    with ThreadPoolExecutor(4) as pool:
        assert min(pool.map(work, [5, 6, 7, 8])) >= 10
