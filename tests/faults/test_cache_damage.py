"""Damage to the compiled programs on disk: results stay right, and the damage is repaired."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from end_to_end.processes import wait_for
from servers import ServerProcess, running_server

import shardcall as sc
from shardcall import P

pytestmark = pytest.mark.long

MESH = sc.Mesh(x=8)
X = np.random.default_rng(0).random((64, 64))
KERNELS: dict[str, tuple[Callable[[sc.Client], sc.Result], np.ndarray]] = {
    "diff": (lambda c: c.diff(X, axis=0, mesh=MESH, spec=P("x", None)), np.diff(X, axis=0)),
    "matmul": (lambda c: c.matmul(X, X, mesh=MESH), X @ X),
    "cumsum": (lambda c: c.cumsum(X, axis=0, mesh=MESH, spec=P("x", None)), np.cumsum(X, axis=0)),
    "einsum": (lambda c: c.einsum("ij,kj->ik", X, X, mesh=MESH), X @ X.T),
}
FOREIGN = "0" * 32
_PR_CAPBSET_DROP = 24
_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 1, 2


@dataclass
class Folder:
    """A server that forgets every program with the next call, and where it keeps them."""

    server: ServerProcess
    client: sc.Client
    programs: Path
    log: Path
    compiled: dict[str, bytes] = field(default_factory=dict)

    def call(self) -> dict[str, bool]:
        """Calls the kernels; results must equal the first ones. Returns the calls that were loaded from disk."""
        from_disk = {}
        for name, (call, expected) in KERNELS.items():
            result = call(self.client)
            assert not result.cache_hit
            np.testing.assert_allclose(result.array, expected, rtol=1e-12)
            assert self.compiled.setdefault(name, result.array.tobytes()) == result.array.tobytes()
            from_disk[name] = result.from_disk
        return from_disk

    def entries(self) -> list[Path]:
        """The files of programs. Not the pipes: an earlier test's may be left under names that no program has."""
        return sorted(entry for entry in self.programs.glob("*.program") if entry.is_file())

    def kill_worker(self) -> None:
        killed = set(self.server.worker_pids())
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not killed & set(self.server.worker_pids()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    """Its server has no privileges over files, even if the tests run as root; its log is a pipe, never full."""
    directory = tmp_path_factory.mktemp("damage")
    os.mkfifo(directory / "lines")
    flags = ("--cache-dir", str(directory / "cache"), "--max-cached-programs", "1", "--warm-up-s", "0")
    with (
        ThreadPoolExecutor(1) as copying,
        ExitStack() as stack,
        ThreadPoolExecutor(1, initializer=give_up_privilege) as unprivileged,
    ):
        copying.submit(copy_lines, directory / "lines", directory / "log")
        server = running_server(*flags, log=directory / "lines", why="its cache is damaged")
        started = unprivileged.submit(stack.enter_context, server).result()
        client = stack.enter_context(sc.connect(started.address))
        yield Folder(started, client, directory / "cache" / "programs", directory / "log")


def copy_lines(source: Path, target: Path) -> None:
    """Writes what comes out of a pipe to a file as it comes."""
    with source.open("rb") as lines, target.open("wb", buffering=0) as log:
        for line in lines:
            log.write(line)


def give_up_privilege() -> None:
    """Makes processes that this thread starts respect file modes, as for other users."""
    for capability in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
        ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)


