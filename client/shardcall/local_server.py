"""Private servers, which are terminated with their owner."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import IO

from shardcall._src.display.progress import Listener
from shardcall._src.local.local_settings import Setting, options, refusal
from shardcall._src.local.server_log import ServerLog, for_people
from shardcall._src.local.server_packages import server_refusal
from shardcall._src.rpc import cancellation
from shardcall._src.rpc.deadline import deadline_after
from shardcall._src.rpc.threads import check_not_exiting, no_thread
from shardcall._src.services.implicit_gets import ImplicitGet
from shardcall.client import Client
from shardcall.connection import connect
from shardcall_core.types.errors import InvalidParameterError, ServerUnavailableError
from shardcall_core.types.tracebacks import shortened
from shardcall_core.wire.forks import begin_anew_in_children
from shardcall_core.wire.token_file import TOKEN_VARIABLE, new_token

_READY = re.compile(r"shardcall ready at (\S+)")
_STOP_TIMEOUT_S = 10.0
_LOG_LEVEL_VARIABLE = "SHARDCALL_LOG_LEVEL"
_REASON = re.compile(r"^shardcall: ", re.MULTILINE)

_KEYWORDS = (
    "devices",
    "start_timeout",
    "shared_memory",
    "call_stream",
    "progress",
    "synchronous",
    "implicit_get",
    "fuse",
    "show_values",
)


@shortened
def local(
    devices: int = 8,
    *,
    start_timeout: float = 60.0,
    shared_memory: bool = True,
    call_stream: bool = True,
    progress: bool | Listener = True,
    synchronous: bool = False,
    implicit_get: ImplicitGet = "allow",
    fuse: bool = True,
    show_values: bool = True,
    **settings: Setting,
) -> Client:
    """Starts a private server on this machine and connects to it.

    Requires the extra ``server``. The server is terminated by `Client.close`, with the client, and with this process.
    The warnings and errors of its log are written to standard error: the caller is its administrator.

    Args:
        devices: the number of its CPU devices.
        start_timeout: the seconds within which it must be ready.
        shared_memory: as for `connect`.
        call_stream: as for `connect`.
        progress: as for `connect`.
        synchronous: as for `connect`.
        implicit_get: as for `connect`.
        fuse: as for `connect`.
        show_values: as for `connect`.
        settings: options of ``shardcall serve``, with underscores for hyphens: ``max_cached_programs=64``;
            ``log_level="info"`` logs more, ``"error"`` less.

    Raises:
        UnknownParameterError: for an unknown setting; also a TypeError.
        InvalidParameterError: for an invalid value of a setting, or an invalid ``start_timeout``.
        ClientClosedError: if Python exits.
        ServerUnavailableError: if it does not start; the message has the reason, or the end of its output.

    Example:
        >>> with sc.local(devices=2) as server:
        ...     server.diff(np.arange(4.0)).array
        array([1., 1., 1.])
    """
    check_not_exiting()
    if isinstance(devices, bool) or not isinstance(devices, int) or devices < 1:
        raise InvalidParameterError(f"devices is {devices!r}; give an integer, 1 or more", field="devices")
    start_s = deadline_after(start_timeout, 0).timeout_s
    if refused := server_refusal("shardcall.local"):
        raise ServerUnavailableError(refused)
    command = [sys.executable, "-m", "shardcall.cli", "serve", "--port", "0", "--devices", str(devices)]
    # A private server need not restart fast but must start fast; programs of earlier ones are on disk.
    usual: dict[str, Setting] = {"spare_worker": False, "warm_up_s": 0}
    if _LOG_LEVEL_VARIABLE not in os.environ:
        usual["log_level"] = "warning"
    token = new_token()  # in the environment, since other users can read command lines
    server = ServerProcess([*command, "--exit-with-stdin", *options({**usual, **settings})], {TOKEN_VARIABLE: token})
    cancellation.watch(server)
    try:
        address = _ready(server, start_s, settings)
        client = connect(
            address,
            token=token,
            shared_memory=shared_memory,
            call_stream=call_stream,
            progress=progress,
            synchronous=synchronous,
            implicit_get=implicit_get,
            fuse=fuse,
            show_values=show_values,
        )
    except BaseException:
        server.stop()
        raise
    client._stop_at_close(server.stop)
    return client


def _ready(server: ServerProcess, timeout_s: float, settings: Mapping[str, Setting]) -> str:
    try:
        return server.wait_for_ready(timeout_s)
    except ServerUnavailableError as error:
        raise refusal(settings, _KEYWORDS, error.metadata.get("reason", "")) or error from None


class ServerProcess:
    """A server process that exits with its standard input, and the threads that read its output.

    Args:
        command: its program and arguments.
        environment: variables that it has beside ours.
        stop_timeout_s: the seconds that it has to exit before it is killed.

    Attributes:
        process: the process.
    """

    def __init__(
        self,
        command: list[str],
        environment: Mapping[str, str] | None = None,
        stop_timeout_s: float = _STOP_TIMEOUT_S,
    ) -> None:
        self._stop_timeout_s = stop_timeout_s
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, **(environment or {})},
            start_new_session=True,  # the owner's Ctrl-C interrupts a call, not the server
        )
        self._log = ServerLog()
        self._address: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=target, name=f"shardcall-local-{name}", daemon=True)
            for name, target in (("stdout", self._read_stdout), ("stderr", self._read_stderr))
        ]
        try:
            for thread in self._threads:
                thread.start()
        except RuntimeError as error:
            self.process.kill()
            self.process.wait()
            raise no_thread(error) from None
        self._owned = True
        begin_anew_in_children(self)

    def begin_anew(self) -> None:
        """Disowns the process in a forked child: the server exits with the process that started it."""
        self._owned = False
        _close(self.process.stdin)

    def wait_for_ready(self, timeout_s: float) -> str:
        """Returns the address that the server prints."""
        try:
            address = self._address.get(timeout=timeout_s)
        except queue.Empty:
            raise ServerUnavailableError(
                f"the local server was not ready within {timeout_s:g} s; {self._printed()}"
            ) from None
        if address is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_STOP_TIMEOUT_S)
            self._threads[1].join(_STOP_TIMEOUT_S)
            reason = self._reason()
            why = f": {reason}" if reason else f"; {self._printed()}"
            raise ServerUnavailableError(
                f"the local server ended before it was ready (exit status {self.process.poll()}){why}",
                metadata={"reason": reason},
            )
        return address

    def stop(self) -> None:
        """Terminates the process by closing its standard input, or kills it after a timeout."""
        if not self._owned:  # closing its output would wait for threads that the child lacks
            return
        _close(self.process.stdin)
        try:
            self.process.wait(self._stop_timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for thread, stream in zip(self._threads, (self.process.stdout, self.process.stderr), strict=True):
            thread.join(1.0)
            if not thread.is_alive():  # else another process has the pipe open, and closing would wait for it
                _close(stream)
        self._log.join(1.0)

    def cancel(self) -> None:
        """Kills the process while it is starting; `wait_for_ready` then fails."""
        self.process.kill()

    def _read_stdout(self) -> None:
        for line in self.process.stdout or ():
            if match := _READY.match(line):
                self._address.put(match[1])
                self._log.start()  # not before: the output of a failed start is quoted in an error
        self._address.put(None)

    def _read_stderr(self) -> None:
        for line in self.process.stderr or ():
            self._log.add(line)
        self._log.finish()

    def _reason(self) -> str:
        _, *reasons = _REASON.split("".join(self._log.last()))
        return reasons[-1].strip() if reasons else ""

    def _printed(self) -> str:
        text = "".join(map(for_people, self._log.last())).strip()
        return f"it printed:\n{text}" if text else "it printed nothing"


def _close(stream: IO[str] | None) -> None:
    with contextlib.suppress(OSError):
        if stream is not None:
            stream.close()
