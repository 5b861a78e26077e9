"""The service that records profiles of the devices."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import structlog

from shardcall.v1 import profile_service_pb2
from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.types.sizes import exact
from shardcall_server.frontend.dispatch.idempotency import IdempotencyTable
from shardcall_server.frontend.dispatch.supervisor import MeshSupervisor
from shardcall_server.frontend.files.profile_folder import ProfileFolder, remove_abandoned
from shardcall_server.frontend.rpc.promise import Promise
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.workers.session import MeshSession, SessionEndedError, mesh_restarted
from shardcall_server.settings import Settings
from shardcall_worker.v1 import link_pb2, profile_pb2

_DEFAULT_S = 300.0


class Recording:
    """One recording, from the start command until its files are removed.

    Args:
        session: the mesh that records.
        folder: the folder of its files.
        owner: the client that started it.
        max_s: the time after which it is discarded unless it was stopped.
        on_removed: called before its files are removed.
    """

    def __init__(
        self,
        session: MeshSession,
        folder: ProfileFolder,
        owner: str,
        max_s: float,
        on_removed: Callable[[Recording], None],
    ) -> None:
        self.session = session
        self.folder = folder
        self.max_s = max_s
        self._owner = owner
        self._began = time.monotonic()
        self._on_removed = on_removed
        self._timer: threading.Timer | None = None
        self._stopped: Promise[link_pb2.WorkerMessage] | None = None

    def start(self) -> Promise[link_pb2.WorkerMessage]:
        """Starts recording; the future holds the mesh's response.

        Raises:
            SessionEndedError: the mesh has ended.
        """
        if not self.session.shares_memory:
            raise CallError(
                Reason.NOT_SUPPORTED,
                "profiles of devices on other hosts cannot be fetched; record a profile on those hosts, or on a server "
                "with devices of its own",
            )
        start = profile_pb2.StartProfile(directory=self.folder.path)
        return self.session.command(link_pb2.FrontEndMessage(start_profile=start))

    def __str__(self) -> str:
        passed_s = time.monotonic() - self._began
        return f"by {self._owner} for {passed_s:.3g} s, and for at most {max(0.0, self.max_s - passed_s):.3g} s more"

    def discard_after_limit(self, discard: Callable[[Recording, str], None]) -> None:
        """Discards the recording if it still runs after its time limit."""
        self._timer = threading.Timer(self.max_s, discard, [self, f"ran for {self.max_s:g} s, its max_seconds"])
        self._timer.daemon = True
        self._timer.start()

    def stop(self) -> Promise[link_pb2.WorkerMessage]:
        """Stops recording and writes the files; the future holds the mesh's response.

        Raises:
            SessionEndedError: the mesh has ended.
        """
        if self._timer is not None:
            self._timer.cancel()
        self._stopped = self.session.command(link_pb2.FrontEndMessage(stop_profile=profile_pb2.StopProfile()))
        return self._stopped

    def remove(self) -> None:
        """Removes the files once the mesh has written all of them."""
        if self._timer is not None:
            self._timer.cancel()
        if self._stopped is None:
            self._remove()
        else:
            self._stopped.add_done_callback(lambda _: self._remove())

    def _remove(self) -> None:
        self._on_removed(self)  # first, so that a client that sees no folder can start the next recording
        self.folder.remove()


class ProfileServicer:
    """`shardcall.v1.ProfileService`; its methods take a `ServerCall` instead of gRPC's context.

    Args:
        supervisor: returns the supervisor; called only by RPCs.
        idempotency: detects repeated requests.
    """

    def __init__(
        self, supervisor: Callable[[], MeshSupervisor], idempotency: IdempotencyTable, settings: Settings
    ) -> None:
        self._supervisor = supervisor
        self._idempotency = idempotency
        self._settings = settings
        self._lock = threading.Lock()  # guards the next three
        self._recording: Recording | None = None
        self._is_stopping = False
        self._discard_reason = ""  # of the last recording
        remove_abandoned()

    def StartProfile(  # noqa: N802  # the contract's name
        self, request: profile_service_pb2.StartProfileRequest, call: ServerCall
    ) -> profile_service_pb2.StartProfileResponse:
        """Starts a recording."""
        return call.run(self._idempotency.once(call, request, lambda: self._start(request, call)))

    async def _start(
        self, request: profile_service_pb2.StartProfileRequest, call: ServerCall
    ) -> profile_service_pb2.StartProfileResponse:
        max_s = self._check_seconds(request.max_seconds)
        recording = self._begin((await self._supervisor().mesh(call)).session, call.owner, max_s)
        try:
            await call.wait(recording.start(), "starting the profile")
        except SessionEndedError:
            self._discard(recording)
            raise mesh_restarted() from None
        except BaseException:
            self._discard(recording)
            raise
        recording.discard_after_limit(self._discard)
        return profile_service_pb2.StartProfileResponse()

    def StopProfile(  # noqa: N802
        self, request: profile_service_pb2.StopProfileRequest, call: ServerCall
    ) -> Iterator[profile_service_pb2.StopProfileResponse]:
        """Stops the recording and sends its files."""
        recording = self._claim()
        try:
            try:
                answer = call.block(recording.stop(), "stopping the profile")
            except SessionEndedError:
                raise mesh_restarted() from None
            files = recording.folder.files()
            self._check_size(files)
            with call.phase("send"):
                for path, file in files:
                    for piece in self._pieces(path, file):
                        piece.is_truncated = answer.profiling.is_truncated
                        yield piece
        finally:
            recording.remove()

    def discard_stale(self) -> None:
        """Discards a recording of a mesh that has ended."""
        with self._lock:
            recording = self._recording
        if recording is not None and recording.session.ended:
            self._discard(recording, "ended with the mesh, which restarted")

    def _begin(self, session: MeshSession, owner: str, max_s: float) -> Recording:
        with self._lock:
            if self._recording is not None and self._is_stopping:
                raise CallError(
                    Reason.PROFILE_STATE,
                    "the files of a profile that was stopped are being written or fetched; repeat the call in some "
                    "seconds, nothing else needs to be done",
                )
            if self._recording is not None:
                raise CallError(
                    Reason.PROFILE_STATE,
                    f"a profile is being recorded already, {self._recording}, and only one may be; repeat the call "
                    "when it has ended, or stop and fetch it with client.profile(directory).stop()",
                )
            try:
                folder = ProfileFolder()
            except OSError as error:
                raise CallError(
                    Reason.PROFILE_STATE,
                    f"the server cannot make a folder for a profile ({error.strerror}); ask the administrator to set "
                    "TMPDIR to a writable folder",
                ) from None
            self._is_stopping, self._discard_reason = False, ""
            self._recording = Recording(session, folder, owner, max_s, self._forget)
            return self._recording

    def _claim(self) -> Recording:
        """Returns the recording for its only stop."""
        with self._lock:
            if self._recording is not None and self._is_stopping:
                raise CallError(
                    Reason.PROFILE_STATE,
                    "the profile was stopped already, and its files are being written or fetched; start another one "
                    "in some seconds",
                )
            if self._recording is None:
                last = f": the last one {self._discard_reason}, and was discarded" if self._discard_reason else ""
                raise CallError(Reason.PROFILE_STATE, f"no profile is being recorded{last}; start one first")
            self._is_stopping = True
            return self._recording

    def _discard(self, recording: Recording, why: str = "") -> None:
        """Stops and removes a recording, unless it is being stopped already."""
        with self._lock:
            if self._recording is not recording or self._is_stopping:
                return
            self._is_stopping, self._discard_reason = True, why
        structlog.get_logger().info("profile discarded", reason=why or "it could not be started")
        with contextlib.suppress(SessionEndedError, CallError):  # a mesh that accepts no command will be restarted
            recording.stop()
        recording.remove()

    def _forget(self, recording: Recording) -> None:
        with self._lock:
            if self._recording is recording:
                self._recording = None

    def _check_seconds(self, seconds: float) -> float:
        limit_s = self._settings.max_call_s
        default_s = min(_DEFAULT_S, limit_s)
        if not 0 <= seconds <= limit_s or math.isnan(seconds):
            raise CallError(
                Reason.MALFORMED_REQUEST,
                f"max_seconds is {shorten(seconds)}; use 0 to {limit_s:g}, where 0 means {default_s:g}",
                field="max_seconds",
            )
        return seconds or default_s

    def _check_size(self, files: Sequence[tuple[str, Path]]) -> None:
        nbytes, limit = sum(file.stat().st_size for _, file in files), self._settings.max_profile_bytes
        if nbytes > limit:
            raise CallError(
                Reason.CALL_TOO_LARGE,
                f"the profile has {exact(nbytes)}, more than the {exact(limit)} allowed, and was discarded; record "
                "fewer "
                "calls, or start the server with a larger --max-profile-bytes",
                metadata={"bytes": str(nbytes), "limit": str(limit)},
            )

    def _pieces(self, path: str, file: Path) -> Iterator[profile_service_pb2.StopProfileResponse]:
        with file.open("rb") as opened:
            data = opened.read(self._settings.max_chunk_bytes)
            yield profile_service_pb2.StopProfileResponse(path=path, data=data)
            while data := opened.read(self._settings.max_chunk_bytes):
                yield profile_service_pb2.StopProfileResponse(path=path, data=data)
