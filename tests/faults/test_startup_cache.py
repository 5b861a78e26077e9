"""The disk cache that a server keeps for its next start, warm-up before it is ready, and damage to the cache."""

import json
import os
import shutil
import signal
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from end_to_end.processes import wait_for
from servers import ServerProcess, running_server, start_server

import shardcall as sc
from shardcall import P

pytestmark = pytest.mark.long

MESH = sc.Mesh(x=8)
WARM_UP = ("--warm-up-s", "100")
AXIS = {"axis": {"int_value": 0}}
INT8 = {"element_type": "ELEMENT_TYPE_INT8", "shape": [8]}
CALLS = (
    {
        "call": {
            "kernel": "diff",
            "mesh": {"axes": [{"name": "x", "size": 8}]},
            "in_specs": [{"spec": {"entries": [{"axis_names": ["x"]}, {}]}}],
            "parameters": AXIS,
        },
        "operands": [{"element_type": "ELEMENT_TYPE_FLOAT64", "shape": [64, 32]}],
    },
    {
        "call": {"kernel": "cumsum", "parameters": AXIS},
        "operands": [{"element_type": "ELEMENT_TYPE_FLOAT32", "shape": [40, 8]}],
    },
)


KERNELS: dict[str, tuple[Callable[..., sc.Result], Callable[[np.ndarray], np.ndarray]]] = {
    "diff": (lambda c, x: c.diff(x, axis=0, mesh=MESH, spec=P("x", None)), partial(np.diff, axis=0)),
    "matmul": (lambda c, x: c.matmul(x.T, x, mesh=MESH), lambda x: x.T @ x),
    "cumsum": (lambda c, x: c.cumsum(x, axis=0, mesh=MESH, spec=P("x", None)), partial(np.cumsum, axis=0)),
    "einsum": (lambda c, x: c.einsum("ij,kj->ik", x, x, mesh=MESH), lambda x: x @ x.T),
}


def manifest(*more: object) -> str:
    return json.dumps({"format": 1, "calls": [*CALLS, *more]})


@dataclass(frozen=True)
class Start:
    """The first calls of one start of the server.

    Attributes:
        results: of the calls.
        log: the server's lines.
        again: the results of the same calls after the mesh had restarted; empty where it did not.
    """

    results: list[sc.Result]
    log: list[dict[str, object]]
    again: list[sc.Result]

    @property
    def from_disk(self) -> float:
        """The share of first calls whose program was loaded."""
        return sum(result.from_disk for result in self.results) / len(self.results)

    @property
    def bytes(self) -> list[bytes]:
        return [result.array.tobytes() for result in self.results]


def programs(count: int) -> list[Callable[[sc.Client], sc.Result]]:
    """Calls of many kernels, each over eight devices and with a program of its own."""
    arrays = [np.random.default_rng(number).random((64 + 8 * number, 16)) for number in range(count)]
    return [partial(call, x=x) for x in arrays for call, _ in KERNELS.values()][:count]


def start(
    tmp_path: Path,
    calls: list[Callable[[sc.Client], sc.Result]],
    *flags: str,
    then: Callable[[ServerProcess, Path], None] | None = None,
) -> Start:
    log = tmp_path / "log"
    again: list[sc.Result] = []
    flags = ("--cache-dir", str(tmp_path / "cache"), *flags)
    with running_server(*flags, log=log, why="it starts with a cache") as server, sc.connect(server.address) as client:
        client.server_info()
        results = [call(client) for call in calls]
        if then:
            then(server, log)
            again = [call(client) for call in calls]
    return Start(results, [json.loads(line) for line in log.read_text().splitlines()], again)


def test_a_start_with_a_cache_compiles_nothing_and_results_are_the_same_to_the_bit(tmp_path):
    """Nor does a mesh that restarts; and the cache is hidden from other users."""
    calls = programs(50)
    cold = start(tmp_path, calls, *WARM_UP, then=mesh_restarts)
    loaded = start(tmp_path, calls)
    warmed_up = start(tmp_path, calls, *WARM_UP)
    assert cold.from_disk == 0.0
    assert loaded.from_disk >= 0.95
    assert all(result.cache_hit for result in warmed_up.results)
    assert cold.bytes == loaded.bytes == warmed_up.bytes
    assert "loaded from disk" in str(loaded.results[0].plan)
    assert all(result.cache_hit for result in cold.again), "a mesh that restarts has frequent calls ready"
    assert [result.array.tobytes() for result in cold.again] == cold.bytes
    for first in (cold, warmed_up):
        (ready,) = [line for line in first.log if line["event"] == "programs compiled ahead"]
        assert (ready["count"], ready["from_disk"], ready["left"]) == (len(calls), len(calls), 0)
    is_this_users_alone(tmp_path / "cache")
    for line in loaded.log + warmed_up.log:  # nor does XLA find anything to say
        assert line["level"] == "info", line


def mesh_restarts(server: ServerProcess, log: Path) -> None:
    """Kills the worker; its successor has compiled frequent calls again when this returns."""
    for pid in server.worker_pids():
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: "programs compiled ahead" in log.read_text())


def is_this_users_alone(cache: Path) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in cache.rglob("*")}
    assert modes.pop("programs") == 0o700
    assert set(modes.values()) == {0o600}


