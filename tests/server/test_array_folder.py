"""The folder of files: names, limits, temporary files and what other processes do there."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
from server.conftest import on_threads, refusal, refused
from server.fake_calls import FakeServerCall

from shardcall.v1 import file_service_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_core.wire.token_fields import PrincipalLimits
from shardcall_server.frontend.dispatch.idempotency import IdempotencyTable
from shardcall_server.frontend.files import array_folder
from shardcall_server.frontend.files.array_folder import ArrayFolder
from shardcall_server.frontend.files.npy_header import header_of
from shardcall_server.frontend.files.zarr_metadata import METADATA_NAME
from shardcall_server.frontend.services.file_servicer import FileServicer
from shardcall_server.settings import SettingsError
from shardcall_server.settings_sources import load_settings

HEADER = header_of(ArrayType((4,), np.dtype(np.uint8)))
DATA = HEADER + b"abcd"


@pytest.fixture
def folder(tmp_path) -> Iterator[ArrayFolder]:
    with closing(ArrayFolder(str(tmp_path), 4 * len(DATA), 3)) as opened:
        yield opened


def save(folder: ArrayFolder, name: str, data: bytes = DATA, owner: str = "ada") -> None:
    with folder.saving(owner, name, len(data)) as (fd, _):
        os.write(fd, data)


def full_disk(*_: object, **__: object) -> None:
    raise OSError(28, os.strerror(28))


def names(path: Path) -> list[str]:
    paths = sorted(str(file.relative_to(path)) for file in path.rglob("*"))
    return [name for name in paths if not name.startswith(".checkpoints")]


def reason_of(do: Callable[..., object], *arguments: object) -> Reason:
    return refusal(do, *arguments).reason


def test_a_file_has_its_name_when_it_is_complete(folder, tmp_path):
    with folder.saving("", "runs/a.npy", len(DATA)) as (fd, _):
        (temporary,) = os.listdir(tmp_path / "_/runs")
        assert temporary.startswith(".")
        os.write(fd, DATA)
        assert folder.files("") == []
    assert names(tmp_path) == ["_", "_/runs", "_/runs/a.npy"]
    (file,) = folder.files("")
    assert (file.name, file.nbytes, file.type) == ("runs/a.npy", len(DATA), ArrayType((4,), np.dtype(np.uint8)))


def test_an_error_leaves_the_file_before_and_no_new_folders(folder, tmp_path, monkeypatch):
    save(folder, "a.npy")
    for name in ("a.npy", "new/folder/a.npy"):
        with suppress(ZeroDivisionError), folder.saving("ada", name, len(DATA)) as (fd, _):
            os.write(fd, b"half")
            raise ZeroDivisionError
    for operation in ("fsync", "rename"):  # an error of the disk is one clear error
        with monkeypatch.context() as patched:
            patched.setattr(array_folder.os, operation, full_disk)
            assert reason_of(save, folder, "a.npy", HEADER + b"wxyz") is Reason.FILE_LIMIT
    assert names(tmp_path) == ["ada", "ada/a.npy"]
    assert (tmp_path / "ada/a.npy").read_bytes() == DATA


def test_files_that_are_being_saved_count_beside_those_that_they_replace(folder):
    with folder.saving("ada", "a.npy", 3 * len(DATA)):
        save(folder, "b.npy")
        save(folder, "b.npy")
        assert reason_of(save, folder, "c.npy") is Reason.FILE_LIMIT
        save(folder, "c.npy", owner="bob")
    save(folder, "a.npy")
    save(folder, "c.npy")
    assert reason_of(save, folder, "d.npy") is Reason.FILE_LIMIT
    with folder.saving("ada", "a.npy", 1) as (fd, _):
        os.write(fd, b"x")
        for name in ("a.npy", "b.npy"):
            assert reason_of(save, folder, name, 2 * DATA) is Reason.FILE_LIMIT
        save(folder, "a.npy")
        save(folder, "b.npy")
    assert sum(file.nbytes for file in folder.files("ada")) <= 4 * len(DATA)


def test_what_servers_that_were_killed_left_is_removed(folder, tmp_path):
    save(folder, "a/b.npy")
    (tmp_path / "ada/a/.saving-0123").write_bytes(b"half")
    (tmp_path / "ada/a/.saving-4567/c/0").mkdir(parents=True)
    (tmp_path / "ada/a/.saving-4567/c/0/0").write_bytes(b"half")
    with folder.saving("ada", "a/c.npy", len(DATA)) as (fd, _), folder.saving("ada", "a/d.zarr", 1):
        os.write(fd, DATA)
        ArrayFolder(str(tmp_path), 1, 1).close()  # another server of the folder
        assert len(os.listdir(tmp_path / "ada/a")) == 3
    assert sorted(os.listdir(tmp_path / "ada/a")) == ["b.npy", "c.npy", "d.zarr"]


def test_other_files_folders_and_links_are_not_listed(folder, tmp_path):
    save(folder, "a.npy")
    for name in (".hidden.npy", "notes.txt", "b c.npy"):
        (tmp_path / "ada" / name).write_bytes(DATA)
    (tmp_path / "ada/d.npy").mkdir()
    save(folder, "a/b.npy")
    for link, target in (("link", tmp_path / "ada/a"), ("root", "/")):
        (tmp_path / "ada" / link).symlink_to(target)
    assert [file.name for file in folder.files("ada")] == ["a.npy", "a/b.npy"]
    assert reason_of(save, folder, "d.npy") is Reason.INVALID_PARAMETER
    assert not folder.remove("ada", "d.npy")
    assert reason_of(save, folder, "link/b.npy") is Reason.INVALID_PARAMETER


def test_saves_and_removals_in_one_folder_do_not_disturb_one_another(folder, tmp_path):
    def use(name: str) -> None:
        for _ in range(50):
            save(folder, name)
            folder.remove("ada", name)

    on_threads(use, [f"deep/er/{i}.npy" for i in range(3)])
    assert names(tmp_path) == ["ada"]


def test_the_token_file_limits_the_bytes_of_a_principal(tmp_path):
    of_ada = PrincipalLimits(max_file_bytes=2 * len(DATA))
    limited = ArrayFolder(str(tmp_path), 3 * len(DATA), 9, {"ada": of_ada, "bob": PrincipalLimits()}.__getitem__)
    for owner, number, remedy in (("ada", 2, "max_file_bytes in the token file"), ("bob", 3, "--max-file-bytes")):
        for i in range(number):
            save(limited, f"{i}.npy", owner=owner)
        with pytest.raises(CallError, match=remedy):
            save(limited, "more.npy", owner=owner)
        save(limited, "0.npy", owner=owner)  # which takes the place of one
    limited.close()


def save_zarr(folder: ArrayFolder, name: str, data: bytes) -> None:
    """Saves a directory with metadata and one chunk in two folders."""
    with folder.saving("ada", name, len(data)) as (fd, _):
        for leaf in (METADATA_NAME, "chunk"):
            os.close(os.open(leaf, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=fd))
        os.mkdir("c", dir_fd=fd)
        inside = os.open("c", os.O_RDONLY, dir_fd=fd)
        chunk = os.open("0", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=inside)
        os.write(chunk, data)
        os.close(chunk)
        os.close(inside)


def chunk_of(path: Path) -> bytes:
    return (path / "c/0").read_bytes()


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_directory_replaces_the_one_before(exchanges, folder, tmp_path, monkeypatch):
    if not exchanges:  # as on a file system that cannot
        monkeypatch.setattr(array_folder, "exchange", lambda *_: os.stat(tmp_path / "ada/a.zarr") and False)
    for data in (b"one", b"two", b"three"):
        save_zarr(folder, "a.zarr", data)
        assert os.listdir(tmp_path / "ada") == ["a.zarr"]
        assert chunk_of(tmp_path / "ada/a.zarr") == data
    (file,) = folder.files("ada")
    assert (file.name, file.nbytes, file.type) == ("a.zarr", 5, None)


SAVES = """
import os, sys
from shardcall_server.frontend.files import array_folder

