"""Compiled programs on disk: written atomically, verified before use, and the oldest deleted beyond a size."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from shardcall_core.wire.private_files import PrivateFileError, open_entry, open_private_folder, write_entry

_MAGIC = b"shardcall program 1\n"
_HEAD_BYTES = len(_MAGIC) + hashlib.sha256().digest_size
ENTRY_NAME = re.compile(r"[0-9a-f]{64}\.program")
"""The name of a program's file."""

_PART = re.compile(r"\.[0-9a-f]{32}\.part")
_STALE_PART_S = 3600.0  # no writer takes so long
_KEPT_SHARE = 0.9  # of the limits, after an eviction
_MAX_ENTRIES = 1 << 16  # every start of the mesh reads their names and sizes


@dataclass
class StoreCounts:
    """Outcomes of look-ups and writes; numbers only grow.

    Attributes:
        hits: programs that were loaded.
        misses: programs that were missing or unusable, and were compiled.
        damaged: the misses whose files were damaged; they are written again.
        unwritten: compiled programs that could not be written.
        evicted: programs that were removed to keep the limit.
    """

    hits: int = 0
    misses: int = 0
    damaged: int = 0
    unwritten: int = 0
    evicted: int = 0


def private_program_dir(cache_dir: str) -> str:
    """Checks and returns the folder of programs in the cache folder.

    Args:
        cache_dir: the cache folder; empty for none.

    Raises:
        PrivateFileError: another user has access to the folder of programs.
    """
    if not cache_dir:
        return ""
    folder = Path(cache_dir).absolute() / "programs"
    with suppress(OSError):  # such as a read-only file system: the worker reports it, and tries again
        os.close(open_private_folder(folder))
    return str(folder)


class ProgramStore:
    """A folder with one file for each program: a digest of its bytes and its key, then the bytes.

    Errors of the disk are not raised: the program is compiled. Servers may share a folder. Files that do not look like
    those of a store are not touched.

    Args:
        folder: a private folder, created if it is missing.
        max_bytes: maximum bytes of the files; the least recently used are removed first.
        host: the features of this machine that decide which programs run on it and are not in the keys.
        max_entries: maximum number of the files.

    Attributes:
        counts: outcomes so far.

    Raises:
        PrivateFileError: another user has access to the folder.
    """

    def __init__(self, folder: Path, max_bytes: int, host: str = "", max_entries: int = _MAX_ENTRIES) -> None:
        self._max_entries = max_entries
        self.counts = StoreCounts()
        self._folder = folder
        self._max_bytes = max_bytes
        self._host = host
        self._lock = threading.Lock()  # guards the counts, and is held while files are read and written
        self._warned: set[str] = set()
        self._descriptor = -1
        self._bytes = 0  # a lower bound: files of other servers are added at the next eviction
        self._entry_count = 0
        with self._lock:
            try:
                self._open()
                self._evict()
            except OSError as error:
                self._warn("no compiled programs are kept on disk", error)

    def get(self, key: str) -> bytes | None:
        """Returns the bytes of a program exactly as they were put; None if they cannot be read."""
        name = self._name(key)
        with self._lock:
            try:
                value = self._read(name)
            except FileNotFoundError:
                value = None
            except ValueError as error:
                self.counts.damaged += 1
                self._warn("a compiled program on disk is damaged, and compiled anew", error)
                self._remove(name)
                value = None
            except OSError as error:
                self._warn("a compiled program on disk cannot be read, and is compiled anew", error)
                value = None
            if value is None:
                self.counts.misses += 1
            else:
                self.counts.hits += 1
        return value

    def put(self, key: str, value: bytes) -> None:
        """Writes a program, replacing an earlier file, if the disk permits it."""
        name = self._name(key)
        content = b"".join((_MAGIC, _digest(name, value), value))
        if len(content) > self._max_bytes:
            return
        with self._lock:
            try:
                self._write(name, content)
                self._bytes, self._entry_count = self._bytes + len(content), self._entry_count + 1
                if self._bytes > self._max_bytes or self._entry_count > self._max_entries:
                    self._evict(_KEPT_SHARE)
            except (OSError, PrivateFileError) as error:
                self.counts.unwritten += 1
                self._warn("a compiled program could not be kept on disk", error)

    def count_unusable(self) -> None:
        """Counts a complete program that could not be used: it is being compiled."""
        with self._lock:
            self.counts.hits -= 1
            self.counts.misses += 1
            self.counts.damaged += 1
            self._warn("a compiled program on disk cannot be loaded, and is compiled anew", ValueError("not loadable"))

    def _name(self, key: str) -> str:
        return hashlib.sha256(f"{self._host}\0{key}".encode()).hexdigest() + ".program"

    def _open(self) -> None:
        descriptor = open_private_folder(self._folder)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = descriptor

    def _read(self, name: str) -> bytes:
        if self._descriptor < 0:
            raise FileNotFoundError
        descriptor = open_entry(self._descriptor, name, name)
        try:
            size = os.fstat(descriptor).st_size
            if size > self._max_bytes:
                raise ValueError(f"{name} has {size} bytes")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                content = file.read()
            value = content[_HEAD_BYTES:]
            if content[:_HEAD_BYTES] != _MAGIC + _digest(name, value):
                raise ValueError(f"{name} does not have the digest that it should")
            with suppress(OSError):  # a file system that is read only
                os.utime(descriptor)
        finally:
            os.close(descriptor)
        return value

    def _write(self, name: str, content: bytes) -> None:
        """Writes a file atomically; into a new folder if the old one is gone."""
        try:
            write_entry(self._descriptor, name, content)
        except OSError:
            if self._descriptor >= 0 and os.fstat(self._descriptor).st_nlink:
                raise
            self._open()
            self._evict()
            write_entry(self._descriptor, name, content)

    def _entries(self) -> Iterator[tuple[float, str, int]]:
        """Yields (last use, name, bytes) of every program; removes files that killed writers left."""
        for name in os.listdir(self._descriptor):
            with suppress(FileNotFoundError):  # another server has removed it
                status = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
                if ENTRY_NAME.fullmatch(name):
                    yield status.st_mtime, name, status.st_size
                elif _PART.fullmatch(name) and time.time() - status.st_mtime > _STALE_PART_S:
                    self._remove(name)

    def _evict(self, share: float = 1.0) -> None:
        """Counts the programs, and removes the least recently used down to a share of the limits."""
        entries = sorted(self._entries())
        self._bytes, self._entry_count = sum(size for _, _, size in entries), len(entries)
        for _, name, size in entries:
            if self._bytes <= self._max_bytes * share and self._entry_count <= self._max_entries * share:
                break
            self._remove(name)
            self._bytes, self._entry_count = self._bytes - size, self._entry_count - 1
            self.counts.evicted += 1

    def _remove(self, name: str) -> None:
        with suppress(OSError):
            try:
                os.unlink(name, dir_fd=self._descriptor)
            except IsADirectoryError:
                shutil.rmtree(name, dir_fd=self._descriptor, ignore_errors=True)

    def _warn(self, event: str, error: Exception) -> None:
        """Logs each event once; `counts` has their number."""
        if event not in self._warned:
            self._warned.add(event)
            structlog.get_logger().warning(event, reason=str(error), folder=str(self._folder))


def _digest(name: str, value: bytes) -> bytes:
    """Returns a digest that also depends on the name, so that it is wrong in a renamed file."""
    return hashlib.sha256(name.encode() + value).digest()
