"""Private files and folders as they are made: what is written where, and what other users can do about it."""

from __future__ import annotations

import ast
import errno
import os
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from client.test_private_files import OTHER, after, as_root
from rows import rows

from shardcall_core.wire import private_files
from shardcall_core.wire.private_files import (
    PrivateFileError,
    is_private_folder,
    make_temporary_folder,
    open_private_folder,
    read_file,
    write_entry,
    write_file,
)

pytestmark = pytest.mark.usefixtures("no_descriptor_is_left")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_written_goes_to_the_folder_that_was_checked(folder, tmp_path, monkeypatch):
    def replace() -> None:
        folder.rename(tmp_path / "moved")
        folder.symlink_to("/")

    after(monkeypatch, "open", replace)
    write_file(folder / "file", b"content")
    assert (tmp_path / "moved" / "file").read_bytes() == b"content"


def test_a_private_folder_that_becomes_a_link_before_it_is_opened_is_refused(tmp_path, monkeypatch):
    def replace() -> None:
        (tmp_path / "private").rmdir()
        (tmp_path / "private").symlink_to("/")

    after(monkeypatch, "mkdir", replace)
    with pytest.raises(PrivateFileError, match="is a symbolic link or a file"):
        open_private_folder(tmp_path / "private")


@pytest.fixture
def without_umask():
    before = os.umask(0)
    yield
    os.umask(before)


# Writing


def test_a_file_is_written_for_this_user_alone_and_its_folder_created(tmp_path, without_umask):
    path = tmp_path / "above" / "folder" / "file"
    assert write_file(path, b"content", sync=True)
    assert path.read_bytes() == b"content"
    assert (mode_of(path), mode_of(path.parent)) == (0o600, 0o700)
    assert os.listdir(path.parent) == ["file"]
    write_file(path, b"", mode=0o644)
    assert mode_of(path) == 0o644


def test_a_link_or_an_exposed_file_is_replaced_and_not_written_through(file, tmp_path):
    (tmp_path / "target").write_bytes(b"target")
    file.chmod(0o666)
    write_file(file, b"new")
    assert mode_of(file) == 0o600
    file.unlink()
    file.symlink_to(tmp_path / "target")
    write_file(file, b"newer")
    assert not file.is_symlink()
    assert (file.read_bytes(), (tmp_path / "target").read_bytes()) == (b"newer", b"target")


def test_a_file_that_is_there_stays_where_none_may_be_replaced(file):
    assert not write_file(file, b"new", replace=False)
    (file.parent / "dangling").symlink_to("none")
    assert not write_file(file.parent / "dangling", b"new", replace=False)
    assert file.read_bytes() == b"content"
    assert sorted(os.listdir(file.parent)) == ["dangling", "file"]


def test_of_several_writers_one_makes_the_file_and_it_is_complete(folder):
    contents = [bytes([number]) * 10_000 for number in range(16)]
    start = threading.Barrier(len(contents))

    def write(content: bytes) -> bool:
        start.wait()
        return write_file(folder / "file", content, replace=False)

    with ThreadPoolExecutor(len(contents)) as pool:
        won = list(pool.map(write, contents))
    assert won.count(True) == 1
    assert (folder / "file").read_bytes() == contents[won.index(True)]
    assert os.listdir(folder) == ["file"]


@pytest.mark.parametrize("failing", ["replace", "fsync"])
def test_what_cannot_be_written_leaves_the_old_file_and_nothing_else(file, monkeypatch, failing):
    def fail(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="No space left"):
        write_file(file, b"new", sync=True)
    assert os.listdir(file.parent) == ["file"]
    assert file.read_bytes() == b"content"


