"""JAX's persistent compilation cache, with our files below it instead of JAX's.

JAX's own are not written atomically, are never checked and never repaired: a file that was cut short is compiled anew
at every start. JAX decides the keys and what the bytes mean; we keep them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from pathlib import Path

import jax
import structlog

from shardcall_server.compilation.program_store import ProgramStore

# Not of JAX's public interface, which has no way to keep the entries elsewhere than in files of its own making.
_MODULE = "jax._src.compilation_cache"
_HOOK = "get_file_cache"
_COMPILER = "jax._src.compiler"
_WRITE = "_cache_write"
_WRITE_PARAMETERS = ("cache_key", "compile_time_secs", "module_name", "backend", "executable", "host_callbacks")
# What of a processor decides which instructions XLA emits; a description of each begins with "processor" on most.
_DECISIVE = {
    *("vendor_id", "cpu family", "model", "model name", "flags"),  # x86
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features"),  # Arm
    *("isa", "mmu", "uarch", "cpu", "machine"),  # others
}


@dataclass
class Origin:
    """Where the program came from that was compiled in a ``with`` block of `origin_of_program`.

    Attributes:
        from_disk: whether it was found there, and used.
    """

    from_disk: bool = False


class DiskCache:
    """What JAX asks for compiled programs, as its ``CacheInterface``; keeps count of where they came from.

    Args:
        store: the files.
    """

    def __init__(self, store: ProgramStore) -> None:
        self._store = store
        self._compiling = threading.local()

    @property
    def store(self) -> ProgramStore:
        """The files."""
        return self._store

    def get(self, key: str) -> bytes | None:
        """The entry of a key; None where there is none that is whole."""
        if self._is_left_alone:
            return None
        value = self._store.get(key)
        self._origin.from_disk = value is not None
        return value

    def put(self, key: str, value: bytes) -> None:
        """Keeps the entry of a key."""
        if self._is_left_alone:
            return
        origin = self._origin
        if origin.from_disk:  # found, but JAX could not load it
            self._store.unusable()
        origin.from_disk = False
        self._store.put(key, value)

    @contextmanager
    def origin_of_program(self) -> Iterator[Origin]:
        """Tells, when the body has compiled one program on this thread, whether it was found on disk."""
        self._compiling.origin = origin = Origin()
        try:
            yield origin
        finally:
            self._compiling.origin = Origin()

    @contextmanager
    def left_alone(self) -> Iterator[None]:
        """Neither looks for nor keeps what the body compiles on this thread."""
        self._compiling.left_alone = True
        try:
            yield
        finally:
            self._compiling.left_alone = False

    @property
    def _is_left_alone(self) -> bool:
        return getattr(self._compiling, "left_alone", False)

    @property
    def _origin(self) -> Origin:
        origin: Origin = getattr(self._compiling, "origin", None) or Origin()
        return origin


def use_disk_cache(folder: Path, max_bytes: int) -> DiskCache | None:
    """Has this process look for every program on disk before it compiles it, and keep there what it compiled.

    Must come before the first compilation.

    Args:
        folder: where; see `ProgramStore`.
        max_bytes: the most that is kept there.

    Returns:
        What JAX asks; None where this version of JAX cannot be told to, of which the log has a warning.

    Raises:
        PrivateFileError: the folder is not this user's alone.
    """
    module = import_module(_MODULE)
    if not callable(getattr(module, _HOOK, None)):
        structlog.get_logger().warning("this version of JAX cannot keep compiled programs on disk", jax=jax.__version__)
        return None
    cache = DiskCache(ProgramStore(folder, max_bytes, host_processor()))
    setattr(module, _HOOK, lambda path: (cache, path))
    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # XLA would keep what it tried on a GPU beside our files, unchecked and unbounded, and the folder's path in the key.
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")
    # What compiles quickly counts too: a warm start has many of them.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return cache


def write_from_this_process() -> None:
    """Has a process of several keep what it compiled, though it is not the first.

    JAX has the first alone write, for a folder that all share; ours is this host's own, and keys tell processes apart.
    """
    compiler, cache = import_module(_COMPILER), import_module(_MODULE)
    before = getattr(compiler, _WRITE, None)
    if not callable(before) or tuple(signature(before).parameters) != _WRITE_PARAMETERS:
        structlog.get_logger().warning("this version of JAX keeps programs on disk on the first host only")
        return

    def write(cache_key, compile_time_secs, module_name, backend, executable, host_callbacks):  # type: ignore[no-untyped-def]
        if not host_callbacks:
            cache.put_executable_and_time(cache_key, module_name, executable, backend, int(compile_time_secs))

    setattr(compiler, _WRITE, write)


def host_processor() -> str:
    """What of this machine's processor decides which programs run on it.

    JAX's keys tell versions, flags, devices and the program; a folder that is carried to another machine must not
    have it run instructions that it lacks.
    """
    try:
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    except OSError:
        return ""
    fields = (line.partition(":") for line in first.splitlines())
    found = {name.strip(): " ".join(sorted(value.split())) for name, _, value in fields if name.strip() in _DECISIVE}
    return "\n".join(f"{name}: {value}" for name, value in sorted(found.items()))
