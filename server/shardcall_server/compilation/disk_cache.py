"""Storage for JAX's persistent compilation cache.

JAX decides the keys and the bytes. Its own files are neither written atomically nor checked, and a truncated one is
compiled anew at every start; so `ProgramStore` keeps the files.
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

# Not in JAX's public interface, which cannot keep the entries elsewhere than in its own files.
_MODULE = "jax._src.compilation_cache"
_HOOK = "get_file_cache"
_COMPILER = "jax._src.compiler"
_WRITE = "_cache_write"
_WRITE_PARAMETERS = ("cache_key", "compile_time_secs", "module_name", "backend", "executable", "host_callbacks")
# The fields of /proc/cpuinfo that decide which instructions XLA emits.
_DECISIVE = {
    *("vendor_id", "cpu family", "model", "model name", "flags"),  # x86
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features"),  # Arm
    *("isa", "mmu", "uarch", "cpu", "machine"),  # others
}


@dataclass
class Origin:
    """The origin of the program that was compiled in a ``with`` block of `origin_of_program`.

    Attributes:
        from_disk: True if it was loaded from disk.
    """

    from_disk: bool = False


class DiskCache:
    """JAX's ``CacheInterface`` over a program store; records the origin of programs."""

    def __init__(self, store: ProgramStore) -> None:
        self.store = store
        self._compiling = threading.local()  # the state of this thread's compilation

    def get(self, key: str) -> bytes | None:
        """Returns the entry of a key; None if there is no complete one."""
        if self._is_disabled:
            return None
        value = self.store.get(key)
        self._origin.from_disk = value is not None
        return value

    def put(self, key: str, value: bytes) -> None:
        """Stores the entry of a key."""
        if self._is_disabled:
            return
        origin = self._origin
        if origin.from_disk:  # JAX could not load it
            self.store.count_unusable()
        origin.from_disk = False
        self.store.put(key, value)

    @contextmanager
    def origin_of_program(self) -> Iterator[Origin]:
        """Yields the origin of the program that the body compiles on this thread; it is valid after the body."""
        self._compiling.origin = origin = Origin()
        try:
            yield origin
        finally:
            self._compiling.origin = Origin()

    @contextmanager
    def disabled(self) -> Iterator[None]:
        """Disables the cache for programs that the body compiles on this thread."""
        self._compiling.disabled = True
        try:
            yield
        finally:
            self._compiling.disabled = False

    @property
    def _is_disabled(self) -> bool:
        return getattr(self._compiling, "disabled", False)

    @property
    def _origin(self) -> Origin:
        origin: Origin = getattr(self._compiling, "origin", None) or Origin()
        return origin


def use_disk_cache(folder: Path, max_bytes: int) -> DiskCache | None:
    """Makes JAX look for every program on disk, and store those that it compiles.

    Must be called before the first compilation.

    Args:
        folder: the folder of the `ProgramStore`.
        max_bytes: maximum bytes of its files.

    Returns:
        The cache; None, with a warning in the log, if this version of JAX does not support it.

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
    # XLA would keep its GPU autotuning results beside our files, unchecked and unbounded, and the path in the key.
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")
    # Quick compilations count too: a warm start has many of them.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return cache


def write_from_this_process() -> None:
    """Makes a process of a multi-process mesh store its programs, although it is not the first process.

    In JAX only the first process writes, to a shared folder. Here every host has a folder, and keys differ by process.
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
    """Returns the features of this machine's processor that decide which programs run on it.

    JAX's keys contain versions, flags, devices and the program. A machine must not load a program with instructions
    that it lacks from a folder that was copied from another machine.
    """
    try:
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    except OSError:
        return ""
    fields = (line.partition(":") for line in first.splitlines())
    features = {name.strip(): " ".join(sorted(value.split())) for name, _, value in fields if name.strip() in _DECISIVE}
    return "\n".join(f"{name}: {value}" for name, value in sorted(features.items()))
