"""The service that records what the devices do."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

import structlog

from shardcall.v1 import profile_service_pb2
from shardcall_server.errors import CallError, Reason, shorten
from shardcall_server.frontend.dispatch.idempotency import IdempotencyTable
from shardcall_server.frontend.dispatch.supervisor import MeshSupervisor
from shardcall_server.frontend.files.profile_folder import ProfileFolder, remove_abandoned
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.workers.session import MeshSession, SessionEndedError, mesh_restarted
from shardcall_server.settings import Settings
from shardcall_worker.v1 import link_pb2, profile_pb2

_USUAL_S = 300.0


class Recording:
    """One recording, from the command to begin until nothing is left of it.

    Args:
        session: the mesh that records.
        folder: where its files go.
        owner: who asked for it.
        max_s: when it is thrown away if nobody has stopped it.
        on_gone: told when nothing is left of it.
    """

    def __init__(
        self,
        session: MeshSession,
        folder: ProfileFolder,
        owner: str,
        max_s: float,
        on_gone: Callable[[Recording], None],
    ) -> None:
        self.session = session
        self.folder = folder
        self.max_s = max_s
        self._owner = owner
        self._began = time.monotonic()
        self._on_gone = on_gone
        self._timer: threading.Timer | None = None
        self._stopped: Future[link_pb2.WorkerMessage] | None = None

    def start(self) -> Future[link_pb2.WorkerMessage]:
        """Has the mesh begin; the future holds its answer.

        Raises:
            SessionEndedError: the mesh is gone.
        """
        if not self.session.shares_memory:
            raise CallError(
                Reason.NOT_SUPPORTED,
                "the devices of this server are on other hosts, and their profiles cannot be fetched; record one on "
                "those hosts, or on a server with devices of its own",
            )
        start = profile_pb2.StartProfile(directory=self.folder.path)
        return self.session.command(link_pb2.FrontEndMessage(start_profile=start))

    def __str__(self) -> str:
        passed_s = time.monotonic() - self._began
        return f"by {self._owner} for {passed_s:.3g} s, and for {max(0.0, self.max_s - passed_s):.3g} s more at most"

    def discard_in_time(self, discard: Callable[[Recording, str], None]) -> None:
        """Has it thrown away if it still runs then."""
        self._timer = threading.Timer(self.max_s, discard, [self, f"ran for {self.max_s:g} s, its max_seconds"])
        self._timer.daemon = True
        self._timer.start()

    def stop(self) -> Future[link_pb2.WorkerMessage]:
        """Has the mesh end it and write its files; the future holds its answer.

        Raises:
            SessionEndedError: the mesh is gone.
        """
        if self._timer is not None:
            self._timer.cancel()
        self._stopped = self.session.command(link_pb2.FrontEndMessage(stop_profile=profile_pb2.StopProfile()))
        return self._stopped

    def remove(self) -> None:
        """Removes what is left of it, once the mesh writes nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._stopped is None:
            self._remove()
        else:
            self._stopped.add_done_callback(lambda _: self._remove())

    def _remove(self) -> None:
        self._on_gone(self)  # first: who sees no folder any more may record again
        self.folder.remove()


