"""Recording what the devices do, with JAX's profiler."""

from __future__ import annotations

import contextlib
import shutil
from contextlib import AbstractContextManager
from pathlib import Path

import jax
import structlog

from shardcall_server.compilation.program import Program
from shardcall_server.errors import CallError, Reason

_NO_PHASE = contextlib.nullcontext()
_recordings: set[Profiler] = set()  # those that run: one at most
_RUNS = ("plugins", "profile")
_OF_PROCESS = "process-"
_SUFFIXES = {".pb": 2, ".gz": 3}  # .xplane.pb and .trace.json.gz, behind a host's name that may have dots of its own


def phase(name: str, request_id: str, program: Program | None = None) -> AbstractContextManager[object]:
    """Shows the body in profiles; costs next to nothing where none is recorded.

    Args:
        name: of the phase.
        request_id: of the call.
        program: what the call runs; None where it runs none.
    """
    if not _recordings:
        return _NO_PHASE
    runs = {} if program is None else _names_of(program)
    return jax.profiler.TraceAnnotation(f"shardcall {name}", request_id=request_id, **runs)


def _names_of(program: Program) -> dict[str, str]:
    return {"kernel": program.resolved.kernel.name, "strategy": program.resolved.strategy.name}


class Profiler:
    """Starts and stops the one recording of this process."""

    def __init__(self) -> None:
        self._directory: Path | None = None

    def start(self, directory: str) -> None:
        """Begins to record.

        Args:
            directory: where the files go when it stops.

        Raises:
            CallError: a recording runs already.
        """
        if self._directory is not None:
            raise CallError(Reason.PROFILE_STATE, "a profile is being recorded already; repeat this when it has ended")
        options = jax.profiler.ProfileOptions()
        # Tracing every Python call would slow down the thread that launches, and show the server's own files.
        options.python_tracer_level = 0
        options.raise_error_on_start_failure = True
        # JAX names files by the host: processes of one host would write over each other's.
        own = f"{_OF_PROCESS}{jax.process_index()}" if jax.process_index() else ""
        jax.profiler.start_trace(str(Path(directory, own)), profiler_options=options)
        self._directory = Path(directory, own)
        _recordings.add(self)

    def stop(self) -> None:
        """Ends the recording, and writes its files.

        Raises:
            CallError: none runs, or the files could not be written.
        """
        if self._directory is None:
            raise CallError(Reason.PROFILE_STATE, "no profile is being recorded; start one first")
        directory, self._directory = self._directory, None
        _recordings.discard(self)
        try:
            jax.profiler.stop_trace()
        except Exception as error:  # noqa: BLE001  # JAX tells of a full disk as of memory of the devices
            structlog.get_logger().warning("a profile could not be written", reason=str(error))
            _forget(directory)
            raise CallError(
                Reason.CALL_TOO_LARGE,
                "the server could not write the profile, most likely for want of room, and it is thrown away; record "
                "fewer calls, or tell the server's keeper to set TMPDIR to a place with more room",
            ) from None
        if directory.name.startswith(_OF_PROCESS):
            _move_beside(directory)


def _move_beside(directory: Path) -> None:
    """Moves the files of one of several processes to where the first one's are, under names of their own."""
    beside = Path(directory.parent, *_RUNS, directory.name)
    beside.mkdir(parents=True)
    for file in Path(directory, *_RUNS).glob("*/*"):
        file.rename(beside / f"{directory.name}{''.join(file.suffixes[-_SUFFIXES[file.suffix] :])}")


def _forget(directory: Path) -> None:
    """Has JAX end a recording whose files it could not write; until then it begins no other.

    What it writes now is all but empty, and needs no more than the room of what it wrote before.
    """
    for written in directory.glob("*"):
        shutil.rmtree(written, ignore_errors=True)
    with contextlib.suppress(Exception):
        jax.profiler.stop_trace()
