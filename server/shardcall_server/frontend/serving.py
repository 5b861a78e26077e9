"""The front end's process, from its start to a signal."""

from __future__ import annotations

import os
import platform
import signal
import socket
import sys
import threading
import time
import traceback
from concurrent.futures import wait
from pathlib import Path
from queue import SimpleQueue
from types import FrameType

import structlog

from shardcall_core.call_error import DEVICES_FAILED, CallError
from shardcall_server.certificate_authority import host_of
from shardcall_server.frontend.access.certificates import connect_arguments
from shardcall_server.frontend.rpc.counted_threads import CountedThreads
from shardcall_server.frontend.server import FrontEnd
from shardcall_server.frontend.service_manager import ServiceManager
from shardcall_server.frontend.workers.process import WorkerProcess
from shardcall_server.log_output import finish_log
from shardcall_server.log_setup import configure_logging
from shardcall_server.settings import Settings, SettingsError
from shardcall_server.standard_streams import print_line, stop_signals
from shardcall_worker.v1 import link_pb2

_SERVING = ("grpc._server", "_serve")
_HOW_TO_SHARD = (
    "shardcall has one CPU device, so that nothing is sharded; for 8 virtual devices: shardcall serve --devices 8"
)
_SWITCH_S = 0.001
"""The longest wait of a thread for one that runs Python; a small call waits several times beside busy threads."""
_MAX_STOP_S = 4.5  # after the drain limit; the log then has a moment
_POLL_S = 0.5  # a signal that another thread receives does not interrupt a wait of the main thread


def serve(settings: Settings, first_worker: WorkerProcess | None = None, stop_with_stdin: bool = False) -> int:
    """Serves until a signal; returns the process's exit status.

    Prints one line on standard output when the server is ready. SIGTERM, SIGINT and the end of its terminal
    drain the server, and end the process five seconds after the drain limit at the latest; a second SIGTERM or SIGINT
    ends it immediately. The service manager, if there is one, is notified of the start, the stop and the main thread's
    life.

    Args:
        settings: the settings.
        first_worker: the worker of the first mesh, if it has been started.
        stop_with_stdin: also stop at the end of standard input, as for a server owned by the program that started it.

    Raises:
        SettingsError: an address cannot be bound, threads cannot be started, or the system is not Linux.
    """
    if platform.system() != "Linux":
        raise SettingsError(
            f"the server needs Linux, for its shared memory files, and this is {platform.system()}; run it in a "
            "container or on another machine (the client runs on this one)"
        )
    sys.setswitchinterval(_SWITCH_S)
    configure_logging(settings.log_level)
    stop = threading.Event()  # set by a signal, or at the end of standard input
    causes: SimpleQueue[object] = SimpleQueue()
    stopper = threading.Thread(target=_stop_on_cause, args=[causes, stop, settings.drain_s], name="stop", daemon=True)
    stopper.start()
    _stop_on_signals(causes, stop)
    exit_with_serving_thread()
    drainer = CountedThreads(1, 1, "drain")
    manager = ServiceManager(os.environ)
    if stop_with_stdin:
        threading.Thread(target=_stop_on_stdin, args=[causes], name="stdin", daemon=True).start()
    front_end = FrontEnd(settings, first_worker)
    if front_end.hosts_address:
        log, address = structlog.get_logger(), _public_address(front_end.hosts_address, settings)
        log.info("hosts may join", needed=settings.hosts, by=f"shardcall worker --join {address}")
    try:
        ready = front_end.wait_ready(stop)
    except CallError as error:
        reason = str(error).rpartition(f"{DEVICES_FAILED}: ")[2]
        print(f"shardcall: the mesh could not be started: {reason}", file=sys.stderr)  # noqa: T201
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
    arguments = f'"{_public_address(address, settings)}"{connect_arguments(settings)}'
    count = len(ready.devices)
    print_line(
        f"shardcall ready at {address} ({count} {ready.platform} device{'s' * (count != 1)}); "
        f"connect with: shardcall.connect({arguments}), or: shardcall info {as_options(arguments)}"
    )
    if is_lonely(ready, settings):
        print_line(_HOW_TO_SHARD)
    front_end.introduce_page()
    front_end.introduce(arguments)
    manager.notify("READY=1", f"STATUS=serves at {address}")
    while not stop.wait(_POLL_S):
        manager.keep_alive()
    structlog.get_logger().info("draining", limit_s=settings.drain_s)
    manager.notify("STOPPING=1", f"STATUS=drains, for {settings.drain_s:g} s at most")
    drained = drainer.submit(front_end.drain)
    while not wait([drained], _POLL_S).done:
        pass
    drained.result()
    return 0


def is_lonely(ready: link_pb2.Ready, settings: Settings) -> bool:
    """Returns whether JAX chose the only CPU device itself, so that nothing can be sharded."""
    return len(ready.devices) == 1 and ready.platform == "cpu" and not (settings.devices or settings.hosts)


def as_options(arguments: str) -> str:
    """Returns an address and keywords of `shardcall.connect` as arguments of a command."""
    address, *keywords = arguments.replace('"', "").split(", ")
    pairs = (keyword.partition("=") for keyword in keywords)
    return " ".join([address, *(f"--{name.replace('_', '-')} {value}" for name, _, value in pairs)])


def _public_address(address: str, settings: Settings) -> str:
    """Returns an address for clients, with a host name instead of a wildcard."""
    host = (host_of(Path(settings.tls_cert)) if settings.tls_cert else None) or socket.gethostname()
    return address.replace("0.0.0.0", host).replace("[::]", host)


def exit_with_serving_thread() -> None:
    """Ends the process if gRPC's serving thread dies, since the port would stay open without any answer."""
    previous = threading.excepthook

    def on_death(death: threading.ExceptHookArgs) -> None:
        previous(death)
        frames = traceback.walk_tb(death.exc_traceback)
        if any(
            frame.f_globals.get("__name__") == _SERVING[0] and frame.f_code.co_name == _SERVING[1]
            for frame, _ in frames
        ):
            structlog.get_logger().critical("the thread that serves connections died; the server exits")
            finish_log()
            os._exit(os.EX_SOFTWARE)

    threading.excepthook = on_death


def _stop_on_cause(causes: SimpleQueue[object], stop: threading.Event, drain_s: float) -> None:
    """Sets an event when there is a cause to stop, and ends the process if it has not ended in time.

    Args:
        causes: receives anything when the server is to stop.
        drain_s: the drain limit.
    """
    causes.get()
    stop.set()
    time.sleep(drain_s + _MAX_STOP_S)
    threads = [thread.name for thread in threading.enumerate() if not thread.daemon]
    structlog.get_logger().critical("the server did not stop and is ended", limit_s=drain_s, threads=threads)
    finish_log()
    os._exit(os.EX_SOFTWARE)


def _stop_on_signals(causes: SimpleQueue[object], stop: threading.Event) -> None:
    def handle(number: int, _: FrameType | None) -> None:
        if stop.is_set() and number != signal.SIGHUP:  # which the shell of a terminal sends, too
            os._exit(128 + number)
        # A handler may run while the main thread holds the event's lock; `SimpleQueue.put` is reentrant.
        causes.put(number)

    for number in stop_signals():
        signal.signal(number, handle)


def _stop_on_stdin(causes: SimpleQueue[object]) -> None:
    while os.read(0, 4096):
        pass
    causes.put(None)
