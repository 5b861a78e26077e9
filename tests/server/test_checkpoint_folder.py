"""The folder of checkpoints: whatever ends a write, the last complete checkpoint is there."""

import errno
import hashlib
import os
import shutil
from contextlib import closing
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from rows import rows
from server.conftest import refusal, refused

from shardcall.v1 import mesh_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.frontend.files.checkpoint_folder import Checkpoint, CheckpointArray, CheckpointFolder, file_bytes
from shardcall_server.frontend.files.npy_header import header_of
from shardcall_server.link.block_checksums import BLOCK_BYTES, blocks_of, check_blocks
from shardcall_server.link.wire import encode_array_type
from shardcall_server.settings import SettingsError


@pytest.fixture
def root(tmp_path) -> Path:
    (tmp_path / "arrays").mkdir()
    return tmp_path / "arrays"


def opened(root: Path) -> closing[CheckpointFolder]:
    return closing(CheckpointFolder(str(root)))


def written(root: Path, name: str, x: np.ndarray) -> CheckpointArray:
    """Writes the file of an array, as the worker does."""
    array_type = ArrayType(x.shape, x.dtype)
    header, file = header_of(array_type), f"{os.urandom(8).hex()}.npy"
    (root / ".checkpoints" / file).write_bytes(header + x.tobytes())
    type_, mesh = encode_array_type(array_type), mesh_pb2.Mesh()
    return CheckpointArray(name=name, handle=os.urandom(16), type=type_, mesh=mesh, file=file, offset=len(header))


def save(folder: CheckpointFolder, owner: str, *arrays: CheckpointArray) -> Checkpoint:
    checkpoint = Checkpoint(time_seconds=1.5, arrays=arrays)
    with folder.changing():
        folder.write(owner, checkpoint)
    return checkpoint


def saved(root: Path) -> CheckpointArray:
    """Has a server save one array, and ends it."""
    with opened(root) as folder:
        save(folder, "ada", array := written(root, "u", np.arange(5)))
    return array


def forget(folder: CheckpointFolder, name: str, handle: bytes) -> None:
    with folder.forgetting("ada", [(name, handle)]):
        pass


def names(root: Path) -> set[str]:
    return {name for name in os.listdir(root / ".checkpoints") if name != "lock" and not name.endswith(".marker")}


def test_a_checkpoint_that_is_cut_at_any_byte_leaves_the_one_before(root, tmp_path):
    draws = np.random.default_rng(0)
    with opened(root) as folder:
        first = save(folder, "ada", written(root, "u", np.arange(9.0)), written(root, "v", np.arange(3)))
        before = names(root)
        new = [written(root, "u", np.arange(40.0)), written(root, "w", np.arange(7, dtype=np.int16))]
        second = save(folder, "ada", first.arrays[1], *new)
    order = [*(array.file for array in new), *(names(root) - before - {array.file for array in new})]
    data = [(root / ".checkpoints" / file).read_bytes() for file in order]
    total = sum(map(len, data))
    for cut in [0, total, *draws.integers(0, total, 100).tolist()]:
        copy = tmp_path / "copy"
        shutil.copytree(root, copy)
        left = cut
        for file, content in zip(order, data, strict=True):
            path = copy / ".checkpoints" / file
            path.unlink()
            if left:
                is_renamed = not file.endswith(".checkpoint") or left >= len(content)
                (path if is_renamed else path.with_name(".saving")).write_bytes(content[:left])
            left = max(0, left - len(content))
        with opened(copy) as folder:
            expected = second if cut == total else first
            assert folder.last("ada") == expected, cut
            for array in expected.arrays:
                folder.check_file(array)
        shutil.rmtree(copy)


def test_two_checkpoints_stay_and_unused_files_go(root):
    with opened(root) as folder:
        arrays = [written(root, "u", np.arange(n)) for n in range(4)]
        for array in arrays:
            save(folder, "", array)
        assert {array.file for array in arrays[2:]} == {name for name in names(root) if name.endswith(".npy")}
        assert folder.nbytes("") == file_bytes(arrays[3])
        assert folder.has("", "u", arrays[3].handle)
        assert not folder.has("", "u", arrays[2].handle)
        other = save(folder, "a@b.c-d", written(root, "u", np.arange(2)))
        (root / ".checkpoints" / "left.npy").touch()
    with opened(root) as folder:
        assert "left.npy" not in names(root)
        assert sorted(folder.owners()) == ["", "a@b.c-d"]
        assert folder.last("a@b.c-d") == other
        assert folder.last("").arrays[0] == arrays[3]