if sys.argv[2] == "aside":
    array_folder.exchange = lambda *_: os.stat(sys.argv[1] + "/ada/a.zarr") and False
folder = array_folder.ArrayFolder(sys.argv[1], 1 << 20, 9)
for number in range(1, 1 << 20):
    with folder.saving("ada", "a.zarr", 1) as (fd, _):
        for name in "0123":
            chunk = os.open(name, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=fd)
            os.write(chunk, str(number).encode())
            os.close(chunk)
    print(number, flush=True)
"""


@pytest.mark.parametrize("replaces", ["exchange", "aside"])
def test_a_kill_leaves_the_directory_before_or_the_new_one(replaces, tmp_path):
    """Killed at several moments of its saves, the last of which it may not have reported."""
    path = tmp_path / "ada"
    for delay in range(0, 60_000, 20_000):
        with subprocess.Popen([sys.executable, "-c", SAVES, tmp_path, replaces], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            saved = [int(process.stdout.readline()) for _ in range(3)][-1]
            for _ in range(delay):  # up to some milliseconds
                pass
            process.kill()
            saved = max([saved, *map(int, process.stdout)])
        ArrayFolder(str(tmp_path), 1, 1).close()  # as the next server does
        assert os.listdir(path) == ["a.zarr"]
        assert {(path / "a.zarr" / name).read_text() for name in "0123"} in ({str(saved)}, {str(saved + 1)})


def test_a_directory_that_cannot_be_replaced_is_as_before(folder, tmp_path, monkeypatch):
    save_zarr(folder, "a.zarr", b"one")
    real = os.rename

    def fail(source: str, target: str, **rest: int) -> None:
        if source.startswith(".saving"):
            full_disk()
        real(source, target, **rest)

    with monkeypatch.context() as patched:
        patched.setattr(array_folder, "exchange", lambda *_: False)
        patched.setattr(array_folder.os, "rename", fail)
        assert reason_of(save_zarr, folder, "a.zarr", b"two") is Reason.FILE_LIMIT
    assert os.listdir(tmp_path / "ada") == ["a.zarr"]
    assert chunk_of(tmp_path / "ada/a.zarr") == b"one"


def test_a_server_that_starts_brings_back_what_was_put_aside(folder, tmp_path):
    save_zarr(folder, "a.zarr", b"one")
    save_zarr(folder, "b.zarr", b"two")
    path = tmp_path / "ada"
    (path / "a.zarr").rename(path / ".replaced-0123-a.zarr")  # a kill between the two renames
    (path / "b.zarr").rename(path / ".replaced-0123-b.zarr")
    save_zarr(folder, "b.zarr", b"new")  # and one after them
    ArrayFolder(str(tmp_path), 1, 1).close()
    assert sorted(os.listdir(path)) == ["a.zarr", "b.zarr"]
    assert (chunk_of(path / "a.zarr"), chunk_of(path / "b.zarr")) == (b"one", b"new")


def test_a_directory_without_its_form_is_no_file(folder, tmp_path):
    save_zarr(folder, "a.zarr", 3 * DATA)
    (tmp_path / "ada/b.zarr").write_bytes(b"a file")
    (tmp_path / "ada/link.zarr").symlink_to(tmp_path / "ada/a.zarr")
    assert [file.name for file in folder.files("ada")] == ["a.zarr"]
    for name in ("b.zarr", "link.zarr"):
        assert not folder.remove("ada", name)
        assert reason_of(folder.describe, "ada", name) is Reason.FILE_NOT_FOUND
    save(folder, "b.npy")
    assert reason_of(save, folder, "c.npy") is Reason.FILE_LIMIT, "the files of a directory count"
    assert folder.remove("ada", "a.zarr")
    save(folder, "c.npy")


def test_an_array_that_is_removed_loses_its_metadata_first(folder, tmp_path, monkeypatch):
    """So a reader that has found all chunks, and the metadata after them, has missed none."""
    save_zarr(folder, "a.zarr", b"one")
    removed, real = [], os.unlink
    monkeypatch.setattr(array_folder.os, "unlink", lambda name, **rest: removed.append(name) or real(name, **rest))
    assert folder.remove("ada", "a.zarr")
    assert removed[0] == METADATA_NAME
    assert sorted(removed) == ["0", "chunk", METADATA_NAME]


def test_without_files_every_method_says_why():
    servicer = FileServicer(None, *(MagicMock() for _ in range(4)), IdempotencyTable(), load_settings({}))
    for method in file_service_pb2.DESCRIPTOR.services_by_name["FileService"].methods:
        request = getattr(file_service_pb2, method.input_type.name)()
        with refused(Reason.FILES_UNAVAILABLE, r"start it with --array-dir"):
            getattr(servicer, method.name)(request, FakeServerCall())


def test_a_folder_that_cannot_be_used_is_refused_at_the_start(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match=r"array_dir.*cannot be used: Not a directory"):
        ArrayFolder(str(tmp_path / "file/arrays"), 1, 1)
