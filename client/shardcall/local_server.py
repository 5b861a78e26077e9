"""A private server that ends with its owner."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Mapping
from typing import IO

from shardcall import cancellation
from shardcall.client import Client
from shardcall.connection import connect
from shardcall.errors import InvalidParameterError, ServerUnavailableError
from shardcall.progress import Listener
from shardcall.token_file import TOKEN_VARIABLE, new_token

_READY = re.compile(r"shardcall ready at (\S+)")
_STOP_TIMEOUT_S = 10.0
_KEPT_LINES = 20
_REASON = re.compile(r"^shardcall: ", re.MULTILINE)

Setting = bool | int | float | str


def local(
    devices: int = 8,
    *,
    start_timeout: float = 60.0,
    shared_memory: bool = True,
    progress: bool | Listener = True,
    **settings: Setting,
) -> Client:
    """Starts a private server on this machine and connects to it.

    The server needs the extra ``server``. It ends with `Client.close`, with the client, and with this
    process.

    Args:
        devices: how many CPU devices it shall have.
        start_timeout: seconds within which it must be ready.
        shared_memory: as of `connect`.
        progress: likewise.
        settings: options of ``shardcall serve``, with underscores for hyphens: ``max_cached_programs=64``.

    Raises:
        ServerUnavailableError: if it does not start; the message says why, or holds the end of what it printed.
    """
    if isinstance(devices, bool) or not isinstance(devices, int) or devices < 1:
        raise InvalidParameterError(f"devices is {devices!r}; give an integer, 1 or more", field="devices")
    command = [sys.executable, "-m", "shardcall.cli", "serve", "--port", "0", "--devices", str(devices)]
    # A private server need not be back at once, and is to be ready at once: what earlier ones compiled is on disk.
    options = _options({"spare_worker": False, "warm_s": 0, **settings})
    token = new_token()  # by the environment, since others see the words of a command
    server = ServerProcess([*command, "--exit-with-stdin", *options], {TOKEN_VARIABLE: token})
    cancellation.watch(server)
    try:
        address = server.wait_until_ready(start_timeout)
        client = connect(address, token=token, shared_memory=shared_memory, progress=progress)
    except BaseException:
        server.stop()
        raise
    # Holds no reference to the client, so it also runs when the client is collected, and at exit.
    client._on_close = weakref.finalize(client, server.stop)
    return client


class ServerProcess:
    """A server process that ends with its standard input, and the threads that keep its output flowing."""

    def __init__(self, command: list[str], environment: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
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
        self._stderr: deque[str] = deque(maxlen=_KEPT_LINES)
        self._address: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=target, name=f"shardcall-local-{name}", daemon=True)
            for name, target in (("stdout", self._read_stdout), ("stderr", self._read_stderr))
        ]
        for thread in self._threads:
            thread.start()

    def wait_until_ready(self, timeout_s: float) -> str:
        """Returns the address that the server prints."""
        try:
            address = self._address.get(timeout=timeout_s)
        except queue.Empty:
            raise ServerUnavailableError(
                f"the local server was not ready within {timeout_s:g} s; {self._printed()}"
            ) from None
        if address is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_TIMEOUT_S)
            self._threads[1].join(_STOP_TIMEOUT_S)
            raise ServerUnavailableError(
                f"the local server ended before it was ready (exit status {self._process.poll()}){self._reason()}"
            )
        return address

    def stop(self) -> None:
        """Ends the process: by the end of its standard input, by force where that does not help."""
        _close(self._process.stdin)
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for thread, stream in zip(self._threads, (self._process.stdout, self._process.stderr), strict=True):
            thread.join(1.0)
            if not thread.is_alive():  # else a grandchild holds the pipe, and closing would wait for it
                _close(stream)

    def cancel(self) -> None:
        """Kills the process while it is starting; `wait_until_ready` then fails."""
        self._process.kill()

    def _read_stdout(self) -> None:
        for line in self._process.stdout or ():
            if match := _READY.match(line):
                self._address.put(match[1])
        self._address.put(None)

    def _read_stderr(self) -> None:
        self._stderr.extend(self._process.stderr or ())

    def _reason(self) -> str:
        _, *reasons = _REASON.split("".join(self._stderr.copy()))
        return f": {reasons[-1].strip()}" if reasons else f"; {self._printed()}"

    def _printed(self) -> str:
        text = "".join(self._stderr.copy()).strip()
        return f"it printed:\n{text}" if text else "it printed nothing"


def _close(stream: IO[str] | None) -> None:
    with contextlib.suppress(OSError):
        if stream is not None:
            stream.close()


def _options(settings: dict[str, Setting]) -> list[str]:
    options = []
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            options.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            options += [f"--{flag}", str(value)]
    return options