@rows("missing_bytes", [0, 1])
def test_the_checkpoint_before_stays_where_there_is_space_for_what_it_alone_has(root, missing_bytes):
    with opened(root) as folder:
        u, v, w = (written(root, name, np.arange(8)) for name in "uvw")
        save(folder, "ada", u, v)
        save(folder, "ada", u, w)
        with folder.changing():
            folder.limit_before("ada", file_bytes(v) - missing_bytes)
        assert len(names(root) - {u.file, w.file}) == (1 if missing_bytes else 3)


def test_forgotten_names_are_gone_with_their_files(root):
    with opened(root) as folder:
        u, v = written(root, "u", np.arange(5)), written(root, "v", np.arange(6))
        save(folder, "ada", u)
        save(folder, "ada", u, v)
        with folder.forgetting("ada", [("u", b"another"), ("none", b"")]):
            assert folder.find("ada", "u") is None
        assert not (root / ".checkpoints" / u.file).exists()
        forget(folder, "renamed", v.handle)
    with opened(root) as folder:
        assert not folder.last("ada").arrays


def test_a_write_that_fails_changes_nothing(root, monkeypatch):
    with opened(root) as folder:
        first = save(folder, "ada", written(root, "u", np.arange(5)))
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
            assert refusal(save, folder, "ada", written(root, "u", np.arange(6))).reason is Reason.FILE_LIMIT
            with pytest.raises(CallError), folder.forgetting("ada", [("u", b"")]):
                pytest.fail("nothing is to be deleted")
        assert folder.last("ada") == first
    with opened(root) as folder:
        assert folder.last("ada") == first


def test_a_folder_belongs_to_one_server_at_a_time_which_marks_it_anew(root):
    markers = []
    for _ in range(3):
        with opened(root) as folder:
            markers.append(folder.marker)
            assert [path.name for path in root.glob(".checkpoints/*.marker")] == markers[-1:]
            second = CheckpointFolder(str(root))
            first = save(folder, "ada", written(root, "u", np.arange(5)))
            assert (folder.is_held, second.is_held, second.take(), second.marker) == (True, False, False, "")
            assert not second.owners()
        with closing(second):
            assert second.take()
            assert second.last("ada") == first
    assert len(set(markers)) == 3


def damage(path: Path, *positions: int) -> None:
    data = bytearray(path.read_bytes())
    for position in positions:
        data[position] ^= 4
    path.write_bytes(data)


def test_one_damaged_copy_of_a_checkpoint_costs_nothing(root):
    with opened(root) as folder:
        save(folder, "ada", u := written(root, "u", np.arange(5)))
    (path,) = (root / ".checkpoints").glob("*.checkpoint")
    data = path.read_bytes()
    for position in range(0, len(data), 7):
        damage(path, position)
        with opened(root) as folder:
            assert list(folder.last("ada").arrays) == [u]
        path.write_bytes(data)


def test_no_older_values_stand_for_those_of_a_damaged_checkpoint(root):
    with opened(root) as folder:
        first = save(folder, "ada", written(root, "u", np.arange(5)))
        second = save(folder, "ada", written(root, "u", np.arange(6)))
        other = save(folder, "bob", written(root, "u", np.arange(7)))
    path = root / ".checkpoints" / f"ada.{2:016x}.checkpoint"
    data = path.read_bytes()
    damage(path, 0, -1)  # both copies
    with opened(root) as folder:
        assert (folder.last("ada"), folder.last("bob")) == (Checkpoint(), other)
        assert f"the last checkpoint, {path.name} in .checkpoints, is damaged" in folder.note("ada", "u")
        for _ in range(3):
            third = save(folder, "ada", written(root, "v", np.arange(8)))
        assert "does not have it" in folder.note("ada", "u")
    with opened(root) as folder:  # nothing that was there has gone meanwhile
        assert folder.last("ada") == third
        for array in [*first.arrays, *second.arrays]:
            folder.check_file(array)
    for later in (root / ".checkpoints").glob("ada.*"):
        if later > path:
            later.unlink()
    path.write_bytes(data)
    with opened(root) as folder:
        assert folder.last("ada") == second


def test_a_damaged_file_leaves_the_other_arrays_of_its_checkpoint(root):
    with opened(root) as folder:
        save(folder, "ada", *(written(root, name, np.arange(5)) for name in "uv"))
        last = save(folder, "ada", *(written(root, name, np.arange(6)) for name in "uv"))
    u, v = last.arrays
    path = root / ".checkpoints" / v.file
    for cut in (lambda: path.write_bytes(path.read_bytes()[:-1]), path.unlink):
        cut()
        with opened(root) as folder:
            assert folder.last("ada") == last
            folder.check_file(u)
            with refused(Reason.FILE_DAMAGED, f"its file {v.file}"):
                folder.check_file(v)


