"""Checkpoints of the arrays with names of all principals, in a folder below that of the arrays' files.

A checkpoint is one file with two copies of a list, each with a checksum. The list names npy files with the values of
its arrays, and has the checksums of their blocks; arrays that have not changed share theirs with the checkpoint before.
Every file is written under a name of its own and brought to the disk before a checkpoint names it.

The checkpoint before the last one stays until the next, for the administrator, where the limit of its principal's files
has space for both: if the last one is damaged in both copies, no array is restored, and nothing that is in the folder
is removed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import math
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import structlog

from shardcall_core.call_error import CallError, Reason
from shardcall_core.locks import check_held, lock
from shardcall_server.link.block_checksums import blocks_of, checksums
from shardcall_server.link.file_errors import file_error
from shardcall_server.link.wire import decode_array_type
from shardcall_server.settings import SettingsError
from shardcall_worker.v1 import checkpoint_pb2

FOLDER_ORDER = 10
"""The order of the folder's lock, under which that of the table of arrays is taken."""

_NAME = ".checkpoints"
_NOBODY = "_"  # the principal of callers without one
_FILE = re.compile(r"(?P<owner>.+)\.(?P<sequence>[0-9a-f]{16})\.checkpoint")
_TEMPORARY = ".saving"
_LOCK = "lock"
_MARKER = ".marker"
_DIGEST_BYTES = hashlib.sha256().digest_size
_MAX_CHECKPOINT_BYTES = 1 << 30
_KEPT = 2  # the last one and the one before
_GONE = frozenset({errno.ENOENT, errno.ELOOP, errno.EISDIR, errno.ENOTDIR})
_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC

Checkpoint = checkpoint_pb2.Checkpoint
CheckpointArray = checkpoint_pb2.CheckpointArray


