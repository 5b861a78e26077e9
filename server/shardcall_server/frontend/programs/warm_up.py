"""Making programs ready before they are asked for: those that a file names, and those that were hot."""

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

from shardcall._src.wire.private_files import PrivateFileError
from shardcall.v1 import array_pb2, kernel_pb2, mesh_pb2
from shardcall_server.compilation.program_store import own_program_dir
from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.programs.cache_entry import CacheEntry
from shardcall_server.frontend.programs.call_history import CallHistory
from shardcall_server.frontend.programs.keys import AbstractCall, CallKey
from shardcall_server.frontend.programs.program_cache import ProgramCache
from shardcall_server.frontend.programs.warm_up_manifest import read_keys
from shardcall_server.frontend.workers.session import MeshSession, SessionEndedError
from shardcall_server.kernels.layout import MeshAxes
from shardcall_server.link.wire import encode_mesh
from shardcall_server.settings import Settings, SettingsError
from shardcall_worker.v1 import link_pb2

_AT_ONCE = 2  # as many as the worker compiles at once: a caller waits for no more of them
# Not the file's fault: other calls, or other times, are.
_PASSING = {Reason.MESH_RESTARTED, Reason.MESH_NOT_READY, Reason.SERVER_BUSY, Reason.OUT_OF_DEVICE_MEMORY}


@dataclass(frozen=True)
class _Wanted:
    """A call whose program is to be made ready: named in a file, or found by its digest among the hot ones."""

    call: kernel_pb2.KernelCall
    operands: tuple[array_pb2.ArrayType, ...]
    name: str = ""
    digest: CallKey | None = None


class WarmUp:
    """What outlasts the server of its programs, and what is done with it when a mesh has started.

    The first mesh is announced when the programs are there, or ``warm_up_s`` has passed: the rest is then made ready
    while it serves, two at a time, as all are on the meshes after a restart.

    Args:
        settings: the server's.

    Attributes:
        hot: the calls that came lately.
        program_dir: where compiled programs are kept on disk; empty for nowhere.

    Raises:
        SettingsError: the folder of programs is not this user's alone, or the file of calls is wrong.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._named = read_keys(Path(settings.warm_up_file)) if settings.warm_up_file else []
        self._refusals: list[str] = []
        self._is_first = True
        try:
            self.program_dir = own_program_dir(settings.cache_dir)
        except PrivateFileError as error:
            raise SettingsError(f"setting cache_dir is {settings.cache_dir!r}: {error}") from None
        self.hot = CallHistory(settings.cache_dir)

    def prepare(self, session: MeshSession, programs: ProgramCache) -> None:
        """Makes programs ready on a mesh that has just started; the first time, the server is not ready before."""
        first, self._is_first = self._is_first, False
        wanted = deque(self._wanted(session.ready.result()))
        if not wanted or not self._settings.warm_up_s:
            return
        run = _Run(session, programs, wanted, self._refused)
        if first:
            run.go_on(time.monotonic() + self._settings.warm_up_s)
        if run.is_unfinished:
            threading.Thread(target=run.go_on, name="warm", daemon=True).start()

    def check(self) -> None:
        """Raises SettingsError if a call that the file names was refused by its kernel."""
        if self._refusals:
            raise SettingsError(self._refusals[0])

    def close(self) -> None:
        """Writes down what is hot now."""
        self.hot.close()

    def _wanted(self, ready: link_pb2.Ready) -> Iterator[_Wanted]:
        devices = len(ready.devices)
        self.hot.devices = f"{ready.platform} {devices}"
        default_mesh = encode_mesh(MeshAxes(self._settings.mesh_axes or (("x", devices),)))
        for named in self._named:
            yield _Wanted(_on_mesh(named.call, default_mesh), named.operands, name=named.name)
        for digest, hot in self.hot.hottest()[: self._settings.max_cached_programs]:
            yield _Wanted(hot.call, hot.operands, digest=digest)

    def _refused(self, wanted: _Wanted, error: BaseException) -> None:
        """A hot call that fails is left out in future, lest it end every mesh; a file's fault is told."""
        log = structlog.get_logger()
        if wanted.digest:
            self.hot.forget(wanted.digest)
            log.info("a program that was hot could not be made ready", kernel=wanted.call.kernel, reason=str(error))
            return
        log.warning("a program could not be made ready", call=wanted.name, reason=str(error))
        if isinstance(error, CallError) and error.reason not in _PASSING:
            self._refusals.append(f"{wanted.name}: {error.message}")


class _Run:
    """The making of programs on one mesh, a few at a time.

    Args:
        session: the mesh.
        programs: where they are kept.
        wanted: the calls, the most wanted first.
        refuse: told those whose program cannot be made, and why.
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
        self._under_way: dict[Future[CacheEntry], _Wanted] = {}
        self._made = 0
        self._from_disk = 0
        self._began = time.monotonic()

    @property
    def is_unfinished(self) -> bool:
        """Whether programs are still to be made, and there is a mesh for them."""
        return bool(self._wanted or self._under_way) and not self._session.ended

    def go_on(self, until: float = math.inf) -> None:
        """Makes programs until all are made, the mesh has ended, or it is so late on the monotonic clock."""
        while self.is_unfinished:
            while self._wanted and len(self._under_way) < _AT_ONCE:
                self._begin(self._wanted.popleft())
            timeout_s = until - time.monotonic()
            if timeout_s <= 0:
                break
            done, _ = wait(self._under_way, None if timeout_s == math.inf else timeout_s, return_when=FIRST_COMPLETED)
            for future in done:
                self._finish(self._under_way.pop(future), future)
        for future in [future for future in self._under_way if future.done()]:
            self._finish(self._under_way.pop(future), future)
        left = len(self._wanted) + len(self._under_way)
        seconds = round(time.monotonic() - self._began, 3)
        structlog.get_logger().info(
            "programs made ready", count=self._made, from_disk=self._from_disk, left=left, seconds=seconds
        )

    def _begin(self, wanted: _Wanted) -> None:
        try:
            found = self._programs.compiler.get_or_compile(AbstractCall(wanted.call, wanted.operands))
        except (CallError, SessionEndedError) as error:
            if isinstance(error, CallError):
                self._refuse(wanted, error)
            return
        if isinstance(found, Future):
            self._under_way[found] = wanted
        else:
            self._made += 1

    def _finish(self, wanted: _Wanted, found: Future[CacheEntry]) -> None:
        error = found.exception()
        if error is not None:
            self._refuse(wanted, error)
        else:
            self._made += 1
            self._from_disk += found.result().answer.from_disk


def _on_mesh(call: kernel_pb2.KernelCall, default_mesh: mesh_pb2.Mesh) -> kernel_pb2.KernelCall:
    if call.HasField("mesh"):
        return call
    completed = kernel_pb2.KernelCall()
    completed.CopyFrom(call)
    completed.mesh.CopyFrom(default_mesh)
    return completed
