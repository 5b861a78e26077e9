"""The disk cache that a server keeps for its next start, warm-up before it is ready."""

import json
import os
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from end_to_end.messages import call, mesh, spec, tensor
from end_to_end.processes import wait_for
from faults.test_access_long import serve
from google.protobuf.json_format import MessageToDict
from servers import ServerProcess, running_server

import shardcall as sc
from shardcall import P
from shardcall.v1 import array_pb2, kernel_pb2

pytestmark = pytest.mark.long

MESH = sc.Mesh(x=8)
WARM_UP = ("--warm-up-s", "100")
KERNELS: tuple[Callable[..., sc.Result], ...] = (
    lambda c, x: c.diff(x, axis=0, mesh=MESH, spec=P("x", None)),
    lambda c, x: c.matmul(x.T, x, mesh=MESH),
    lambda c, x: c.cumsum(x, axis=0, mesh=MESH, spec=P("x", None)),
    lambda c, x: c.einsum("ij,kj->ik", x, x, mesh=MESH),
)


def item(kernel_call: kernel_pb2.KernelCall, operand: array_pb2.ArrayType) -> dict[str, object]:
    """A call of a file of calls."""
    return {"call": MessageToDict(kernel_call), "operands": [MessageToDict(operand)]}


def manifest(*more: object) -> str:
    diff = item(call("diff", {"axis": 0}, mesh=mesh(x=8), in_specs=[spec("x", None)]), tensor(64, 32))
    cumsum = item(call("cumsum", {"axis": 0}), tensor(40, 8, element_type=array_pb2.ELEMENT_TYPE_FLOAT32))
    return json.dumps({"format": 1, "calls": [diff, cumsum, *more]})


def programs(count: int) -> list[Callable[[sc.Client], sc.Result]]:
    """Calls of many kernels, each over eight devices and with a program of its own."""
    arrays = [np.random.default_rng(number).random((64 + 8 * number, 16)) for number in range(count)]
    return [partial(kernel, x=x) for x in arrays for kernel in KERNELS][:count]


@contextmanager
def started(folder: Path, *flags: str) -> Iterator[tuple[ServerProcess, sc.Client]]:
    flags = ("--cache-dir", str(folder / "cache"), *flags)
    server = running_server(*flags, log=folder / "log", why="it starts with a cache")
    with server as running, sc.connect(running.address) as client:
        client.server_info()
        yield running, client


def first_calls(
    folder: Path, calls: list[Callable[[sc.Client], sc.Result]], *flags: str
) -> tuple[list[sc.Result], list[dict[str, object]]]:
    """The results of a server's first calls, and the lines of its log."""
    with started(folder, *flags) as (_, client):
        results = [program(client) for program in calls]
    return results, lines(folder)


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "log").read_text().splitlines()]


def bytes_of(results: list[sc.Result]) -> list[bytes]:
    return [result.array.tobytes() for result in results]


def test_a_start_with_a_cache_compiles_nothing_and_results_are_the_same_to_the_bit(tmp_path):
    """Nor does a mesh that restarts; and the cache is hidden from other users."""
    calls = programs(50)
    with started(tmp_path, *WARM_UP) as (server, client):
        cold = [program(client) for program in calls]
        for pid in server.worker_pids():
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: "programs compiled ahead" in (tmp_path / "log").read_text())
        again = [program(client) for program in calls]
    log_of_cold = lines(tmp_path)
    loaded, log_of_loaded = first_calls(tmp_path, calls)
    warmed_up, log_of_warmed_up = first_calls(tmp_path, calls, *WARM_UP)
    assert not any(result.from_disk for result in cold)
    assert sum(result.from_disk for result in loaded) >= 0.95 * len(calls)
    assert all(result.cache_hit for result in warmed_up)
    assert bytes_of(cold) == bytes_of(again) == bytes_of(loaded) == bytes_of(warmed_up)
    assert "loaded from disk" in str(loaded[0].plan)
    assert all(result.cache_hit for result in again), "a mesh that restarts has frequent calls ready"
    for log in (log_of_cold, log_of_warmed_up):
        (ready,) = [line for line in log if line["event"] == "programs compiled ahead"]
        assert (ready["count"], ready["from_disk"], ready["left"]) == (len(calls), len(calls), 0)
    is_this_users_alone(tmp_path / "cache")
    for line in log_of_loaded + log_of_warmed_up:  # nor does XLA find anything to say
        assert line["level"] == "info", line


def is_this_users_alone(cache: Path) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in cache.rglob("*")}
    assert modes.pop("programs") == 0o700
    assert set(modes.values()) == {0o600}


def test_the_folder_keeps_to_its_limit(tmp_path):
    calls = programs(20)
    first_calls(tmp_path, calls, "--max-program-dir-bytes", str(64 << 10))
    kept = list((tmp_path / "cache" / "programs").iterdir())
    assert 0 < sum(entry.stat().st_size for entry in kept) <= 64 << 10
    assert len(kept) < len(calls)
    assert all(result.from_disk for result in first_calls(tmp_path, calls[-3:])[0])


@pytest.mark.parametrize(("below", "mode"), [("programs", 0o755), ("", 0o777)])
def test_a_folder_that_others_may_use_is_refused(tmp_path, below, mode):
    cache = tmp_path / "cache"
    (cache / "programs").mkdir(parents=True)
    (cache / below).chmod(mode)
    said = serve("--cache-dir", str(cache))
    assert f"setting cache_dir is '{cache}'" in said
    assert f"run: chmod {'700' if below else 'go-w'} {cache / below}" in said
    assert "Traceback" not in said


def test_a_file_names_the_programs_that_are_compiled_ahead(server_factory: Callable[..., ServerProcess], tmp_path):
    file = tmp_path / "calls.json"
    file.write_text(manifest())
    server = server_factory("--cache-dir", "", "--warm-up-file", str(file), *WARM_UP, why="it compiles ahead")
    with sc.connect(server.address) as client:
        assert client.plan("diff", sc.Array((64, 32), "float64"), axis=0, mesh=MESH, spec=P("x", None)).cache_hit
        assert client.plan("cumsum", sc.Array((40, 8), "float32"), axis=0, mesh=MESH).cache_hit
        assert not client.plan("cumsum", sc.Array((40, 9), "float32"), axis=0, mesh=MESH).cache_hit


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"call": {"kernel": "diff"}}, "call 3 has no 'operands'"),
        (item(call("dif"), tensor(8)), "call 3 (dif): there is no kernel 'dif'; did you mean 'diff'?"),
        (item(call("diff", {"axis": 5}), tensor(8)), "call 3 (diff): axis"),
    ],
)
def test_a_file_with_a_mistake_names_it(tmp_path, wrong, says):
    file = tmp_path / "calls.json"
    file.write_text(manifest(wrong))
    said = serve("--devices", "8", "--cache-dir", "", *WARM_UP, "--warm-up-file", str(file))
    assert str(file) in said
    assert says in said
    assert "Traceback" not in said