class ProfileServicer:
    """`shardcall.v1.ProfileService`; methods take a `ServerCall` where gRPC's own take a context.

    Args:
        supervisor: keeps the mesh; asked for when calls come, which is after it was made.
        idempotency: of calls that change something.
        settings: the server's.
    """

    def __init__(
        self, supervisor: Callable[[], MeshSupervisor], idempotency: IdempotencyTable, settings: Settings
    ) -> None:
        self._supervisor = supervisor
        self._idempotency = idempotency
        self._settings = settings
        self._lock = threading.Lock()
        self._recording: Recording | None = None
        self._is_ending = False
        self._thrown_away = ""  # why the last one was
        remove_abandoned()

    def StartProfile(  # noqa: N802  # the contract's name
        self, request: profile_service_pb2.StartProfileRequest, call: ServerCall
    ) -> profile_service_pb2.StartProfileResponse:
        """Begins to record."""
        return self._idempotency.once(call, request, lambda: self._start(request, call))

    def _start(
        self, request: profile_service_pb2.StartProfileRequest, call: ServerCall
    ) -> profile_service_pb2.StartProfileResponse:
        max_s = self._check_seconds(request.max_seconds)
        recording = self._begin(self._supervisor().mesh(call).session, call.owner, max_s)
        try:
            call.wait(recording.start(), "starting the profile")
        except SessionEndedError:
            self._discard(recording)
            raise mesh_restarted() from None
        except BaseException:
            self._discard(recording)
            raise
        recording.discard_in_time(self._discard)
        return profile_service_pb2.StartProfileResponse()

    def StopProfile(  # noqa: N802
        self, request: profile_service_pb2.StopProfileRequest, call: ServerCall
    ) -> Iterator[profile_service_pb2.StopProfileResponse]:
        """Ends the recording and sends its files."""
        recording = self._take()
        try:
            try:
                call.wait(recording.stop(), "ending the profile")
            except SessionEndedError:
                raise mesh_restarted() from None
            files = recording.folder.files()
            self._check_size(files)
            with call.phase("send"):
                for path, file in files:
                    yield from self._pieces(path, file)
        finally:
            recording.remove()

    def discard_stale(self) -> None:
        """Throws away what a mesh recorded that has ended."""
        with self._lock:
            recording = self._recording
        if recording is not None and recording.session.ended:
            self._discard(recording, "ended with the mesh, which restarted")

    def _begin(self, session: MeshSession, owner: str, max_s: float) -> Recording:
        with self._lock:
            if self._recording is not None:
                raise CallError(
                    Reason.PROFILE_STATE,
                    f"a profile is being recorded already, {self._recording}, one at a time; repeat this when it has "
                    "ended, or stop it and have it: client.profile(directory).stop()",
                )
            try:
                folder = ProfileFolder()
            except OSError as error:
                raise CallError(
                    Reason.PROFILE_STATE,
                    f"the server can make no folder for a profile ({error.strerror}); tell its keeper to set TMPDIR to "
                    "a place that it may write to",
                ) from None
            self._is_ending, self._thrown_away = False, ""
            self._recording = Recording(session, folder, owner, max_s, self._forget)
            return self._recording

    def _take(self) -> Recording:
        """The recording, for the one who ends it."""
        with self._lock:
            if self._recording is None or self._is_ending:
                last = f": the last one {self._thrown_away}, and was thrown away" if self._thrown_away else ""
                raise CallError(Reason.PROFILE_STATE, f"no profile is being recorded{last}; start one first")
            self._is_ending = True
            return self._recording

    def _discard(self, recording: Recording, why: str = "") -> None:
        """Ends a recording that nobody gets, unless somebody ends it already."""
        with self._lock:
            if self._recording is not recording or self._is_ending:
                return
            self._is_ending, self._thrown_away = True, why
        structlog.get_logger().info("a profile is thrown away", reason=why or "it could not be started")
        with contextlib.suppress(SessionEndedError, CallError):  # a mesh that takes no command is about to be restarted
            recording.stop()
        recording.remove()

    def _forget(self, recording: Recording) -> None:
        with self._lock:
            if self._recording is recording:
                self._recording = None

    def _check_seconds(self, seconds: float) -> float:
        limit_s = self._settings.max_call_s
        usual_s = min(_USUAL_S, limit_s)
        if not 0 <= seconds <= limit_s or math.isnan(seconds):
            raise CallError(
                Reason.MALFORMED_REQUEST,
                f"max_seconds is {shorten(seconds)}; give 0 to {limit_s:g}, where 0 stands for {usual_s:g}",
                field="max_seconds",
            )
        return seconds or usual_s

    def _check_size(self, files: Sequence[tuple[str, Path]]) -> None:
        nbytes, limit = sum(file.stat().st_size for _, file in files), self._settings.max_profile_bytes
        if nbytes > limit:
            raise CallError(
                Reason.CALL_TOO_LARGE,
                f"the profile has {nbytes} bytes and one may have {limit}; it is thrown away. Record fewer calls, or "
                "start the server with a larger --max-profile-bytes",
                metadata={"bytes": str(nbytes), "limit": str(limit)},
            )

    def _pieces(self, path: str, file: Path) -> Iterator[profile_service_pb2.StopProfileResponse]:
        with file.open("rb") as opened:
            data = opened.read(self._settings.max_chunk_bytes)
            yield profile_service_pb2.StopProfileResponse(path=path, data=data)
            while data := opened.read(self._settings.max_chunk_bytes):
                yield profile_service_pb2.StopProfileResponse(path=path, data=data)
