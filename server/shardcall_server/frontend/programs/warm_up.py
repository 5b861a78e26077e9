"""Compilation of programs before they are called: those of a manifest, and those of the call history."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path

import structlog

from shardcall.v1 import kernel_pb2, mesh_pb2
from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.layouts.layout import MeshAxes
from shardcall_core.wire.private_files import PrivateFileError, read_file
from shardcall_server.compilation.program_store import private_program_dir
from shardcall_server.frontend.programs.cache_entry import CacheEntry
from shardcall_server.frontend.programs.call_history import MAX_FILE_BYTES, CallHistory, HistoryEntry, decode_calls
from shardcall_server.frontend.programs.keys import AbstractCall
from shardcall_server.frontend.programs.program_cache import ProgramCache
from shardcall_server.frontend.workers.session import MeshSession, SessionEndedError
from shardcall_server.link.wire import encode_mesh
from shardcall_server.settings import Settings, SettingsError
from shardcall_worker.v1 import link_pb2

_AT_ONCE = 2  # as many as the worker compiles at once: a caller waits for no more of them
# Not the manifest's fault: they depend on other calls, or on the time.
_PASSING = {Reason.MESH_RESTARTED, Reason.MESH_NOT_READY, Reason.SERVER_BUSY, Reason.OUT_OF_DEVICE_MEMORY}


@dataclass(frozen=True)
class _WarmUpItem:
    """A call whose program is compiled ahead.

    Attributes:
        name: its position in the manifest, for messages; empty for a call of the call history.
    """

    call: AbstractCall
    name: str = ""


class WarmUp:
    """Compiles programs when a mesh has started.

    The first mesh is announced when the programs are compiled, or ``warm_up_s`` has passed: the rest is then compiled
    while it serves, two at a time, as all are on the meshes after a restart.

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
            self.program_dir = private_program_dir(settings.cache_dir)
        except PrivateFileError as error:
            raise SettingsError(f"setting cache_dir is {settings.cache_dir!r}: {error}") from None
        self.call_history = CallHistory(settings.cache_dir)

    def prepare(self, session: MeshSession, programs: ProgramCache) -> None:
        """Compiles programs on a mesh that has just started; returns before that unless it is the first mesh."""
        is_first, self._is_first = self._is_first, False
        waiting = deque(self._items(session.ready.result()))
        if not waiting or not self._settings.warm_up_s:
            return
        thread = threading.Thread(target=self._compile, args=[session, programs, waiting], name="warm-up", daemon=True)
        thread.start()
        if is_first:
            thread.join(self._settings.warm_up_s)

    def check(self) -> None:
        """Raises SettingsError if a call of the manifest was refused by its kernel."""
        if self._refusals:
            raise SettingsError(self._refusals[0])

    def close(self) -> None:
        """Writes the call history."""
        self.call_history.close()

    def _items(self, ready: link_pb2.Ready) -> Iterator[_WarmUpItem]:
        devices = f"{ready.platform} {len(ready.devices)}"
        self.call_history.devices = devices
        default_mesh = encode_mesh(MeshAxes(self._settings.mesh_axes or (("x", len(ready.devices)),)))
        for number, counted in enumerate(self._manifest, 1):
            if counted.devices in ("", devices):
                kernel = shorten(counted.call.call.kernel)
                name = f"{self._settings.warm_up_file}, call {number} ({kernel})"
                yield _WarmUpItem(_completed(counted.call, default_mesh), name)
        for counted in self.call_history.by_frequency()[: self._settings.max_cached_programs]:
            yield _WarmUpItem(counted.call)

    def _compile(self, session: MeshSession, programs: ProgramCache, waiting: deque[_WarmUpItem]) -> None:
        """Compiles until nothing is left, or the mesh has ended."""
        began_s, count, from_disk = time.monotonic(), 0, 0
        compiling: dict[Future[CacheEntry], _WarmUpItem] = {}
        while compiling or (waiting and not session.ended):
            while waiting and len(compiling) < _AT_ONCE and not session.ended:
                item = waiting.popleft()
                try:
                    entry = programs.compiler.get_or_compile(item.call)
                except CallError as error:
                    self._refuse(item, error)
                except SessionEndedError:
                    break
                else:
                    if isinstance(entry, Future):
                        compiling[entry] = item
                    else:
                        count += 1
            for future in wait(compiling, return_when=FIRST_COMPLETED).done:
                item = compiling.pop(future)
                if (failure := future.exception()) is not None:
                    self._refuse(item, failure)
                else:
                    count += 1
                    from_disk += future.result().answer.from_disk
        structlog.get_logger().info(
            "programs compiled ahead",
            count=count,
            from_disk=from_disk,
            left=len(waiting),
            seconds=round(time.monotonic() - began_s, 3),
        )

    def _refuse(self, item: _WarmUpItem, error: BaseException) -> None:
        """Drops a call of the history that fails, so that it cannot end every mesh; reports one of the manifest."""
        log = structlog.get_logger()
        if not item.name:
            self.call_history.remove(item.call.key)
            log.info("a frequent program could not be compiled ahead", kernel=item.call.call.kernel, reason=str(error))
            return
        log.warning("a program of the manifest could not be compiled", call=item.name, reason=str(error))
        if isinstance(error, CallError) and error.reason not in _PASSING:
            self._refusals.append(f"{item.name}: {error.message}")


def _read_manifest(name: str) -> list[HistoryEntry]:
    """Returns the calls of a file in the form of the call history; their kernels check them later."""
    try:
        return decode_calls(read_file(Path(name), MAX_FILE_BYTES, is_secret=False, allow_sticky=True))
    except (OSError, PrivateFileError) as error:
        raise SettingsError(f"setting warm_up_file is {name!r}: {error.strerror}") from None
    except ValueError as error:
        raise SettingsError(f"setting warm_up_file is {name!r}: {error}; docs/serving.md describes its form") from None


def _completed(call: AbstractCall, default_mesh: mesh_pb2.Mesh) -> AbstractCall:
    completed = kernel_pb2.KernelCall()
    completed.CopyFrom(call.call)
    completed.strategy = call.call.strategy or "auto"
    if not call.call.HasField("mesh"):
        completed.mesh.CopyFrom(default_mesh)
    return AbstractCall(completed, call.operands, call.has_resident_arrays)
