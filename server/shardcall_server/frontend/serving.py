"""The front end's process: from its start to its end by a signal."""

from __future__ import annotations

import os
import platform
import signal
import socket
import sys
import threading
import traceback
from concurrent.futures import wait
from pathlib import Path
from queue import SimpleQueue
from types import FrameType

import structlog

from shardcall_server.certificate_authority import host_of
from shardcall_server.errors import CallError
from shardcall_server.frontend.access.certificates import connect_arguments
from shardcall_server.frontend.rpc.counted_threads import CountedThreads
from shardcall_server.frontend.server import FrontEnd
from shardcall_server.log_setup import configure_logging
from shardcall_server.settings import Settings, SettingsError

_SERVING = ("grpc._server", "_serve")
_LOOK_S = 0.5  # where another thread than the main one takes a signal, Python notes it and a wait sleeps on


def serve(settings: Settings, end_with_stdin: bool = False) -> int:
    """Serves until told to end; returns the process's exit status.

    Prints one line on standard output when the server is ready. SIGTERM and SIGINT drain; a second one
    ends the process at once.

    Args:
        settings: the server's.
        end_with_stdin: whether the end of standard input is a signal to end, as for a server that belongs
            to the program that started it.

    Raises:
        SettingsError: an address or threads that cannot be had, or another system than Linux.
    """
    if platform.system() != "Linux":
        raise SettingsError(
            f"the server needs Linux, whose shared memory files it uses, and this is {platform.system()}; run it in a "
            "container or on another machine: the client runs here"
        )
    configure_logging(settings.log_level)
    end = threading.Event()
    _end_on_signals(end)
    exit_with_serving_thread()
    drainer = CountedThreads(1, 1, "drain")
    if end_with_stdin:
        threading.Thread(target=_end_on_stdin, args=[end], name="stdin", daemon=True).start()
    front_end = FrontEnd(settings)
    if front_end.hosts_address:
        log, reached = structlog.get_logger(), _reached(front_end.hosts_address, settings)
        log.info("hosts may join", needed=settings.hosts, by=f"shardcall worker --join {reached}")
    try:
        ready = front_end.wait_ready(end)
    except CallError as error:
        print(f"shardcall: the mesh could not be started: {error}", file=sys.stderr)  # noqa: T201
        front_end.stop()
        return 1
    if ready is None:
        front_end.stop()
        return 0
    try:
        settings.check_mesh(len(ready.devices))
        front_end.check_warm_up()
    except ValueError as error:
        front_end.stop()
        raise SettingsError(str(error)) from None
    address = front_end.address
    arguments = f'"{_reached(address, settings)}"{connect_arguments(settings)}'
    print(  # noqa: T201
        f"shardcall ready at {address} ({len(ready.devices)} {ready.platform} devices); "
        f"connect with: shardcall.connect({arguments})",
        flush=True,
    )
    front_end.introduce(arguments)
    while not end.wait(_LOOK_S):
        pass
    structlog.get_logger().info("draining", limit_s=settings.drain_s)
    drained = drainer.submit(front_end.drain)
    while not wait([drained], _LOOK_S).done:
        pass
    drained.result()
    return 0


def _reached(address: str, settings: Settings) -> str:
    """An address as others write it: a wildcard is where nobody connects to."""
    host = (host_of(Path(settings.tls_cert)) if settings.tls_cert else None) or socket.gethostname()
    return address.replace("0.0.0.0", host).replace("[::]", host)


def exit_with_serving_thread() -> None:
    """Ends the process if a thread of gRPC that serves connections dies: its port stays open and nobody is answered."""
    usual = threading.excepthook

    def on_death(death: threading.ExceptHookArgs) -> None:
        usual(death)
        frames = traceback.walk_tb(death.exc_traceback)
        if any(
            frame.f_globals.get("__name__") == _SERVING[0] and frame.f_code.co_name == _SERVING[1]
            for frame, _ in frames
        ):
            structlog.get_logger().critical("the thread that serves connections died; the server exits")
            os._exit(os.EX_SOFTWARE)

    threading.excepthook = on_death


def _end_on_signals(end: threading.Event) -> None:
    signals: SimpleQueue[int] = SimpleQueue()

    def wait_for_signal() -> None:
        signals.get()
        end.set()

    # On a thread: a handler may run while the main thread holds the event's lock, which a queue's put bears.
    threading.Thread(target=wait_for_signal, name="end", daemon=True).start()

    def handle(number: int, _: FrameType | None) -> None:
        if end.is_set():
            os._exit(128 + number)
        signals.put(number)

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)


def _end_on_stdin(end: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    end.set()