@rows("size", [1, 100, BLOCK_BYTES - 129, BLOCK_BYTES - 128, 3 * BLOCK_BYTES + 5])
def test_a_bit_that_changes_in_a_file_is_detected_within_its_block(size, tmp_path):
    root = tmp_path / str(size)
    root.mkdir()
    with opened(root) as folder:
        array = written(root, "u", np.zeros(size, np.int8))
        folder.add_checksums(array)
    blocks = blocks_of(0, file_bytes(array))
    assert len(array.block_checksums) == len(blocks) == -(-(128 + size) // BLOCK_BYTES)
    path = root / ".checkpoints" / array.file
    for position in (0, 127, 128, 127 + size):
        damage(path, position)
        with path.open("rb") as file:
            for block in blocks:
                check = partial(check_blocks, file.fileno(), [block], array.block_checksums)
                if block == position // BLOCK_BYTES:
                    assert refusal(check).reason is Reason.FILE_DAMAGED
                else:
                    check()
            check_blocks(file.fileno(), blocks, [])  # the first servers wrote none
        damage(path, position)


def test_a_lack_of_descriptors_is_no_damage(root, monkeypatch):
    with opened(root) as folder:
        first = save(folder, "ada", written(root, "u", np.arange(5)))
        second = CheckpointFolder(str(root))
    with closing(second):
        with monkeypatch.context() as patched:
            patched.setattr(CheckpointFolder, "_parsed", Mock(side_effect=OSError(errno.EMFILE, "Too many open files")))
            with pytest.raises(CallError):
                second.take()
        assert second.take()  # and the lock is not lost
        assert second.last("ada") == first


def test_files_that_a_mesh_may_read_stay_as_long_as_it(root):
    with opened(root) as folder:
        save(folder, "ada", u := written(root, "u", np.arange(5)))
        folder.declare([u.file])
        forget(folder, "u", u.handle)
        assert u.file in names(root)
        folder.end_mesh()
        assert u.file not in names(root)


def test_deletions_during_a_save_are_noted(root):
    with opened(root) as folder:
        u, v = written(root, "u", np.arange(5)), written(root, "v", np.arange(5))
        folder.begin_save("ada")
        forget(folder, "u", u.handle)
        with folder.changing():
            assert [folder.was_deleted("ada", array, 1) for array in (u, v)] == [True, False]
            anew = written(root, "u", np.arange(5))
            assert not folder.was_deleted("ada", anew, folder.deletions("ada"))  # it got the name of an earlier one
            assert folder.was_deleted("ada", anew, 0)  # a later value of it was deleted
        folder.end_save("ada")
        folder.begin_save("ada")
        assert folder.deletions("ada") == 0


def test_links_are_not_followed(root, tmp_path):
    (tmp_path / "other").mkdir()
    (root / ".checkpoints").symlink_to(tmp_path / "other")
    with pytest.raises(SettingsError, match="cannot be used"):
        CheckpointFolder(str(root))
    (root / ".checkpoints").unlink()
    u = saved(root)
    (root / ".checkpoints" / u.file).rename(tmp_path / u.file)
    (root / ".checkpoints" / u.file).symlink_to(tmp_path / u.file)
    with opened(root) as folder, refused(Reason.FILE_DAMAGED, "bytes of"):
        folder.check_file(u)


def test_the_files_of_version_0_1_are_read(root):
    type_, mesh = encode_array_type(ArrayType((7, 5), np.dtype("f8"))), mesh_pb2.Mesh()
    array = CheckpointArray(name="u", handle=bytes(range(16)), type=type_, mesh=mesh, file="ab.npy", offset=128)
    array.ends_at_seconds = 2.5
    written_by_0_1 = bytes.fromhex(
        "09000000000000f83f12330a01751210000102030405060708090a0b0c0d0e0f1a06080f12020705220032"
        "0661622e6e7079388001410000000000000440"
    )
    file = root / ".checkpoints" / f"_.{1:016x}.checkpoint"
    file.parent.mkdir()
    file.write_bytes(hashlib.sha256(written_by_0_1).digest() + written_by_0_1)
    with opened(root) as folder:
        assert folder.last("") == Checkpoint(time_seconds=1.5, arrays=[array])