def test_the_part_that_is_renamed_is_never_a_file_of_another(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(private_files.secrets, "token_hex", lambda _: "guessed")
    (tmp_path / "target").write_bytes(b"target")
    for put in (lambda part: part.symlink_to(tmp_path / "target"), lambda part: part.write_bytes(b"another")):
        put(folder / ".guessed.part")
        with pytest.raises(FileExistsError):
            write_file(folder / "file", b"content")
        (folder / ".guessed.part").unlink()
    assert (tmp_path / "target").read_bytes() == b"target"


def test_a_name_that_is_a_folder_is_not_replaced(folder):
    (folder / "name").mkdir()
    with pytest.raises(IsADirectoryError):
        write_file(folder / "name", b"")
    assert os.listdir(folder) == ["name"]


def test_an_entry_is_written_into_an_open_folder_wherever_that_is_now(folder, tmp_path):
    descriptor = open_private_folder(folder)
    try:
        folder.rename(tmp_path / "moved")
        assert write_entry(descriptor, "file", b"content")
    finally:
        os.close(descriptor)
    assert (tmp_path / "moved" / "file").read_bytes() == b"content"


@as_root
def test_a_read_only_file_system_is_read_and_not_written(file):
    (file.parent / "private").mkdir(mode=0o700)
    inside = f"""
import os, sys
from shardcall_core.wire.private_files import open_private_folder, read_file, write_file
assert read_file({str(file)!r}, 7) == b"content"
os.close(open_private_folder({str(file.parent / "private")!r}))
for write in (lambda: write_file({str(file)!r}, b"new"), lambda: open_private_folder({str(file.parent / "new")!r})):
    try:
        write()
    except OSError as error:
        assert error.strerror == "Read-only file system", error
    else:
        sys.exit("written")
"""
    mount = f"mount --bind '{file.parent}' '{file.parent}' && mount -o remount,ro,bind '{file.parent}'"
    try:
        tried = subprocess.run(["unshare", "--mount", "sh", "-c", mount], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("no unshare is installed")
    if tried.returncode:
        pytest.skip("this machine lets nobody mount")
    ran = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f'{mount} && exec "$0" -c "$1"', sys.executable, inside],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert file.read_bytes() == b"content"


# Folders


def test_a_private_folder_is_created_with_those_above_whatever_the_umask(tmp_path, without_umask):
    path = tmp_path / "further above" / "above" / "folder"
    descriptor = open_private_folder(path)
    assert os.listdir(descriptor) == []
    os.close(descriptor)
    assert [mode_of(created) for created in (path, *path.parents[:2])] == [0o700] * 3
    os.close(open_private_folder(path))


@rows("mode", [0o701, 0o710, 0o740, 0o704, 0o755, 0o777, 0o1777])
def test_a_folder_that_others_may_enter_is_not_private(folder, mode):
    folder.chmod(mode)
    with pytest.raises(PrivateFileError, match=rf"{folder} has mode {mode:04o} .*run: chmod 700 {folder}$"):
        open_private_folder(folder)
    assert not is_private_folder(folder.lstat())


@pytest.mark.parametrize("what", ["link", "dangling", "file"])
def test_a_link_or_a_file_is_no_private_folder(folder, tmp_path, what):
    path = tmp_path / "private"
    path.write_bytes(b"") if what == "file" else path.symlink_to(folder if what == "link" else "none")
    with pytest.raises(PrivateFileError, match=f"{path} is a symbolic link or a file, and must be a folder"):
        open_private_folder(path)
    assert not is_private_folder(path.lstat())


@as_root
def test_the_folder_of_another_user_is_not_private(folder):
    os.chown(folder, OTHER, OTHER)
    with pytest.raises(PrivateFileError, match=f"{folder} belongs to user {OTHER}, .*must belong to user 0;"):
        open_private_folder(folder)
    assert not is_private_folder(folder.lstat())


def test_a_private_folder_that_others_may_replace_is_refused(folder):
    private = folder / "private"
    folder.chmod(0o777)
    with pytest.raises(
        PrivateFileError, match=rf"the folder {folder} of {private} has mode 0777 .*chmod go-w {folder}$"
    ):
        open_private_folder(private)
    assert not private.exists()
    folder.chmod(0o1777)  # as /tmp: others cannot move what is ours
    os.close(open_private_folder(private))


def test_a_temporary_folder_is_private(tmp_path, without_umask):
    path = Path(make_temporary_folder("some-", str(tmp_path)))
    assert path.parent == tmp_path
    assert path.name.startswith("some-")
    assert is_private_folder(path.lstat())


def test_a_file_system_without_modes_keeps_no_temporary_folder(tmp_path, monkeypatch):
    def mkdtemp(prefix, dir):  # noqa: A002  # as tempfile's
        (Path(dir) / prefix).mkdir()
        (Path(dir) / prefix).chmod(0o755)
        return f"{dir}/{prefix}"

    monkeypatch.setattr(private_files.tempfile, "mkdtemp", mkdtemp)
    with pytest.raises(PermissionError, match="does not keep a folder of this user with mode 0700"):
        make_temporary_folder("some", str(tmp_path))
    assert os.listdir(tmp_path) == []


# The module


def test_a_file_is_read_where_files_have_no_owners(file, monkeypatch):
    monkeypatch.delattr(os, "geteuid")
    file.chmod(0o666)
    assert read_file(file, 7) == b"content"


def test_every_process_can_import_the_module():
    tree = ast.parse(Path(private_files.__file__).read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names <= {"__future__", *sys.stdlib_module_names}
