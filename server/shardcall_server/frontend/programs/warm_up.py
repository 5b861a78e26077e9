"""Compilation of programs before they are called: those of a manifest, and those of the call history."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path

import structlog

from shardcall._src.wire.private_files import PrivateFileError, read_file
from shardcall.v1 import kernel_pb2, mesh_pb2
from shardcall_server.compilation.program_store import own_program_dir
from shardcall_server.errors import CallError, Reason, shorten
from shardcall_server.frontend.programs.cache_entry import CacheEntry
from shardcall_server.frontend.programs.call_history import MAX_FILE_BYTES, CallHistory, CountedCall, decode_calls
from shardcall_server.frontend.programs.keys import AbstractCall
from shardcall_server.frontend.programs.program_cache import ProgramCache
from shardcall_server.frontend.workers.session import MeshSession, SessionEndedError
from shardcall_server.kernels.layout import MeshAxes
from shardcall_server.link.wire import encode_mesh
from shardcall_server.settings import Settings, SettingsError
from shardcall_worker.v1 import link_pb2

_AT_ONCE = 2  # as many as the worker compiles at once: a caller waits for no more of them
# Not the manifest's fault: they depend on other calls, or on the time.
_PASSING = {Reason.MESH_RESTARTED, Reason.MESH_NOT_READY, Reason.SERVER_BUSY, Reason.OUT_OF_DEVICE_MEMORY}


@dataclass(frozen=True)
class _Wanted:
    """A call whose program is wanted; `name` says where it is in the manifest, empty for one of the call history."""

    call: AbstractCall
    name: str = ""


class WarmUp:
    """Compiles programs when a mesh has started.

    The first mesh is announced when the programs are compiled, or ``warm_up_s`` has passed: the rest is then compiled
    while it serves, two at a time, as all are on the meshes after a restart.

    Args:
        settings: the server's.

    Attributes:
        call_history: the calls that came lately.
        program_dir: the folder of compiled programs on disk; empty for none.

    Raises:
        SettingsError: the folder of programs is not this user's alone, or the manifest is wrong.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._manifest = _read_manifest(settings.warm_up_file) if settings.warm_up_file else []
        self._refusals: list[str] = []
        self._is_first = True
        try:
            self.program_dir = own_program_dir(settings.cache_dir)
        except PrivateFileError as error:
            raise SettingsError(f"setting cache_dir is {settings.cache_dir!r}: {error}") from None
        self.call_history = CallHistory(settings.cache_dir)

    def prepare(self, session: MeshSession, programs: ProgramCache) -> None:
        """Compiles programs on a mesh that has just started; returns before that unless it is the first mesh."""
        first, self._is_first = self._is_first, False
        wanted = deque(self._wanted(session.ready.result()))
        if not wanted or not self._settings.warm_up_s:
            return
        job = _Job(session, programs, wanted, self._refuse)
        if first:
            job.run(time.monotonic() + self._settings.warm_up_s)
        if job.is_unfinished:
            threading.Thread(target=job.run, name="warm-up", daemon=True).start()

    def check(self) -> None:
        """Raises SettingsError if a call of the manifest was refused by its kernel."""
        if self._refusals:
            raise SettingsError(self._refusals[0])

    def close(self) -> None:
        """Writes the call history."""
        self.call_history.close()

    def _wanted(self, ready: link_pb2.Ready) -> Iterator[_Wanted]:
        devices = f"{ready.platform} {len(ready.devices)}"
        self.call_history.devices = devices
        default_mesh = encode_mesh(MeshAxes(self._settings.mesh_axes or (("x", len(ready.devices)),)))
        for number, counted in enumerate(self._manifest, 1):
            if counted.devices in ("", devices):
                kernel = shorten(counted.call.call.kernel)
                name = f"{self._settings.warm_up_file}, call {number} ({kernel})"
                yield _Wanted(_completed(counted.call, default_mesh), name)
        for counted in self.call_history.most_frequent()[: self._settings.max_cached_programs]:
            yield _Wanted(counted.call)

    def _refuse(self, wanted: _Wanted, error: BaseException) -> None:
        """Drops a call of the history that fails, lest it end every mesh; reports one of the manifest."""
        log = structlog.get_logger()
        if not wanted.name:
            self.call_history.remove(wanted.call.key)
            log.info(
                "a frequent program could not be compiled ahead", kernel=wanted.call.call.kernel, reason=str(error)
            )
            return
        log.warning("a program of the manifest could not be compiled", call=wanted.name, reason=str(error))
        if isinstance(error, CallError) and error.reason not in _PASSING:
            self._refusals.append(f"{wanted.name}: {error.message}")


