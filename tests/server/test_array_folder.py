"""The folder of files: names, limits, temporary files and what other processes do there."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from shardcall_core.call_error import CallError, Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_core.wire.token_fields import PrincipalLimits
from shardcall_server.frontend.files import array_folder
from shardcall_server.frontend.files.array_folder import ArrayFolder
from shardcall_server.frontend.files.npy_header import header_of

HEADER = header_of(ArrayType((4,), np.dtype(np.uint8)))
DATA = HEADER + b"abcd"


@pytest.fixture
def folder(tmp_path) -> Iterator[ArrayFolder]:
    opened = ArrayFolder(str(tmp_path), 4 * len(DATA), 3)
    yield opened
    opened.close()


def save(folder: ArrayFolder, name: str, data: bytes = DATA, owner: str = "ada") -> None:
    with folder.saving(owner, name, len(data)) as fd:
        os.write(fd, data)


def save_half(folder: ArrayFolder, name: str) -> None:
    with folder.saving("ada", name, len(DATA)) as fd:
        os.write(fd, b"half")
        raise ZeroDivisionError


def names(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*"))


def reason_of(call) -> Reason:
    with pytest.raises(CallError) as error:
        call()
    return error.value.reason


def test_a_file_has_its_name_when_it_is_complete(folder, tmp_path):
    with folder.saving("", "runs/a.npy", len(DATA)) as fd:
        (temporary,) = os.listdir(tmp_path / "_/runs")
        assert temporary.startswith(".")
        os.write(fd, DATA)
        assert folder.files("") == []
    assert names(tmp_path) == ["_", "_/runs", "_/runs/a.npy"]
    (file,) = folder.files("")
    assert (file.name, file.nbytes, file.type) == ("runs/a.npy", len(DATA), ArrayType((4,), np.dtype(np.uint8)))


def test_an_error_leaves_the_file_before_and_no_new_folders(folder, tmp_path):
    save(folder, "a.npy")
    for name in ("a.npy", "new/folder/a.npy"):
        with pytest.raises(ZeroDivisionError):
            save_half(folder, name)
    assert names(tmp_path) == ["ada", "ada/a.npy"]
    assert (tmp_path / "ada/a.npy").read_bytes() == DATA


@pytest.mark.parametrize("operation", ["fsync", "rename"])
def test_an_error_of_the_disk_is_one_clear_error(operation, folder, tmp_path, monkeypatch):
    save(folder, "a.npy")

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patched:
        patched.setattr(array_folder.os, operation, fail)
        assert reason_of(lambda: save(folder, "a.npy", HEADER + b"wxyz")) is Reason.FILE_LIMIT
    assert names(tmp_path) == ["ada", "ada/a.npy"]
    assert (tmp_path / "ada/a.npy").read_bytes() == DATA


def test_files_that_are_being_saved_count(folder):
    with folder.saving("ada", "a.npy", 3 * len(DATA)):
        save(folder, "b.npy")
        save(folder, "b.npy")
        assert reason_of(lambda: save(folder, "c.npy")) is Reason.FILE_LIMIT
        save(folder, "c.npy", owner="bob")
    save(folder, "a.npy")
    save(folder, "c.npy")
    assert reason_of(lambda: save(folder, "d.npy")) is Reason.FILE_LIMIT


def test_temporary_files_of_servers_that_were_killed_are_removed(folder, tmp_path):
    save(folder, "a/b.npy")
    (tmp_path / "ada/a/.saving-0123").write_bytes(b"half")
    with folder.saving("ada", "a/c.npy", len(DATA)) as fd:
        os.write(fd, DATA)
        ArrayFolder(str(tmp_path), 1, 1).close()  # another server of the folder
        assert len(os.listdir(tmp_path / "ada/a")) == 2
    assert sorted(os.listdir(tmp_path / "ada/a")) == ["b.npy", "c.npy"]


def test_other_files_and_folders_are_not_listed(folder, tmp_path):
    save(folder, "a.npy")
    (tmp_path / "ada/.hidden.npy").write_bytes(DATA)
    (tmp_path / "ada/notes.txt").write_bytes(DATA)
    (tmp_path / "ada/b c.npy").write_bytes(DATA)
    (tmp_path / "ada/d.npy").mkdir()
    (tmp_path / "ada/link").symlink_to("/")
    assert [file.name for file in folder.files("ada")] == ["a.npy"]
    assert reason_of(lambda: save(folder, "d.npy")) is Reason.INVALID_PARAMETER
    assert not folder.remove("ada", "d.npy")


def test_saves_and_removals_in_one_folder_do_not_disturb_one_another(folder, tmp_path):
    def use(name: str) -> None:
        for _ in range(50):
            save(folder, name)
            folder.remove("ada", name)

    threads = [threading.Thread(target=use, args=[f"deep/er/{i}.npy"]) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
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


def test_files_that_are_being_saved_count_beside_those_that_they_replace(folder):
    for i in range(3):
        save(folder, f"{i}.npy")
    with folder.saving("ada", "0.npy", 1) as fd:
        os.write(fd, b"x")
        for name in ("0.npy", "1.npy"):
            assert reason_of(lambda name=name: save(folder, name, 2 * DATA)) is Reason.FILE_LIMIT
        save(folder, "0.npy")
        save(folder, "1.npy")
    assert sum(file.nbytes for file in folder.files("ada")) <= 4 * len(DATA)


def test_a_name_of_a_folder_is_refused_as_such(folder, tmp_path):
    save(folder, "a/b.npy")
    (tmp_path / "ada/c.npy").mkdir()
    (tmp_path / "ada/link").symlink_to(tmp_path / "ada/a")
    for name in ("c.npy", "link/b.npy"):
        assert reason_of(lambda name=name: save(folder, name)) is Reason.INVALID_PARAMETER