def truncate(folder: Folder, attempt: int) -> None:
    for entry in folder.entries():
        os.truncate(entry, entry.stat().st_size * (attempt % 20) // 20)


def flip(folder: Folder, attempt: int) -> None:
    for entry in folder.entries():
        content = bytearray(entry.read_bytes() or b"\0")  # an entry that was not repaired may be empty
        content[len(content) * (attempt % 20) // 20] ^= 1 << attempt % 8
        entry.write_bytes(content)


def lose(folder: Folder, attempt: int) -> None:
    for entry in folder.entries()[attempt % 2 :]:
        entry.unlink()


def exchange(folder: Folder, attempt: int) -> None:
    contents = [entry.read_bytes() for entry in folder.entries()]
    for entry, content in zip(folder.entries(), contents[1:] + contents[:1], strict=True):
        entry.write_bytes(content)


def write_as_another_version(folder: Folder, attempt: int) -> None:
    for entry in folder.entries():
        entry.write_bytes(
            entry.read_bytes().replace(b"shardcall program 1\n", b"shardcall program %d\n" % (attempt + 2))
        )


def replace_by_folders_and_pipes(folder: Folder, attempt: int) -> None:
    for entry in folder.entries():
        entry.unlink()
        entry.mkdir() if attempt % 2 else os.mkfifo(entry)


def open_them_to_others(folder: Folder, attempt: int) -> None:
    for entry in folder.entries():
        entry.chmod((0o666, 0o000)[attempt % 2])


def remove_the_folder(folder: Folder, attempt: int) -> None:
    shutil.rmtree(folder.programs)


def litter(folder: Folder, attempt: int) -> None:
    """Files of writers that were killed, and foreign files."""
    programs = [entry for entry in folder.entries() if not entry.name.startswith(FOREIGN)]
    for entry in programs[: attempt % 3 + 1]:
        entry.rename(folder.programs / f".{attempt:032x}.part")
    (folder.programs / f"garbage {attempt}").write_bytes(os.urandom(1000))
    (folder.programs / f"{FOREIGN}{attempt:032x}.program").write_bytes(os.urandom(1000))


def damage_the_index(folder: Folder, attempt: int) -> None:
    index = folder.programs.parent / "call_history.json"
    index.write_bytes((b"{", b"", b'{"format": 7}', os.urandom(100))[attempt % 4])
    lose(folder, 0)


DAMAGE = {
    damage.__name__: damage
    for damage in (
        truncate,
        flip,
        lose,
        exchange,
        write_as_another_version,
        replace_by_folders_and_pipes,
        open_them_to_others,
        remove_the_folder,
        litter,
        damage_the_index,
    )
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_programs_are_compiled_anew_and_repaired(folder, damage):
    folder.call()
    again = 0
    for attempt in range(20):
        assert all(folder.call().values())
        DAMAGE[damage](folder, attempt)
        again += sum(not from_disk for from_disk in folder.call().values())
        assert all(folder.call().values())
    assert again >= 20
    folder.kill_worker()
    assert all(folder.call().values()), "the next worker does not find them"
    warnings = [json.loads(line) for line in folder.log.read_text().splitlines() if '"warning"' in line]
    said = [(line["event"], line["folder"]) for line in warnings if "folder" in line]
    assert len(said) <= 3 * len(DAMAGE)  # each once a worker


def test_a_folder_that_is_read_only_costs_only_compiling(folder):
    for _ in range(20):
        lose(folder, 0)
        folder.programs.chmod(0o500)
        try:
            assert not any(folder.call().values())
            assert not any(folder.call().values())
        finally:
            folder.programs.chmod(0o700)
        assert not any(folder.call().values())
        assert all(folder.call().values())
    wait_for(lambda: "could not be kept on disk" in folder.log.read_text())


def test_a_full_disk_costs_only_compiling(folder):
    folder.call()
    for _ in range(20):
        limits = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in folder.server.worker_pids()}
        remove_what_is_there(folder)
        for pid, (_, hard) in limits.items():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (1000, hard))
        try:
            assert not any(folder.call().values())
            assert list(folder.programs.iterdir()) == []
        finally:
            for pid, limit in limits.items():
                resource.prlimit(pid, resource.RLIMIT_FSIZE, limit)
        folder.call()
        assert all(folder.call().values())


def remove_what_is_there(folder: Folder) -> None:
    """Empties the folder, of what other tests have left too."""
    for entry in folder.programs.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def test_servers_that_share_a_folder_do_not_disturb_one_another(tmp_path):
    flags = ("--cache-dir", str(tmp_path / "cache"), "--max-cached-programs", "1", "--warm-up-s", "0")
    logs = [tmp_path / f"{number}.log" for number in range(2)]
    with ExitStack() as stack:
        folders = []
        for log in logs:
            server = stack.enter_context(running_server(*flags, log=log, why="two share a cache"))
            client = stack.enter_context(sc.connect(server.address))
            folders.append(Folder(server, client, tmp_path / "cache" / "programs", log))
        with ThreadPoolExecutor(2) as both:
            for _ in range(3):
                assert len(list(both.map(Folder.call, folders))) == 2
        assert all(all(folder.call().values()) for folder in folders)
        assert folders[0].compiled == folders[1].compiled
    assert not [line for log in logs for line in log.read_text().splitlines() if '"level": "info"' not in line]