class _Job:
    """The compilations for one mesh, a few at a time.

    Args:
        session: the mesh.
        programs: its programs.
        wanted: the calls, the most wanted first.
        refuse: called with those that cannot be compiled, and the error.
    """

    def __init__(
        self,
        session: MeshSession,
        programs: ProgramCache,
        wanted: deque[_Wanted],
        refuse: Callable[[_Wanted, BaseException], None],
    ) -> None:
        self._session = session
        self._programs = programs
        self._wanted = wanted
        self._refuse = refuse
        self._compiling: dict[Future[CacheEntry], _Wanted] = {}
        self._count = 0
        self._from_disk = 0
        self._began_s = time.monotonic()

    @property
    def is_unfinished(self) -> bool:
        """Whether programs are left, and there is a mesh for them."""
        return bool(self._wanted or self._compiling) and not self._session.ended

    def run(self, until_s: float = math.inf) -> None:
        """Compiles until all are compiled, the mesh has ended, or the monotonic clock has reached a time."""
        while self.is_unfinished:
            while self._wanted and len(self._compiling) < _AT_ONCE:
                self._begin(self._wanted.popleft())
            timeout_s = until_s - time.monotonic()
            if timeout_s <= 0:
                break
            done, _ = wait(self._compiling, None if timeout_s == math.inf else timeout_s, return_when=FIRST_COMPLETED)
            for future in done:
                self._finish(self._compiling.pop(future), future)
        for future in [future for future in self._compiling if future.done()]:
            self._finish(self._compiling.pop(future), future)
        structlog.get_logger().info(
            "programs compiled ahead",
            count=self._count,
            from_disk=self._from_disk,
            left=len(self._wanted) + len(self._compiling),
            seconds=round(time.monotonic() - self._began_s, 3),
        )

    def _begin(self, wanted: _Wanted) -> None:
        try:
            entry = self._programs.compiler.get_or_compile(wanted.call)
        except CallError as error:
            self._refuse(wanted, error)
        except SessionEndedError:
            pass
        else:
            if isinstance(entry, Future):
                self._compiling[entry] = wanted
            else:
                self._count += 1

    def _finish(self, wanted: _Wanted, compiled: Future[CacheEntry]) -> None:
        error = compiled.exception()
        if error is not None:
            self._refuse(wanted, error)
        else:
            self._count += 1
            self._from_disk += compiled.result().answer.from_disk


def _read_manifest(name: str) -> list[CountedCall]:
    """Returns the calls of a file in the form of the call history; their kernels check them later."""
    try:
        return decode_calls(read_file(Path(name), MAX_FILE_BYTES, is_secret=False, allow_sticky=True))
    except (OSError, PrivateFileError) as error:
        raise SettingsError(f"setting warm_up_file is {name!r}: {error.strerror}") from None
    except ValueError as error:
        raise SettingsError(f"setting warm_up_file is {name!r}: {error}; see the README for its form") from None


def _completed(call: AbstractCall, default_mesh: mesh_pb2.Mesh) -> AbstractCall:
    completed = kernel_pb2.KernelCall()
    completed.CopyFrom(call.call)
    completed.strategy = call.call.strategy or "auto"
    if not call.call.HasField("mesh"):
        completed.mesh.CopyFrom(default_mesh)
    return AbstractCall(completed, call.operands)