class CheckpointFolder:
    """The checkpoints of all principals, which belong to one server at a time.

    Args:
        path: the folder of the arrays' files, which exists.

    Attributes:
        fd: the descriptor of the folder.
        path: its path below that of the arrays' files.
        marker: the name of a file that this server has made in it, by which other hosts recognize it; empty for none.
        is_held: True once the checkpoints belong to this server, which no other server ends.
        unrestored: by principal and name, why an array of the last checkpoint is not on the mesh.
        restored_epoch: the epoch of the mesh that has the other arrays; 0 until there is one.

    Raises:
        SettingsError: the folder cannot be used.
    """

    def __init__(self, path: str) -> None:
        # Guards the checkpoints and their files; deletions of arrays with names hold it, too.
        self._lock = lock("the lock of the checkpoints", FOLDER_ORDER)
        self._kept: dict[str, list[tuple[int, Checkpoint]]] = {}  # by principal, the last one last
        self._arrays: dict[str, dict[str, CheckpointArray]] = {}  # of the last one, by principal and name
        self._sequences: dict[str, int] = {}  # of the last checkpoint, which may be damaged, by principal
        self._damaged: dict[str, str] = {}  # the last damaged checkpoint, by principal
        self._spared: set[str] = set()  # what was there beside a damaged one, with which it may be mended
        self._deleted: dict[str, list[tuple[str, bytes]]] = {}  # during a save: names and handles by principal
        self._declared: set[str] = set()  # files that the present mesh may still read
        self.unrestored: dict[tuple[str, str], str] = {}
        self.restored_epoch = 0
        self.is_held = False
        self.path = _NAME
        self.marker = ""
        self._holder = -1  # the descriptor of the lock file
        try:
            folder = os.path.join(path, _NAME)
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, 0o700)
            self.fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _FLAGS)
            self._take()
        except OSError as error:
            raise SettingsError(
                f"setting array_dir is {path!r}, whose folder {_NAME} cannot be used: {error.strerror}; name a folder "
                "that the server's user may write to"
            ) from None

    def close(self) -> None:
        """Leaves the checkpoints to the next server."""
        if self._holder >= 0:
            os.close(self._holder)
        os.close(self.fd)

    def take(self) -> bool:
        """Makes the checkpoints those of this server and reads them, unless they are another one's; returns is_held.

        Raises:
            CallError: FILES_UNAVAILABLE.
        """
        if not self.is_held:
            try:
                self._take()
            except OSError as error:
                raise file_error(error) from error
        return self.is_held

    def _take(self) -> None:
        with self._lock:
            if self.is_held:
                return
            holder = os.open(_LOCK, os.O_RDWR | os.O_CREAT | _FLAGS, 0o600, dir_fd=self.fd)
            try:
                fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._read()
                self.marker = self._mark()
            except BlockingIOError:
                os.close(holder)
                return
            except BaseException:
                os.close(holder)
                raise
            self._holder = holder
            self.is_held = True

    def _mark(self) -> str:
        marker = f"{secrets.token_hex(16)}{_MARKER}"  # the next server removes it
        try:
            os.close(os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600, dir_fd=self.fd))
        except OSError:  # a full disk; arrays can be read all the same
            return ""
        return marker

    def last(self, owner: str) -> Checkpoint:
        """Returns the last checkpoint of a principal; an empty one if there is none."""
        kept = self._kept.get(owner)
        return kept[-1][1] if kept else Checkpoint()

    def owners(self) -> list[str]:
        """Returns the principals that have a checkpoint."""
        return list(self._kept)

    def find(self, owner: str, name: str) -> CheckpointArray | None:
        """Returns an array of the last checkpoint of a principal; None if there is none of this name."""
        return self._arrays.get(owner, {}).get(name)

    def nbytes(self, owner: str) -> int:
        """Returns the bytes of the arrays' files of the last checkpoint of a principal."""
        return sum(map(file_bytes, self.last(owner).arrays))

    def has(self, owner: str, name: str, handle: bytes) -> bool:
        """Returns whether the last checkpoint has these values of a name."""
        array = self.find(owner, name)
        return array is not None and array.handle == handle

    def is_awaited(self, owner: str, name: str) -> bool:
        """Returns whether the next mesh is to have an array of the last checkpoint."""
        return not self.restored_epoch and self.find(owner, name) is not None

    def end_epoch(self, epoch: int) -> None:
        """Ends the mesh that has the arrays, if it is the one of an epoch."""
        if self.restored_epoch == epoch:
            self.restored_epoch = 0

    def note(self, owner: str, name: str = "") -> str:
        """Returns a part of an error about a lost array: what the last checkpoint has; empty if there is none."""
        checkpoint = self.last(owner)
        if not self._kept.get(owner) and owner in self._damaged:
            return (
                f"; the last checkpoint, {self._damaged[owner]} in {_NAME}, is damaged, so that no name is restored: "
                "have the administrator mend that file, or remove it to go back to the checkpoint before"
            )
        if not checkpoint.arrays:
            return ""
        if (array := self.find(owner, name)) is None:
            when, what = moment(checkpoint.time_seconds), "does not have it"
            if not name:
                what = "has the values of its names then, for client.open(name)"
            return f"; the last checkpoint, of {when}, {what}"
        when = moment(time_of(array, checkpoint))
        if (owner, name) in self.unrestored:
            why = self.unrestored[owner, name]
            return (
                f"; the last checkpoint, of {when}, has it, but {why}; put another array under the name to replace it"
            )
        return f"; the last checkpoint, of {when}, has its values then, for client.open(name)"

    def check_file(self, array: CheckpointArray) -> None:
        """Checks that the file of an array is there, with all of its bytes.

        Raises:
            CallError: FILE_DAMAGED, FILES_UNAVAILABLE.
        """
        try:
            status = os.stat(array.file, dir_fd=self.fd, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _GONE:
                raise file_error(error) from error
            what = "is missing"
        else:
            if status.st_size == file_bytes(array):
                return
            what = f"has {status.st_size:,} bytes of {file_bytes(array):,}"
        raise CallError(Reason.FILE_DAMAGED, f"its file {array.file} in {_NAME} {what}", field="name")

    def add_checksums(self, array: CheckpointArray) -> None:
        """Adds the checksums of the file of an array, which is on the disk, to an array of a checkpoint.

        Raises:
            CallError: FILES_UNAVAILABLE.
        """
        try:
            fd = os.open(array.file, os.O_RDONLY | _FLAGS, dir_fd=self.fd)
            try:
                array.block_checksums.extend(checksums(fd, blocks_of(0, file_bytes(array))))
            finally:
                os.close(fd)
        except OSError as error:
            raise file_error(error) from error

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Excludes other changes of checkpoints during the body."""
        with self._lock:
            yield

    @contextmanager
    def forgetting(self, owner: str, arrays: Sequence[tuple[str, bytes]]) -> Iterator[None]:
        """Removes arrays from the last checkpoint, and holds off new ones during the body, which deletes them.

        Args:
            arrays: their names and handles; the checkpoint may have another name of a handle.

        Raises:
            CallError: FILE_LIMIT, FILES_UNAVAILABLE; the checkpoint is as before.
        """
        names, handles = {name for name, _ in arrays}, {handle for _, handle in arrays}
        with self._lock:
            last = self.last(owner)
            left = [array for array in last.arrays if array.name not in names and array.handle not in handles]
            if len(left) < len(last.arrays):
                self.write(owner, Checkpoint(time_seconds=last.time_seconds, arrays=left), keeps_before=False)
            for name in names:
                self.unrestored.pop((owner, name), None)
            if owner in self._deleted:
                self._deleted[owner].extend(arrays)
            yield

    def begin_save(self, owner: str) -> None:
        """Begins to remember what is deleted, for the one save of a principal at a time."""
        self._deleted[owner] = []  # without the lock, under which others wait for the disk

    def deletions(self, owner: str) -> int:
        """Returns the number of deletions during the save of a principal."""
        return len(self._deleted[owner])

    def was_deleted(self, owner: str, array: CheckpointArray, deletions: int) -> bool:
        """Returns whether an array was deleted during the save of its principal.

        Args:
            deletions: the number of deletions before the moment of the save. Of these, one of the name may be of an
                earlier array.
        """
        check_held(self._lock)
        deleted = self._deleted[owner]
        names = {name for name, _ in deleted[deletions:]}
        return array.name in names or any(array.handle == handle for _, handle in deleted)

    def end_save(self, owner: str) -> None:
        """Ends what `begin_save` began."""
        self._deleted.pop(owner, None)

    def declare(self, files: Iterable[str]) -> None:
        """Keeps files, which a mesh may read at any time, until it has ended."""
        self._declared.update(files)

    def end_mesh(self) -> None:
        """Removes the files that the mesh before has kept from removal."""
        with self._lock:
            gone, self._declared = self._declared, set()
            self.remove(gone - self._named_files())

    def _named_files(self) -> set[str]:
        return {array.file for kept in self._kept.values() for _, left in kept for array in left.arrays}

    def write(self, owner: str, checkpoint: Checkpoint, *, keeps_before: bool = True) -> None:
        """Makes a checkpoint, whose arrays are in files of this folder, the last one of a principal.

        Args:
            keeps_before: whether the one before stays, too, as it does unless something was deleted.

        Raises:
            CallError: FILE_LIMIT, FILES_UNAVAILABLE.
        """
        check_held(self._lock)
        kept = self._kept.get(owner, [])
        sequence = self._sequences.get(owner, 0) + 1
        if not checkpoint.arrays and not kept:
            return
        try:
            self._write(_file_of(owner, sequence), checkpoint)
        except OSError as error:
            raise file_error(error) from error
        self._sequences[owner] = sequence
        self._kept[owner] = [*kept, (sequence, checkpoint)]
        self._arrays[owner] = {array.name: array for array in checkpoint.arrays}
        self._keep(owner, _KEPT if keeps_before else 1)

    def limit_before(self, owner: str, nbytes: int) -> None:
        """Removes the checkpoint before the last one if the files that it alone has are larger than so many bytes."""
        check_held(self._lock)
        files = {array.file for array in self.last(owner).arrays}
        before = [array for _, checkpoint in self._kept.get(owner, [])[:-1] for array in checkpoint.arrays]
        if sum(file_bytes(array) for array in before if array.file not in files) > nbytes:
            self._keep(owner, 1)

    def _keep(self, owner: str, count: int) -> None:
        """Removes all checkpoints of a principal but the last ones."""
        gone, kept = self._kept[owner][:-count], self._kept[owner][-count:]
        self._kept[owner] = kept
        self.remove(_file_of(owner, number) for number, _ in gone)
        files = {array.file for _, left in kept for array in left.arrays}
        self.remove({array.file for _, left in gone for array in left.arrays} - files)

    def remove(self, files: Iterable[str]) -> None:
        """Removes files that no checkpoint names, and no damaged one may name."""
        for file in files:
            if file not in self._declared and file not in self._spared:
                with contextlib.suppress(OSError):  # the next start removes it
                    os.unlink(file, dir_fd=self.fd)

    def _write(self, name: str, checkpoint: Checkpoint) -> None:
        body = checkpoint.SerializeToString(deterministic=True)
        os.fsync(self.fd)  # the names of the arrays' files
        fd = os.open(_TEMPORARY, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _FLAGS, 0o600, dir_fd=self.fd)
        with open(fd, "wb") as file:
            file.write(2 * (hashlib.sha256(body).digest() + body))
            file.flush()
            os.fsync(fd)
        os.rename(_TEMPORARY, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        os.fsync(self.fd)

    def _read(self) -> None:
        """Reads the checkpoints; removes files of earlier servers that none names, unless one is damaged."""
        there = set(os.listdir(self.fd))
        self.remove(name for name in there if name.endswith(_MARKER))
        self._kept, self._arrays, self._sequences, self._damaged = {}, {}, {}, {}
        by_owner: dict[str, list[tuple[int, str]]] = {}
        for file in there:
            if match := _FILE.fullmatch(file):
                owner = "" if match["owner"] == _NOBODY else match["owner"]
                by_owner.setdefault(owner, []).append((int(match["sequence"], 16), file))
        for owner, files in by_owner.items():
            kept = self._kept.setdefault(owner, [])
            for sequence, file in sorted(files):
                self._sequences[owner] = sequence
                checkpoint = self._parsed(file)
                if checkpoint is None:
                    kept.clear()  # so that no older values stand where newer ones were
                    self._damaged[owner] = file
                    structlog.get_logger().warning("a checkpoint is damaged", principal=owner, file=file)
                    continue
                kept.append((sequence, checkpoint))
                del kept[:-_KEPT]
            self._arrays[owner] = {array.name: array for array in self.last(owner).arrays}
        named = {_file_of(owner, sequence) for owner, kept in self._kept.items() for sequence, _ in kept}
        self._spared = there if self._damaged else set()
        self.remove(there - named - self._named_files() - {_LOCK})

    def _parsed(self, file: str) -> Checkpoint | None:
        """Returns the checkpoint in a file; None if it is damaged."""
        try:
            with open(os.open(file, os.O_RDONLY | _FLAGS, dir_fd=self.fd), "rb") as opened:
                data = opened.read(2 * _MAX_CHECKPOINT_BYTES)
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise  # such as a lack of descriptors, which says nothing about the file
        middle = len(data) // 2
        for copy in (data[:middle], data[middle:], data):  # the first servers wrote one copy
            body = copy[_DIGEST_BYTES:]
            if hashlib.sha256(body).digest() == copy[:_DIGEST_BYTES]:
                return Checkpoint.FromString(body)
        return None


def file_bytes(array: CheckpointArray) -> int:
    """Returns the size of the file of an array."""
    return array.offset + decode_array_type(array.type, "type").nbytes


def time_of(array: CheckpointArray, checkpoint: Checkpoint) -> float:
    """Returns the moment at which a name stood for the values that a checkpoint has, in seconds since 1970-01-01."""
    return array.time_seconds or checkpoint.time_seconds


def moment(seconds: float) -> str:
    """Returns a moment as errors show it, from seconds since 1970-01-01 00:00 UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def is_expired(array: CheckpointArray) -> bool:
    """Returns whether the time of an array has ended."""
    return 0 < array.ends_at_seconds <= time.time()


def ends_at(expires_in_s: float) -> float:
    """Returns the moment of an end in so many seconds, as checkpoints have it."""
    return time.time() + expires_in_s if expires_in_s < math.inf else 0.0


def new_file() -> str:
    """Returns the name of a new file of an array."""
    return f"{secrets.token_hex(16)}.npy"


def _file_of(owner: str, sequence: int) -> str:
    return f"{owner or _NOBODY}.{sequence:016x}.checkpoint"
