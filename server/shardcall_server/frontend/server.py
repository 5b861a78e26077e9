"""The front end's process: brings up the mesh and the services, and ends them in order."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from types import FrameType
from typing import cast

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from shardcall.v1 import (
    array_service_pb2,
    array_service_pb2_grpc,
    kernel_service_pb2,
    kernel_service_pb2_grpc,
    segment_service_pb2,
    segment_service_pb2_grpc,
    server_info_service_pb2,
    server_info_service_pb2_grpc,
)
from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.access.gate import Gate
from shardcall_server.frontend.access.ports import is_loopback, listen
from shardcall_server.frontend.admission import Admission
from shardcall_server.frontend.array_servicer import ArrayServicer
from shardcall_server.frontend.execution import Execution
from shardcall_server.frontend.info_servicer import ServerInfoServicer
from shardcall_server.frontend.interceptor import CallInterceptor
from shardcall_server.frontend.kernel_servicer import KernelServicer
from shardcall_server.frontend.memory.holdings import Holdings
from shardcall_server.frontend.programs.cache import ProgramCache
from shardcall_server.frontend.programs.choices import Choices
from shardcall_server.frontend.programs.measuring import Measurer
from shardcall_server.frontend.segment_servicer import SegmentServicer
from shardcall_server.frontend.workers.session import MeshSession
from shardcall_server.frontend.workers.supervisor import MeshSupervisor
from shardcall_server.settings import Settings, SettingsError
from shardcall_server.telemetry import configure_logging
from shardcall_worker.v1 import link_pb2

# Health checks and questions about the server get through while every call's thread is taken.
_SPARE_THREADS = 8
_MESH_END_S = 5.0
_POLL_S = 0.2
_SERVICES = tuple(
    service.full_name
    for file in (kernel_service_pb2, array_service_pb2, segment_service_pb2, server_info_service_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
)


def grpc_options(settings: Settings) -> list[tuple[str, int]]:
    """GRPC's options: finite messages, large frames, keepalive as a pair, and no port shared unseen."""
    return [
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_send_message_length", settings.max_message_bytes),
        ("grpc.max_metadata_size", 16 << 10),
        ("grpc.http2.max_frame_size", (1 << 24) - 1),
        # Reads of 4 MiB: a stream of 128 MiB arrives 15 % sooner.
        ("grpc.experimental.tcp_read_chunk_size", 4 << 20),
        ("grpc.experimental.tcp_min_read_chunk_size", 4 << 20),
        ("grpc.experimental.tcp_max_read_chunk_size", 4 << 20),
        ("grpc.so_reuseport", 0),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
    ]


