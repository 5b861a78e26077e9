"""Profiles of a server's devices."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, SupportsFloat

from shardcall._src.rpc.deadline import Deadline
from shardcall._src.rpc.transport import Transport
from shardcall.v1 import profile_service_pb2
from shardcall_core.markup import page
from shardcall_core.types.errors import ClientClosedError, InvalidParameterError, ProtocolError, ShardcallError
from shardcall_core.types.sizes import human
from shardcall_core.types.tracebacks import shortened
from shardcall_core.wire.metadata import new_request_id
from shardcall_core.wire.private_files import make_folders

_TAKE_BACK_S = 2.0
_MAX_PARTS = 8
_MAX_FILES = 1000
_FORBIDDEN = ("", ".", "..")
_FORBIDDEN_CHARACTERS = frozenset('\\:\0<>"|?*')  # with a meaning in some operating system


@shortened
class Profile:
    """A profile, recorded during a ``with`` block. Made by `Client.profile`.

    Attributes:
        path: the folder of the files; None before the end of the block.
        is_truncated: True if the server ended the recording before the end of the block, since it had so many events
            that their files would have taken long to write.
    """

    def __init__(
        self,
        transport: Transport,
        directory: str | os.PathLike[str],
        max_seconds: float,
        deadline: Callable[[], Deadline],
    ) -> None:
        if not isinstance(directory, str | os.PathLike):
            raise InvalidParameterError(f"directory is {directory!r}; give a path", field="directory")
        if isinstance(max_seconds, bool) or not isinstance(max_seconds, SupportsFloat):
            raise InvalidParameterError(f"max_seconds is {max_seconds!r}; give seconds", field="max_seconds")
        self.path: Path | None = None
        self.is_truncated = False
        self._transport = transport
        self._directory = Path(directory)
        self._max_seconds = float(max_seconds)
        self._deadline = deadline

    def start(self) -> None:
        """Starts recording.

        Raises:
            ShardcallError: of the class that fits.
        """
        request = profile_service_pb2.StartProfileRequest(max_seconds=self._max_seconds)
        make_folders(self._directory)  # fails before anything is recorded
        begin, request_id, deadline = self._transport.stubs.profiles.StartProfile, new_request_id(), self._deadline()
        try:
            self._transport.unary(begin, request, deadline, request_id=request_id)
        except BaseException as error:
            if not isinstance(error, ClientClosedError) and not getattr(error, "reason", ""):  # else it was refused
                self._take_back(lambda deadline: self._transport.unary(begin, request, deadline, request_id=request_id))
            raise

    def discard(self) -> None:
        """Stops and discards the recording; a server that cannot be reached does so after `max_seconds`."""
        with contextlib.suppress(ShardcallError):
            self._transport.stop_profile(_count, Deadline(_TAKE_BACK_S))

    def stop(self) -> Path:
        """Stops the recording and fetches its files; returns their folder.

        Raises:
            ShardcallError: of the class that fits; no files are left then.
        """
        folder = _fresh_folder(self._directory)
        try:
            is_truncated = self._transport.stop_profile(lambda messages: _receive(messages, folder), self._deadline())
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self.path, self.is_truncated = folder, is_truncated
        return folder

    def __repr__(self) -> str:
        where = f"in {self.path}" if self.path else f"for {self._directory}, recorded during a with block"
        return f"<Profile {where}>"

    def _repr_html_(self) -> str:
        """Returns the files for a notebook, and the command that shows them."""
        if self.path is None:
            return page.page("Profile", page.text("div", f"for {self._directory}, recorded during a with block"))
        files = sorted(file for file in self.path.rglob("*") if file.is_file())[: page.MAX_ROWS]
        rows = ((str(file.relative_to(self.path)), human(file.stat().st_size)) for file in files)
        shown = page.text("pre", f"tensorboard --logdir {self._directory}")
        return page.page(f"Profile in {self.path}", page.listing(["file", "size"], rows), page.spaced(shown))

    def _take_back(self, begin: Callable[[Deadline], object]) -> None:
        """Discards a recording that may have started without an answer: starts it again by its id, and stops it."""

        def discard() -> None:
            with contextlib.suppress(ShardcallError):
                begin(Deadline(_TAKE_BACK_S))
                self.discard()

        # In a thread, which the cancellation of this one does not affect.
        thread = threading.Thread(target=discard, name="shardcall-profile", daemon=True)
        thread.start()
        thread.join(2 * _TAKE_BACK_S)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
            return
        with contextlib.suppress(ShardcallError, OSError):  # the error of the block matters more
            self.stop()


def _count(messages: Iterator[profile_service_pb2.StopProfileResponse]) -> int:
    return sum(1 for _ in messages)


def _fresh_folder(directory: Path) -> Path:
    """Makes a folder in which tools look for JAX's profiles."""
    parent = directory / "plugins" / "profile"
    make_folders(parent)
    name = time.strftime("%Y_%m_%d_%H_%M_%S")
    number = 1
    while True:
        folder = parent / (name if number == 1 else f"{name}_{number}")
        try:
            folder.mkdir(0o700)
        except FileExistsError:
            number += 1
        else:
            return folder


def _receive(messages: Iterator[profile_service_pb2.StopProfileResponse], folder: Path) -> bool:
    """Writes the received files, each once, below a folder of this process; returns whether they are truncated."""
    is_truncated = False
    with contextlib.ExitStack() as stack:
        present, file = "", None
        seen: set[str] = set()
        for message in messages:
            if file is None or message.path != present:
                stack.close()
                present = message.path
                file = stack.enter_context(_create(folder, present, seen))
            file.write(message.data)
            is_truncated |= message.is_truncated
    return is_truncated


def _create(folder: Path, path: str, seen: set[str]) -> BinaryIO:
    """Creates a file by its path below a folder.

    Raises:
        ProtocolError: if the path leads out of the folder, or the file exists.
    """
    parts = path.split("/")
    if len(parts) > _MAX_PARTS or any(part in _FORBIDDEN or _FORBIDDEN_CHARACTERS & set(part) for part in parts):
        raise ProtocolError(f"the server sent a file of a profile to {path[:200]!r}, which is not below its folder")
    if len(seen) == _MAX_FILES:
        raise ProtocolError(f"the server sent more than {_MAX_FILES} files for one profile")
    seen.add(path)
    target = folder.joinpath(*parts)
    try:
        make_folders(target.parent)
        return target.open("xb")  # follows no link, and opens no existing file
    except (FileExistsError, NotADirectoryError):
        raise ProtocolError(f"the server sent the file {path[:200]!r} of a profile twice") from None
