"""Profiles of the devices, recorded by JAX's profiler."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import jax
import structlog

from shardcall_core.call_error import CallError, Reason
from shardcall_core.wire.private_files import make_folders
from shardcall_server.compilation.program import Program
from shardcall_worker.v1 import link_pb2

_NO_PHASE = contextlib.nullcontext()
_recordings: set[Profiler] = set()  # one at most
_PROFILE_PATH = ("plugins", "profile")
_OF_PROCESS = "process-"
# JAX takes about 0.06 ms to write an event, beside a loop that keeps all CPU cores busy. Instructions count, of which
# half make events.
_MAX_EVENTS = 1_000_000
_SUFFIXES = {".pb": 2, ".gz": 3}  # .xplane.pb and .trace.json.gz, after a host name that may contain dots


def phase(
    name: str, message: link_pb2.FrontEndMessage, program: Program | None = None
) -> AbstractContextManager[object]:
    """Annotates the body in profiles; costs next to nothing if none is being recorded.

    Args:
        name: the name of the phase.
        program: the program of the call; None if it has none.
    """
    if not _recordings:
        return _NO_PHASE
    labels = {} if program is None else _names_of(program)
    return jax.profiler.TraceAnnotation(f"shardcall {name}", request_id=message.request_id, **labels)


def count_events(program: Program, began: float, iterations: int = 1) -> None:
    """Counts the events of a launch for the recording, if there is one.

    Args:
        program: the program.
        began: the time of the launch, on the monotonic clock.
        iterations: the number of iterations of a slice of a loop; 1 for any other program.
    """
    for profiler in _recordings.copy():
        profiler.count(iterations * _events_of(program), began)


def recordable(program: Program, max_iterations: int) -> int:
    """Returns the iterations of the next slice of a loop: fewer than `max_iterations` if a recording would be full."""
    for profiler in _recordings.copy():
        max_iterations = min(max_iterations, max(1, profiler.events_left // _events_of(program)))
    return max_iterations


def _events_of(program: Program) -> int:
    return max(1, program.instruction_count) * min(program.resolved.problem.mesh.device_count, jax.local_device_count())


def _names_of(program: Program) -> dict[str, str]:
    return {"kernel": program.resolved.kernel.name, "strategy": program.resolved.strategy.name}


class Profiler:
    """Starts and stops the recording of this process; used by one thread, except for `count`.

    Args:
        on_full: called when a recording has its maximum number of events, to have `truncate` called.
    """

    def __init__(self, on_full: Callable[[], object]) -> None:
        self._on_full = on_full
        self._directory: Path | None = None
        self._began = 0.0
        self._event_count = 0
        self._is_truncated = False
        self._failure: CallError | None = None

    def start(self, directory: str) -> None:
        """Starts the recording.

        Args:
            directory: the directory for the files, which are written when the recording stops.

        Raises:
            CallError: a profile is being recorded already.
        """
        if self._directory is not None:
            raise CallError(Reason.PROFILE_STATE, "a profile is being recorded already; repeat this when it has ended")
        options = jax.profiler.ProfileOptions()
        # Tracing every Python call would slow down the thread that launches, and reveal the server's files.
        options.python_tracer_level = 0
        options.raise_error_on_start_failure = True
        # JAX names files by host, so the processes of a host would overwrite each other's files.
        subdirectory = f"{_OF_PROCESS}{jax.process_index()}" if jax.process_index() else ""
        jax.profiler.start_trace(str(Path(directory, subdirectory)), profiler_options=options)
        self._directory = Path(directory, subdirectory)
        self._began, self._event_count, self._is_truncated, self._failure = time.monotonic(), 0, False, None
        _recordings.add(self)

    @property
    def events_left(self) -> int:
        """The number of events until the maximum."""
        return max(0, _MAX_EVENTS - self._event_count)

    def count(self, events: int, began: float) -> None:
        """Counts the events of a launch that has ended, approximately: its caller may be any thread.

        Args:
            events: their number.
            began: the time of the launch, which may be before that of the recording.
        """
        now, before = time.monotonic(), self._event_count
        if began < self._began:
            events = int(events * (now - self._began) / (now - began))
        self._event_count = before + events
        if before < _MAX_EVENTS <= before + events:
            self._on_full()

    def truncate(self) -> None:
        """Ends a recording that has its maximum number of events, and keeps its files until `stop`."""
        if self._directory is None or self._is_truncated or self._event_count < _MAX_EVENTS:
            return
        self._is_truncated = True
        structlog.get_logger().info("profile truncated", events=self._event_count)
        try:
            self._write(self._directory)
        except CallError as error:
            self._failure = error

    def stop(self) -> bool:
        """Stops the recording and writes its files; returns True if it had been truncated.

        Raises:
            CallError: no profile is being recorded, or the files could not be written.
        """
        if self._directory is None:
            raise CallError(Reason.PROFILE_STATE, "no profile is being recorded; start one first")
        directory, self._directory = self._directory, None
        if not self._is_truncated:
            self._write(directory)
        elif self._failure is not None:
            raise self._failure
        return self._is_truncated

    def _write(self, directory: Path) -> None:
        _recordings.discard(self)
        try:
            jax.profiler.stop_trace()
        except Exception as error:  # noqa: BLE001  # JAX reports a full disk as exhausted device memory
            structlog.get_logger().warning("a profile could not be written", reason=str(error))
            _discard(directory)
            raise CallError(
                Reason.CALL_TOO_LARGE,
                "the server could not write the profile, most likely for lack of disk space, and discarded it; record "
                "fewer calls, or ask the server's administrator to set TMPDIR to a larger file system",
            ) from None
        if directory.name.startswith(_OF_PROCESS):
            _move_beside(directory)


def _move_beside(directory: Path) -> None:
    """Moves the files of one of several processes to the directory of the first process, under other names."""
    beside = Path(directory.parent, *_PROFILE_PATH, directory.name)
    make_folders(beside)
    for file in Path(directory, *_PROFILE_PATH).glob("*/*"):
        file.rename(beside / f"{directory.name}{''.join(file.suffixes[-_SUFFIXES[file.suffix] :])}")


def _discard(directory: Path) -> None:
    """Makes JAX end a recording whose files it could not write, without which it starts no other.

    The files that it wrote before are deleted first; those that it writes now are almost empty.
    """
    for written in directory.glob("*"):
        shutil.rmtree(written, ignore_errors=True)
    with contextlib.suppress(Exception):
        jax.profiler.stop_trace()
