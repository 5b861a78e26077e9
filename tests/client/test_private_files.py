"""Private files and folders: what is refused for what others can do to them and to links, and how they are made."""

import ast
import errno
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from client.stream_server import in_threads
from rows import rows

from shardcall_core.wire import private_files
from shardcall_core.wire.private_files import PrivateFileError, open_private_folder, read_file, write_file

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


@rows(
    ("modes", "is_secret", "says"),
    [
        ((0o640, 0o620, 0o610, 0o604, 0o602, 0o601, 0o666, 0o4644), True, ".*read or change.* run: chmod 600 {0}$"),
        ((0o620, 0o602, 0o666), False, ".*let other users change it.*chmod go-w {0}$"),
    ],
)
def test_bits_for_others_are_refused_in_a_secret_and_those_to_write_in_every_file(file, modes, is_secret, says):
    for mode in modes:
        file.chmod(mode)
        with pytest.raises(PrivateFileError, match=f"{file} has mode {mode:04o} {says.format(file)}") as caught:
            read_file(file, 7, is_secret=is_secret)
        assert caught.value.strerror == str(caught.value)
    for mode in (0o644, 0o640):
        file.chmod(mode)
        assert read_file(file, 7, is_secret=False) == b"content"


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


def test_what_is_no_regular_file_is_refused_and_no_fifo_is_waited_for(file, folder):
    os.mkfifo(folder / "fifo", 0o600)
    (folder / "folder").mkdir(mode=0o700)
    for name in ("fifo", "folder"):
        with pytest.raises(PrivateFileError, match=f"{folder / name} is not a regular file"):
            read_file(folder / name, 1)
    with pytest.raises(PrivateFileError, match="is not a regular file"):
        read_file("/dev/null", 1, is_secret=False)
    with pytest.raises(PrivateFileError, match=f"{file} has more than 6 bytes"):
        read_file(file, 6)


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
    for harmless in (0o755, 0o711, 0o500):
        file.parent.chmod(harmless)
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


def test_links_without_end_and_to_nothing_and_entries_that_are_links(file, folder):
    (folder / "loop").symlink_to("loop")
    with pytest.raises(PrivateFileError, match=f"{folder / 'loop'} leads through more than 40 symbolic links"):
        read_file(folder / "loop", 1)
    (folder / "dangling").symlink_to("none")
    with pytest.raises(FileNotFoundError):
        read_file(folder / "dangling", 1)
    (folder / "link").symlink_to(file)
    descriptor = private_files.open_guarded_folder(folder)
    try:
        with pytest.raises(PrivateFileError, match="link is a symbolic link"):
            private_files.open_entry(descriptor, "link", "link")
        os.close(private_files.open_entry(descriptor, "file", file, is_secret=True))
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


def replace_with_another(file: Path) -> None:
    file.rename(file.with_name("moved"))
    file.write_bytes(b"another")
    file.chmod(0o666)


def replace_with_a_link(file: Path) -> None:
    file.rename(file.with_name("moved"))
    file.symlink_to("moved")


def replace_with_a_fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


@pytest.mark.parametrize(
    ("replace", "says"),
    [
        (replace_with_another, "has mode 0666"),
        (replace_with_a_link, "is a symbolic link"),
        (replace_with_a_fifo, "is not a regular file"),
    ],
)
def test_a_file_that_is_replaced_before_it_is_opened_is_checked_as_it_is(file, monkeypatch, replace, says):
    after(monkeypatch, "stat", lambda: replace(file))
    with pytest.raises(PrivateFileError, match=says):
        read_file(file, 7)


def test_a_file_that_is_replaced_after_it_was_opened_is_not_read(file, monkeypatch):
    after(monkeypatch, "open", lambda: replace_with_another(file), count=2)
    assert (read_file(file, 7), file.read_bytes()) == (b"content", b"another")


