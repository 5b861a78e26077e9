"""Programs that ended the mesh three times are refused, and new ones of their owners; others are not."""

import os
import signal
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest
from end_to_end.messages import token_of
from end_to_end.processes import computing, wait_for
from faults import faulty_kernels
from faults.long_programs import SIGNAL, WINDOW, compile_long, convolve, the_worker, works
from servers import ServerProcess

import shardcall as sc

pytestmark = pytest.mark.long


def test_programs_that_were_together_when_a_worker_crashed_run_alone_before_one_is_refused(
    server_factory, tmp_path, monkeypatch
):
    faulty_kernels.install(tmp_path, monkeypatch)
    flags = ("--spare-worker", "--cache-dir", str(tmp_path / "cache"))
    server = server_factory(*flags, devices=1, why="its kernels abort")
    four, five = sc.Array(4, "float64"), sc.Array(5, "float64")
    x = np.arange(4.0)
    with (
        sc.connect(server.address, token=token_of("guest")) as guilty,
        sc.connect(server.address, token=token_of("owner")) as innocent,
        ThreadPoolExecutor(2) as pool,
    ):

        def both_at_once() -> list[Future[object]]:
            return [pool.submit(guilty.call, "aborting", x), pool.submit(innocent.compile, "ordinary", four)]

        works(guilty)
        calls = both_at_once()
        wait_for(lambda: all((tmp_path / f"{name} began").exists() for name in ("aborting", "ordinary")))
        (tmp_path / "abort").touch()
        for call in calls:
            with pytest.raises(sc.MeshRestartedError) as restarted:
                call.result(300)
            assert restarted.value.is_suspect
        (tmp_path / "finish").touch()
        for _ in range(3):
            aborting, ordinary = both_at_once()
            with pytest.raises(sc.MeshRestartedError):
                aborting.result(300)
            ordinary.result(300)
        with pytest.raises(sc.ProgramRefusedError, match="the mesh ended 3 times because of this program"):
            guilty.call("aborting", x)
        with pytest.raises(sc.ProgramRefusedError, match=r"for another \d+ s, only programs that have run") as caught:
            guilty.compile("aborting", five)
        assert 0 < int(caught.value.metadata["ends_in_seconds"]) <= 600
        works(guilty)
        innocent.compile("ordinary", five)


def kill_while_it_computes(server: ServerProcess, client: sc.Client, number: signal.Signals) -> str:
    """Sends a signal to a worker that runs the long program; returns the reason of its exit."""
    compile_long(client)
    worker = the_worker(server)
    busy = computing(worker)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(convolve, client)
        wait_for(busy)
        os.kill(worker, number)
        with pytest.raises(sc.MeshRestartedError):
            call.result(300)
    works(client)
    return client.usage().mesh.last_exit_reason


def test_a_program_that_crashes_its_worker_three_times_is_refused_and_one_that_is_killed_is_not(server_factory):
    """More kills than one program may cause crashes."""
    server = server_factory(why="its worker crashes")
    with sc.connect(server.address, retries=False) as client:
        for _ in range(9):
            assert kill_while_it_computes(server, client, signal.SIGKILL) == "ended by signal 9 (SIGKILL)"
        for _ in range(3):
            reason = kill_while_it_computes(server, client, signal.SIGSEGV)
            assert reason == "ended by signal 11 (SIGSEGV) while running kernel convolve"
        with pytest.raises(sc.ProgramRefusedError):
            convolve(client)
        works(client)


def test_a_program_that_took_too_long_three_times_is_refused_and_no_other(server_factory):
    server = server_factory("--max-execute-s", "2", devices=2, why="its programs take too long")
    with sc.connect(server.address) as client, sc.connect(server.address, token=token_of("guest")) as other:
        for _ in range(3):
            with pytest.raises(sc.DeadlineExceededError, match="longest that this server allows"):
                convolve(client)
        restarts = client.usage().mesh.restarts
        with pytest.raises(sc.ProgramRefusedError) as caught:
            convolve(client)
        assert caught.value.reason == "PROGRAM_REFUSED"
        other.convolve(SIGNAL[:1000], WINDOW[:10])
        works(other)
        assert client.usage().mesh.restarts == restarts