class FrontEnd:
    """The services and the mesh behind them.

    Args:
        settings: the server's.

    Raises:
        SettingsError: an address that cannot be had.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._health = health.HealthServicer()
        self._interceptor = CallInterceptor(settings.max_call_s, Gate(), Admission(settings.max_concurrent_calls))
        threads = settings.max_concurrent_calls + _SPARE_THREADS
        self._server = grpc.server(
            ThreadPoolExecutor(threads, thread_name_prefix="call"),
            interceptors=[self._interceptor],
            options=grpc_options(settings),
            maximum_concurrent_rpcs=threads,
        )
        self.address = listen(self._server, settings)
        self._announce(False)
        self._measurer = _measurer(settings)
        self._holdings = Holdings(settings, lambda: self._supervisor.session)
        self._supervisor = MeshSupervisor(
            lambda: _open_session(settings),
            self._program_cache,
            self._announce,
            self._holdings.residents.end_epoch,
        )
        self._register()
        self._server.start()

    def _register(self) -> None:
        holdings, settings = self._holdings, self._settings
        execution = Execution(self._supervisor, settings)
        # Our servicers take a Call where the generated base classes take gRPC's context: the interceptor
        # makes the one of the other.
        kernels = KernelServicer(self._supervisor, execution, holdings.stores, holdings.residents, settings)
        kernel_service_pb2_grpc.add_KernelServiceServicer_to_server(
            cast(kernel_service_pb2_grpc.KernelServiceServicer, kernels), self._server
        )
        arrays = ArrayServicer(self._supervisor, holdings.stores, holdings.residents, settings)
        array_service_pb2_grpc.add_ArrayServiceServicer_to_server(
            cast(array_service_pb2_grpc.ArrayServiceServicer, arrays), self._server
        )
        segments = SegmentServicer(holdings.segments, holdings.companion)
        segment_service_pb2_grpc.add_SegmentServiceServicer_to_server(
            cast(segment_service_pb2_grpc.SegmentServiceServicer, segments), self._server
        )
        info = ServerInfoServicer(self._supervisor, settings, holdings)
        server_info_service_pb2_grpc.add_ServerInfoServiceServicer_to_server(
            cast(server_info_service_pb2_grpc.ServerInfoServiceServicer, info), self._server
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        if is_loopback(self._settings.host):
            names = (*_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
            reflection.enable_server_reflection(names, self._server)

    def _program_cache(self, session: MeshSession) -> ProgramCache:
        limits = self._settings
        return ProgramCache(
            session, limits.max_cached_programs, limits.max_cached_bytes, limits.max_call_bytes, self._measurer
        )

    def _announce(self, ready: bool) -> None:
        status = health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        for service in ("", *_SERVICES):
            self._health.set(service, status)

    def wait_ready(self, end: threading.Event) -> link_pb2.Ready | None:
        """Waits for the mesh's first answer; returns None if ``end`` is set first.

        Raises:
            CallError: the mesh ended instead, or did not answer in time.
        """
        deadline = time.monotonic() + self._settings.start_timeout_s
        while not end.is_set():
            try:
                return self._supervisor.wait_ready(_POLL_S).ready
            except FutureTimeoutError:
                if time.monotonic() > deadline:
                    raise CallError(
                        Reason.MESH_NOT_READY,
                        f"it did not answer within {self._settings.start_timeout_s:g} s; see --start-timeout-s",
                    ) from None
        return None

    def drain(self) -> None:
        """Takes no new calls, lets those at work finish, and ends the mesh."""
        self._interceptor.draining = True
        self._health.enter_graceful_shutdown()
        self._server.stop(self._settings.drain_s).wait()
        self._supervisor.stop(_MESH_END_S)
        self._end_measuring()
        self._holdings.close()

    def stop(self) -> None:
        """Ends everything without waiting for calls."""
        self._server.stop(0).wait()
        self._supervisor.stop(0.0)
        self._end_measuring()
        self._holdings.close()

    def _end_measuring(self) -> None:
        if self._measurer is not None:
            self._measurer.close()


def _open_session(settings: Settings) -> MeshSession:
    platform = settings.platform or ("cpu" if settings.devices else "")
    start = link_pb2.Start(virtual_devices=settings.devices, platform=platform)
    return MeshSession(start, settings.log_level)


def _measurer(settings: Settings) -> Measurer | None:
    return Measurer(Choices(settings.cache_dir), settings.max_timing_s) if settings.strategy == "measured" else None


def serve(settings: Settings, end_with_stdin: bool = False) -> int:
    """Serves until told to end; returns the process's exit status.

    Prints one line on standard output when the server is ready. SIGTERM and SIGINT drain; a second one
    ends the process at once.

    Args:
        settings: the server's.
        end_with_stdin: whether the end of standard input is a signal to end, as for a server that belongs
            to the program that started it.

    Raises:
        SettingsError: an address that cannot be had.
    """
    configure_logging(settings.log_level)
    end = threading.Event()
    _end_on_signals(end)
    if end_with_stdin:
        threading.Thread(target=_end_on_stdin, args=[end], name="stdin", daemon=True).start()
    front_end = FrontEnd(settings)
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
    except ValueError as error:
        front_end.stop()
        raise SettingsError(str(error)) from None
    address = front_end.address
    # A wildcard is where others do not connect to.
    reached = address.replace("0.0.0.0", socket.gethostname()).replace("[::]", socket.gethostname())
    print(  # noqa: T201
        f"shardcall ready at {address} ({len(ready.devices)} {ready.platform} devices); "
        f'connect with: shardcall.connect("{reached}")',
        flush=True,
    )
    end.wait()
    structlog.get_logger().info("draining", limit_s=settings.drain_s)
    front_end.drain()
    return 0


def _end_on_signals(end: threading.Event) -> None:
    def handle(number: int, _: FrameType | None) -> None:
        if end.is_set():
            os._exit(128 + number)
        end.set()

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)


def _end_on_stdin(end: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    end.set()