def test_two_servers_that_share_a_folder_load_what_either_called(tmp_path):
    calls = programs(6)

    def first(index: int) -> Start:
        (tmp_path / str(index)).mkdir()
        (tmp_path / str(index) / "cache").symlink_to(tmp_path / "cache")
        return start(tmp_path / str(index), calls[index * 3 :][:3])

    (tmp_path / "cache").mkdir(mode=0o700)
    with ThreadPoolExecutor(2) as both:
        starts = list(both.map(first, range(2)))
    following = start(tmp_path, calls, *WARM_UP)
    assert all(result.cache_hit for result in following.results)
    assert following.bytes == starts[0].bytes + starts[1].bytes


def test_the_folder_keeps_to_its_limit(tmp_path):
    calls = programs(20)
    start(tmp_path, calls, "--max-program-dir-bytes", str(64 << 10))
    kept = list((tmp_path / "cache" / "programs").iterdir())
    assert 0 < sum(entry.stat().st_size for entry in kept) <= 64 << 10
    assert len(kept) < len(calls)
    assert start(tmp_path, calls[-3:]).from_disk == 1.0


def refusal(*flags: str) -> str:
    process = start_server(*flags, log=(log := Path(flags[-1]).parent / "refusal.log"))
    assert process.wait(120) == 2, log.read_text()
    process.stdin.close()
    process.stdout.close()
    return log.read_text()


@pytest.mark.parametrize(("below", "mode"), [("programs", 0o755), ("", 0o777)])
def test_a_folder_that_others_may_use_is_refused(tmp_path, below, mode):
    cache = tmp_path / "cache"
    (cache / "programs").mkdir(parents=True)
    (cache / below).chmod(mode)
    said = refusal("--cache-dir", str(cache))
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
        (
            {"call": {"kernel": "dif"}, "operands": [INT8]},
            "call 3 (dif): there is no kernel 'dif'; did you mean 'diff'?",
        ),
        (
            {"call": {"kernel": "diff", "parameters": {"axis": {"int_value": 5}}}, "operands": [INT8]},
            "call 3 (diff): axis",
        ),
    ],
)
def test_a_file_with_a_mistake_names_it(tmp_path, wrong, says):
    file = tmp_path / "calls.json"
    file.write_text(manifest(wrong))
    said = refusal("--devices", "8", "--cache-dir", "", *WARM_UP, "--warm-up-file", str(file))
    assert str(file) in said
    assert says in said
    assert "Traceback" not in said


@dataclass
class Folder:
    """A server that forgets every program with the next call, and where it keeps them."""

    server: ServerProcess
    client: sc.Client
    programs: Path
    compiled: dict[str, bytes] = field(default_factory=dict)

    def call(self) -> dict[str, bool]:
        """Calls the kernels; results must equal the first ones. Returns the calls that were loaded from disk."""
        from_disk, x = {}, np.random.default_rng(0).random((64, 64))
        for name, (call, expected) in KERNELS.items():
            result = call(self.client, x)
            assert not result.cache_hit
            np.testing.assert_allclose(result.array, expected(x), rtol=1e-12)
            assert self.compiled.setdefault(name, result.array.tobytes()) == result.array.tobytes()
            from_disk[name] = result.from_disk
        return from_disk

    def entries(self) -> list[Path]:
        """The files of programs. Not the pipes: an earlier test's may be left under names that no program has."""
        return sorted(entry for entry in self.programs.glob("*.program") if entry.is_file())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    cache = tmp_path_factory.mktemp("damage") / "cache"
    flags = ("--cache-dir", str(cache), "--max-cached-programs", "1", "--warm-up-s", "0")
    server = running_server(*flags, log=cache.with_name("log"), why="its cache is damaged")
    with server as running, sc.connect(running.address) as client:
        yield Folder(running, client, cache / "programs")


def flip(entry: Path, attempt: int) -> None:
    content = bytearray(entry.read_bytes() or b"\0")  # an entry that was not repaired may be empty
    content[len(content) * attempt // 20] ^= 1 << attempt % 8
    entry.write_bytes(content)


def replace_by_a_folder_or_pipe(entry: Path, attempt: int) -> None:
    entry.unlink()
    entry.mkdir() if attempt % 2 else os.mkfifo(entry)


def damage_the_index(entry: Path, attempt: int) -> None:
    index = entry.parents[1] / "call_history.json"
    index.write_bytes((b"{", b"", b'{"format": 7}', os.urandom(100))[attempt % 4])
    entry.unlink()


DAMAGE: dict[str, Callable[[Path, int], object]] = {
    "truncated": lambda entry, attempt: os.truncate(entry, entry.stat().st_size * attempt // 20),
    "flipped": flip,
    "lost": lambda entry, _: entry.unlink(),
    "of another version": lambda entry, attempt: entry.write_bytes(
        entry.read_bytes().replace(b"shardcall program 1\n", b"shardcall program %d\n" % (attempt + 2))
    ),
    "no file": replace_by_a_folder_or_pipe,
    "open to others": lambda entry, _: entry.chmod(0o666),
    "without its folder": lambda entry, _: shutil.rmtree(entry.parent, ignore_errors=True),
    "without an index": damage_the_index,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_programs_are_compiled_anew_and_repaired(folder, damage):
    folder.call()
    for attempt in range(20):
        assert all(folder.call().values())
        for entry in folder.entries():
            DAMAGE[damage](entry, attempt)
        assert not all(folder.call().values())
        assert all(folder.call().values())
    killed = set(folder.server.worker_pids())
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not killed & set(folder.server.worker_pids()))
    assert all(folder.call().values()), "the next worker does not find them"
    warnings = [json.loads(line) for line in folder.server.log.read_text().splitlines() if '"warning"' in line]
    assert len([line for line in warnings if "folder" in line]) <= 3 * len(DAMAGE)  # each once a worker
