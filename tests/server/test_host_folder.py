"""The folder of the server's files on another host: what its agent opens, and what it refuses."""

import os

import pytest
from rows import rows

from shardcall_core.call_error import CallError, Reason
from shardcall_server.agent.array_files import HostFolder
from shardcall_worker.v1 import host_service_pb2


@pytest.fixture
def root(tmp_path):
    (tmp_path / "root/ada/a.zarr").mkdir(parents=True)
    (tmp_path / "root/ada/a.npy").write_bytes(b"values")
    (tmp_path / "root/ada/link.npy").symlink_to("a.npy")
    (tmp_path / "root/linked").symlink_to("ada")
    (tmp_path / "secret.npy").write_bytes(b"secret")
    return tmp_path / "root"


def reference(root, entry, **changes):
    inode = os.stat(root / entry).st_ino
    return host_service_pb2.OpenFile(**({"path": entry, "inode": inode} | changes))


def test_a_file_is_opened_to_read_or_to_write(root):
    folder = HostFolder(str(root), "b")
    reading, writing = (folder.open(reference(root, "ada/a.npy", is_written=written)) for written in (False, True))
    assert os.read(reading, 9) == b"values"
    os.pwrite(writing, b"V", 0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(reading, b"x")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.read(writing, 1)
    assert (root / "ada/a.npy").read_bytes() == b"Values"
    fd = folder.open(reference(root, "ada/a.zarr", is_folder=True))
    assert os.listdir(fd) == []
    for opened in (reading, writing, fd):
        os.close(opened)


@rows(
    ("entry", "changes"),
    [
        ("ada/a.npy", {"inode": 1}),
        ("ada/a.npy", {"path": "ada/b.npy"}),
        ("ada/a.npy", {"path": ""}),
        ("ada/a.npy", {"path": "ada//a.npy"}),
        ("ada/a.npy", {"path": "ada/a.npy/a.npy"}),
        ("ada/a.npy", {"is_folder": True}),
        ("ada/link.npy", {}),
        ("linked/a.npy", {}),
        ("../secret.npy", {}),
        ("ada/../../secret.npy", {}),
        ("../root", {"path": "../root", "is_folder": True}),
    ],
)
def test_what_is_not_below_the_folder_is_not_seen(entry, changes, root):
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(CallError, match=r"the host b does not see the files of the server.*mount the folder") as error:
        HostFolder(str(root), "b").open(reference(root, entry, **changes))
    assert (error.value.reason, error.value.metadata) == (Reason.FILES_UNAVAILABLE, {"host": "b"})
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_folder_is_recognized_by_its_marker(root):
    folder, zarr = HostFolder(str(root), "b"), root / "ada/a.zarr"
    (zarr / "marker").touch()
    os.close(folder.open(reference(root, "ada/a.zarr", is_folder=True, marker="marker")))
    with pytest.raises(CallError, match="does not see"):
        folder.open(reference(root, "ada/a.zarr", is_folder=True, marker="another"))


def test_an_absolute_path_is_not_seen_and_an_agent_without_a_folder_says_so(root):
    secret = root.parent / "secret.npy"
    with pytest.raises(CallError, match="does not see"):
        HostFolder(str(root), "b").open(reference(root, "ada/a.npy", path=str(secret), inode=secret.stat().st_ino))
    with pytest.raises(CallError, match=r"its agent has no --array-dir.*start its agent with --array-dir"):
        HostFolder("", "b").open(reference(root, "ada/a.npy"))
