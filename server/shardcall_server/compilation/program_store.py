"""Compiled programs on disk: written whole or not at all, and checked before they are used."""

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

from shardcall._src.wire.private_files import PrivateFileError, open_entry, open_private_folder, write_entry

_MAGIC = b"shardcall program 1\n"
_HEAD_BYTES = len(_MAGIC) + hashlib.sha256().digest_size
_ENTRY = re.compile(r"[0-9a-f]{64}\.program")
_PART = re.compile(r"\.[0-9a-f]{32}\.part")
_STALE_PART_S = 3600.0  # nobody takes so long to write one
_KEPT_SHARE = 0.9  # of the limits, when the least recently used go
_MAX_ENTRIES = 1 << 16  # a start of the mesh looks at each


@dataclass
class StoreCounts:
    """What became of the programs that were looked for; numbers only grow.

    Attributes:
        hits: found and used.
        misses: not there, or not to be used, and so compiled.
        damaged: of the misses, those that were there and damaged; they are written anew.
        unwritten: compiled, and could not be kept.
        evicted: removed to keep to the limit.
    """

    hits: int = 0
    misses: int = 0
    damaged: int = 0
    unwritten: int = 0
    evicted: int = 0


def own_program_dir(cache_dir: str) -> str:
    """Returns the folder of programs in the cache folder, having checked it in the front end or agent.

    Args:
        cache_dir: the cache folder; empty for none.

    Raises:
        PrivateFileError: the folder of programs is not this user's alone.
    """
    if not cache_dir:
        return ""
    folder = Path(cache_dir).absolute() / "programs"
    with suppress(OSError):  # such as a read-only file system: the worker reports it, and tries again
        os.close(open_private_folder(folder))
    return str(folder)


class ProgramStore:
    """A folder with one file a program: a digest of the rest and of its key, then its bytes.

    Nothing that goes wrong with the disk is an error to who asks: a program is then compiled. Servers may share a
    folder. What in it does not look like a file of ours is left alone.

    Args:
        folder: where the files are; a private folder, made if it is missing.
        max_bytes: the most that they take together; those go first that were not used for longest.
        host: what of this machine decides which programs run on it, and is not in the keys.

    Attributes:
        counts: what became of what was looked for.

    Raises:
        PrivateFileError: the folder is not this user's alone.
    """

    def __init__(self, folder: Path, max_bytes: int, host: str = "") -> None:
        self.counts = StoreCounts()
        self._folder = folder
        self._max_bytes = max_bytes
        self._host = host
        self._lock = threading.Lock()
        self._warned: set[str] = set()
        self._descriptor = -1
        self._bytes = 0  # at least what is there; what others wrote comes in when old ones are removed
        self._entry_count = 0
        with self._lock:
            try:
                self._open()
                self._evict()
            except OSError as error:
                self._warn("no compiled programs are kept on disk", error)

    def get(self, key: str) -> bytes | None:
        """The bytes of a program, exactly as they were put; None where they are not to be had."""
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
        """Keeps a program in the place of what is there, if that can be done."""
        name = self._name(key)
        content = b"".join((_MAGIC, _digest(name, value), value))
        if len(content) > self._max_bytes:
            return
        with self._lock:
            try:
                self._write(name, content)
                self._bytes, self._entry_count = self._bytes + len(content), self._entry_count + 1
                if self._bytes > self._max_bytes or self._entry_count > _MAX_ENTRIES:
                    self._evict(_KEPT_SHARE)
            except (OSError, PrivateFileError) as error:
                self.counts.unwritten += 1
                self._warn("a compiled program could not be kept on disk", error)

    def unusable(self) -> None:
        """Counts a program that was found, whole, and could not be used after all: it is being compiled."""
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
            found = os.fstat(descriptor)
            if found.st_size > self._max_bytes:
                raise ValueError(f"{name} has {found.st_size} bytes")
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
        """Writes a file beside its place and moves it there; into a new folder where the old one is gone."""
        try:
            write_entry(self._descriptor, name, content)
        except OSError:
            if self._descriptor >= 0 and os.fstat(self._descriptor).st_nlink:
                raise
            self._open()
            self._evict()
            write_entry(self._descriptor, name, content)

    def _entries(self) -> Iterator[tuple[float, str, int]]:
        """Yields (last use, name, bytes) of every program; removes what writers that were killed left."""
        for name in os.listdir(self._descriptor):
            with suppress(FileNotFoundError):  # another server has removed it
                found = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
                if _ENTRY.fullmatch(name):
                    yield found.st_mtime, name, found.st_size
                elif _PART.fullmatch(name) and time.time() - found.st_mtime > _STALE_PART_S:
                    self._remove(name)

    def _evict(self, share: float = 1.0) -> None:
        """Counts what is there, and removes the least recently used down to a share of the limits."""
        entries = sorted(self._entries())
        self._bytes, self._entry_count = sum(size for _, _, size in entries), len(entries)
        for _, name, size in entries:
            if self._bytes <= self._max_bytes * share and self._entry_count <= _MAX_ENTRIES * share:
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

    def _warn(self, what: str, error: Exception) -> None:
        """Says each thing once: the counts tell how often it happened."""
        if what not in self._warned:
            self._warned.add(what)
            structlog.get_logger().warning(what, reason=str(error), folder=str(self._folder))


def _digest(name: str, value: bytes) -> bytes:
    """What is wrong in a file that was moved to another's name, too."""
    return hashlib.sha256(name.encode() + value).digest()