def test_a_folder_that_is_replaced_after_the_check_is_not_used(file, tmp_path, monkeypatch):
    def replace() -> None:
        file.parent.rename(tmp_path / "moved")
        file.parent.mkdir()
        file.write_bytes(b"another")
        file.chmod(0o600)

    after(monkeypatch, "open", replace)
    assert read_file(file, 7) == b"content"


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
    assert (file.read_bytes(), sorted(os.listdir(file.parent))) == (b"content", ["dangling", "file"])


def test_of_several_writers_one_makes_the_file_and_it_is_complete(folder):
    contents = [bytes([number]) * 10_000 for number in range(16)]
    start = threading.Barrier(len(contents))

    def write(i: int) -> bool:
        start.wait()
        return write_file(folder / "file", contents[i], replace=False)

    won = in_threads(len(contents), write)
    assert (won.count(True), (folder / "file").read_bytes()) == (1, contents[won.index(True)])
    assert os.listdir(folder) == ["file"]


@pytest.mark.parametrize("failing", ["replace", "fsync"])
def test_what_cannot_be_written_leaves_the_old_file_and_nothing_else(file, monkeypatch, failing):
    def fail(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="No space left"):
        write_file(file, b"new", sync=True)
    assert (os.listdir(file.parent), file.read_bytes()) == (["file"], b"content")


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
        assert private_files.write_entry(descriptor, "file", b"content")
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

    def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["unshare", "--mount", "sh", "-c", script, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    if not shutil.which("unshare"):
        pytest.skip("no unshare is installed")
    if run(mount).returncode:
        pytest.skip("this machine lets nobody mount")
    ran = run(f'{mount} && exec "$0" -c "$1"', sys.executable, inside)
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
    refuses(folder, rf"{folder} has mode {mode:04o} .*run: chmod 700 {folder}$")


def refuses(path: Path, says: str) -> None:
    """Checks that a folder is not private."""
    with pytest.raises(PrivateFileError, match=says):
        open_private_folder(path)
    assert not private_files.is_private_folder(path.lstat())


@pytest.mark.parametrize("what", ["link", "dangling", "file"])
def test_a_link_or_a_file_is_no_private_folder(folder, tmp_path, what):
    path = tmp_path / "private"
    path.write_bytes(b"") if what == "file" else path.symlink_to(folder if what == "link" else "none")
    refuses(path, f"{path} is a symbolic link or a file, and must be a folder")


@as_root
def test_the_folder_of_another_user_is_not_private(folder):
    os.chown(folder, OTHER, OTHER)
    refuses(folder, f"{folder} belongs to user {OTHER}, .*must belong to user 0;")


def test_a_private_folder_that_others_may_replace_is_refused(folder):
    private = folder / "private"
    folder.chmod(0o777)
    said = rf"the folder {folder} of {private} has mode 0777 .*chmod go-w {folder}$"
    with pytest.raises(PrivateFileError, match=said):
        open_private_folder(private)
    assert not private.exists()
    folder.chmod(0o1777)  # as /tmp: others cannot move what is ours
    os.close(open_private_folder(private))


def test_a_temporary_folder_is_private(tmp_path, without_umask):
    path = Path(private_files.make_temporary_folder("some-", str(tmp_path)))
    assert path.parent == tmp_path
    assert path.name.startswith("some-")
    assert private_files.is_private_folder(path.lstat())


def test_a_file_system_without_modes_keeps_no_temporary_folder(tmp_path, monkeypatch):
    def mkdtemp(prefix, dir):  # noqa: A002  # as tempfile's
        (Path(dir) / prefix).mkdir()
        (Path(dir) / prefix).chmod(0o755)
        return f"{dir}/{prefix}"

    monkeypatch.setattr(private_files.tempfile, "mkdtemp", mkdtemp)
    with pytest.raises(PermissionError, match="does not keep a folder of this user with mode 0700"):
        private_files.make_temporary_folder("some", str(tmp_path))
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
