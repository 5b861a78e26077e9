"""Compiled programs on disk: a load returns the stored program, or nothing."""

import os
import resource
import signal
import stat
from pathlib import Path

import pytest
from server.conftest import on_threads
from structlog.testing import capture_logs

from shardcall_server.compilation.program_store import ProgramStore, StoreCounts

LIMIT_BYTES = 1 << 20
VALUE = bytes(range(256)) * 40


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "cache" / "programs"


@pytest.fixture
def store(folder) -> ProgramStore:
    return ProgramStore(folder, LIMIT_BYTES)


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.program"))


def test_a_program_is_loaded_by_the_next_server_with_this_processor(folder):
    store = ProgramStore(folder, LIMIT_BYTES, host="avx512")
    assert store.get("key") is None
    store.put("key", VALUE)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(entry.stat().st_mode) for entry in folder.iterdir()] == [0o600]
    following = ProgramStore(folder, LIMIT_BYTES, host="avx512")
    assert following.get("key") == VALUE
    assert following.get("other") is None
    assert following.counts == StoreCounts(hits=1, misses=1)
    assert ProgramStore(folder, LIMIT_BYTES, host="avx2").get("key") is None


def flip(entry: Path) -> None:
    content = bytearray(entry.read_bytes())
    content[len(content) // 2] ^= 1
    entry.write_bytes(content)


DAMAGES = {
    "flip": flip,
    "cut": lambda entry: os.truncate(entry, entry.stat().st_size - 1),
    "cut head": lambda entry: os.truncate(entry, 10),
    "empty": lambda entry: entry.write_bytes(b""),
    "longer": lambda entry: entry.write_bytes(entry.read_bytes() + b"\0"),
    "another's": lambda entry: entry.write_bytes(b"another program's"),
    "mode": lambda entry: entry.chmod(0o666),
    "link": lambda entry: entry.symlink_to(entry.rename(entry.with_name("moved"))),
    "folder": lambda entry: (entry.rename(entry.with_name("moved")), (entry / "in it").mkdir(parents=True)),
    "pipe": lambda entry: (entry.unlink(), os.mkfifo(entry)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_what_is_damaged_is_not_used_said_once_and_written_anew(store, folder, damage):
    for key in ("key", "other"):
        store.put(key, VALUE)
    for entry in entries(folder):
        damage(entry)
    with capture_logs() as logs:
        assert store.get("key") is None
        assert store.get("other") is None
    assert [log["event"] for log in logs] == ["a compiled program on disk is damaged, and compiled anew"]
    assert store.counts == StoreCounts(misses=2, damaged=2)
    store.put("key", VALUE)
    assert ProgramStore(folder, LIMIT_BYTES).get("key") == VALUE


def test_a_program_under_the_name_of_another_is_damaged(store, folder):
    store.put("key", VALUE)
    (entry,) = entries(folder)
    store.put("other", VALUE)
    (other,) = set(entries(folder)) - {entry}
    other.write_bytes(entry.read_bytes())
    assert store.get("other") is None
    assert store.counts.damaged == 1


def test_the_oldest_uses_go_first(folder):
    size = len(VALUE) + 52
    store = ProgramStore(folder, 10 * size)
    for number in range(10):
        store.put(str(number), VALUE)
    for number, entry in enumerate(sorted(entries(folder), key=lambda entry: entry.stat().st_mtime_ns)):
        os.utime(entry, (number, number))
    assert store.get("0") == VALUE  # used now
    store.put("10", VALUE)
    assert sum(entry.stat().st_size for entry in entries(folder)) <= 9 * size
    assert store.counts.evicted == 2
    assert [str(number) for number in range(11) if store.get(str(number)) is None] == ["1", "2"]


def test_a_store_that_became_smaller_is_cut_when_it_is_opened(store, folder):
    for number in range(20):
        store.put(str(number), VALUE)
    store.put("larger than all may be", bytes(LIMIT_BYTES))
    assert len(entries(folder)) == 20
    ProgramStore(folder, 5 * len(VALUE))
    assert sum(entry.stat().st_size for entry in entries(folder)) <= 5 * len(VALUE)
    fewer = ProgramStore(folder, LIMIT_BYTES, max_entries=10)
    for number in range(25):
        fewer.put(str(number), b"small")
    assert len(entries(folder)) <= 10


def test_what_is_not_ours_is_left_alone_and_what_killed_writers_left_is_not(store, folder):
    garbage = folder / "thesis.tex"
    garbage.write_bytes(bytes(2 * LIMIT_BYTES))
    orphan = folder / f".{'0' * 32}.part"
    orphan.write_bytes(b"half")
    ProgramStore(folder, LIMIT_BYTES)
    assert orphan.exists()  # its writer may be at work
    os.utime(orphan, (0, 0))
    ProgramStore(folder, LIMIT_BYTES).put("key", VALUE)
    assert not orphan.exists()
    assert garbage.exists()
    assert store.get("key") == VALUE


def test_a_folder_that_is_removed_is_created_again(store, folder):
    store.put("key", VALUE)
    for path in (*folder.iterdir(), folder):
        path.unlink() if path.is_file() else path.rmdir()
    assert store.get("key") is None
    store.put("key", VALUE)
    assert store.get("key") == VALUE
    assert store.counts == StoreCounts(hits=1, misses=1)


def test_a_full_disk_leaves_nothing_behind_and_is_said_once(store, folder):
    store.put("before", VALUE)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with capture_logs() as logs:
            store.put("key", VALUE)
            store.put("other", VALUE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert [log["event"] for log in logs] == ["a compiled program could not be kept on disk"]
    assert store.counts.unwritten == 2
    assert len(list(folder.iterdir())) == 1
    assert store.get("before") == VALUE
    store.put("key", VALUE)
    assert store.get("key") == VALUE


def test_a_folder_that_cannot_be_written_costs_one_warning():
    with capture_logs() as logs:
        store = ProgramStore(Path("/proc/shardcall/programs"), LIMIT_BYTES)
        store.put("key", VALUE)
        assert store.get("key") is None
    events = ["no compiled programs are kept on disk", "a compiled program could not be kept on disk"]
    assert [log["event"] for log in logs] == events
    assert store.counts == StoreCounts(misses=1, unwritten=1)


def test_servers_that_share_a_folder_see_complete_programs_only(folder):
    values = {str(key): os.urandom(20_000) for key in range(8)}
    seen: list[bool] = []

    def use(_: int) -> None:
        store = ProgramStore(folder, 100_000)  # so that they evict each other's
        for _ in range(20):
            for key, value in values.items():
                seen.append(store.get(key) in {None, value})
                store.put(key, value)
        seen.append(store.counts.damaged == store.counts.unwritten == 0)

    on_threads(use, range(4))
    assert all(seen)
    assert len(seen) == 4 * (20 * 8 + 1)
