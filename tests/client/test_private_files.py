"""Private files: what other users can do to a file, its folder and its links, and what is refused for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from rows import rows

from shardcall_core.wire.private_files import PrivateFileError, open_entry, open_guarded_folder, read_file, write_file

OTHER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")
pytestmark = pytest.mark.usefixtures("no_descriptor_is_left")


# Reading: the file


@rows("mode", [0o600, 0o400])
def test_a_file_of_this_user_alone_is_read(file, mode, monkeypatch):
    file.chmod(mode)
    assert read_file(file, 7) == read_file(str(file), 7) == b"content"
    monkeypatch.chdir(file.parent)
    assert read_file("file", 7) == b"content"


def test_a_missing_file_or_folder_is_distinguished_from_a_refused_one(folder):
    for missing in (folder / "none", folder / "none" / "file"):
        with pytest.raises(FileNotFoundError):
            read_file(missing, 1)
    with pytest.raises(NotADirectoryError):
        write_file(folder / "file", b"") and read_file(folder / "file" / "below", 1)


@rows("mode", [0o640, 0o620, 0o610, 0o604, 0o602, 0o601, 0o666, 0o4644])
def test_every_bit_for_others_is_refused_in_a_secret(file, mode):
    file.chmod(mode)
    said = rf"{file} has mode {mode:04o} .*read or change.* run: chmod 600 {file}$"
    with pytest.raises(PrivateFileError, match=said) as caught:
        read_file(file, 7)
    assert caught.value.strerror == str(caught.value)


@rows("mode", [0o644, 0o640, 0o620, 0o602, 0o666])
def test_others_may_read_what_is_no_secret_and_not_change_it(file, mode):
    file.chmod(mode)
    if not mode & 0o022:
        assert read_file(file, 7, is_secret=False) == b"content"
        return
    with pytest.raises(PrivateFileError, match=rf"has mode {mode:04o} .*let other users change it.*chmod go-w {file}$"):
        read_file(file, 7, is_secret=False)


@as_root
@rows("is_secret", [True, False])
def test_the_file_of_another_user_is_refused(file, is_secret):
    os.chown(file, OTHER, OTHER)
    allowed = "user 0" if is_secret else "user 0 or root"
    with pytest.raises(PrivateFileError, match=f"{file} belongs to user {OTHER}, .*must belong to {allowed};"):
        read_file(file, 7, is_secret=is_secret)


@as_root
def test_roots_file_will_do_unless_it_is_a_secret(file, monkeypatch):
    os.chown(file.parent, OTHER, OTHER)
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    assert read_file(file, 7, is_secret=False) == b"content"
    with pytest.raises(PrivateFileError, match=f"belongs to user 0, .*must belong to user {OTHER};"):
        read_file(file, 7)


def test_a_file_that_is_too_large_is_refused(file):
    with pytest.raises(PrivateFileError, match=f"{file} has more than 6 bytes"):
        read_file(file, 6)


def test_what_is_no_regular_file_is_refused_and_no_fifo_is_waited_for(folder):
    os.mkfifo(folder / "fifo", 0o600)
    (folder / "folder").mkdir(mode=0o700)
    for name in ("fifo", "folder"):
        with pytest.raises(PrivateFileError, match=f"{folder / name} is not a regular file"):
            read_file(folder / name, 1)
    with pytest.raises(PrivateFileError, match="is not a regular file"):
        read_file("/dev/null", 1, is_secret=False)


# Reading: the folder


@rows("mode", [0o777, 0o770, 0o720, 0o702, 0o1777, 0o1770])
def test_a_folder_that_others_may_write_to_is_refused(file, mode):
    file.parent.chmod(mode)
    said = rf"the folder {file.parent} of {file} has mode {mode:04o} .*run: chmod go-w {file.parent}$"
    with pytest.raises(PrivateFileError, match=said):
        read_file(file, 7)
    with pytest.raises(PrivateFileError, match=f"the folder {file.parent} has mode {mode:04o}"):
        write_file(file, b"more")
    assert file.read_bytes() == b"content"


@rows("mode", [0o755, 0o711, 0o500])
def test_a_folder_that_others_may_enter_will_do(file, mode):
    file.parent.chmod(mode)
    assert read_file(file, 7) == b"content"


def test_a_sticky_folder_will_do_where_it_is_allowed(file):
    file.parent.chmod(0o1777)
    assert read_file(file, 7, allow_sticky=True) == b"content"
    for mode in (0o666, 0o1666):
        file.chmod(mode)
        with pytest.raises(PrivateFileError, match=f"{file} has mode {mode:04o}"):
            read_file(file, 7, allow_sticky=True)
    file.parent.chmod(0o777)
    with pytest.raises(PrivateFileError, match="the folder"):
        read_file(file, 7, allow_sticky=True)


@as_root
@rows("mode", [0o700, 0o755, 0o1777])
def test_the_folder_of_another_user_is_refused(file, mode):
    os.chown(file.parent, OTHER, OTHER)
    file.parent.chmod(mode)
    with pytest.raises(PrivateFileError, match=f"the folder {file.parent} of {file} belongs to user {OTHER}"):
        read_file(file, 7, allow_sticky=True)


# Symbolic links


def test_links_of_this_user_are_followed(file, tmp_path):
    (tmp_path / "absolute").symlink_to(file)
    (tmp_path / "relative").symlink_to("folder/../folder/file")
    (tmp_path / "chain").symlink_to("relative")
    (tmp_path / "to the folder").symlink_to("folder")
    for link in ("absolute", "relative", "chain", "to the folder/file"):
        assert read_file(tmp_path / link, 7) == b"content"


@pytest.mark.parametrize("exposed", ["first", "second", "folder"])
def test_every_folder_along_the_links_is_checked(file, tmp_path, exposed):
    for name, target in (("first", tmp_path / "second" / "link"), ("second", file)):
        (tmp_path / name).mkdir(mode=0o700)
        (tmp_path / name / "link").symlink_to(target)
    assert read_file(tmp_path / "first" / "link", 7) == b"content"
    (tmp_path / exposed).chmod(0o777)
    with pytest.raises(PrivateFileError, match=f"the folder {tmp_path / exposed} of {tmp_path / 'first' / 'link'}"):
        read_file(tmp_path / "first" / "link", 7)


@as_root
def test_another_users_link_in_a_sticky_folder_is_refused(file, tmp_path):
    (tmp_path / "sticky").mkdir()
    (tmp_path / "sticky").chmod(0o1777)
    link = tmp_path / "sticky" / "link"
    link.symlink_to(file)
    assert read_file(link, 7, allow_sticky=True) == b"content"
    os.lchown(link, OTHER, OTHER)
    with pytest.raises(PrivateFileError, match=f"the symbolic link {link} belongs to user {OTHER}"):
        read_file(link, 7, allow_sticky=True)


def test_links_without_end_and_to_nothing(folder):
    (folder / "loop").symlink_to("loop")
    with pytest.raises(PrivateFileError, match=f"{folder / 'loop'} leads through more than 40 symbolic links"):
        read_file(folder / "loop", 1)
    (folder / "dangling").symlink_to("none")
    with pytest.raises(FileNotFoundError):
        read_file(folder / "dangling", 1)


def test_an_entry_that_is_a_link_is_refused(file):
    (file.parent / "link").symlink_to(file)
    descriptor = open_guarded_folder(file.parent)
    try:
        with pytest.raises(PrivateFileError, match="link is a symbolic link"):
            open_entry(descriptor, "link", "link")
        os.close(open_entry(descriptor, "file", file, is_secret=True))
    finally:
        os.close(descriptor)


# Races: another user acts between two system calls


def after(monkeypatch: pytest.MonkeyPatch, name: str, deed: Callable[[], object], count: int = 1) -> None:
    """Has `deed` happen after the call of that number of a function of `os`, before the caller goes on."""
    real, calls = getattr(os, name), iter(range(1, 100))

    def call(*args, **kwargs):
        result = real(*args, **kwargs)
        if next(calls) == count:
            deed()
        return result

    monkeypatch.setattr(os, name, call)


def replace_with_another(file: Path) -> Callable[[], None]:
    def put() -> None:
        file.rename(file.with_name("moved"))
        file.write_bytes(b"another")
        file.chmod(0o666)

    return put


def replace_with_a_link(file: Path) -> Callable[[], object]:
    return lambda: [file.rename(file.with_name("moved")), file.symlink_to("moved")]


def replace_with_a_fifo(file: Path) -> Callable[[], object]:
    return lambda: [file.unlink(), os.mkfifo(file, 0o600)]


@pytest.mark.parametrize(
    ("replace", "says"),
    [
        (replace_with_another, "has mode 0666"),
        (replace_with_a_link, "is a symbolic link"),
        (replace_with_a_fifo, "is not a regular file"),
    ],
)
def test_a_file_that_is_replaced_before_it_is_opened_is_checked_as_it_is(file, monkeypatch, replace, says):
    after(monkeypatch, "stat", replace(file))
    with pytest.raises(PrivateFileError, match=says):
        read_file(file, 7)


def test_a_file_that_is_replaced_after_it_was_opened_is_not_read(file, monkeypatch):
    after(monkeypatch, "open", replace_with_another(file), count=2)
    assert read_file(file, 7) == b"content"
    assert file.read_bytes() == b"another"


def test_a_folder_that_is_replaced_after_the_check_is_not_used(file, tmp_path, monkeypatch):
    def replace() -> None:
        file.parent.rename(tmp_path / "moved")
        file.parent.mkdir()
        file.write_bytes(b"another")
        file.chmod(0o600)

    after(monkeypatch, "open", replace)
    assert read_file(file, 7) == b"content"
