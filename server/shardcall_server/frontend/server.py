"""The front end: starts the mesh and the services, and stops them in order."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from typing import Any, cast

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from shardcall.v1 import (
    array_service_pb2,
    array_service_pb2_grpc,
    file_service_pb2,
    file_service_pb2_grpc,
    kernel_service_pb2,
    kernel_service_pb2_grpc,
    model_service_pb2,
    model_service_pb2_grpc,
    profile_service_pb2,
    profile_service_pb2_grpc,
    segment_service_pb2,
    segment_service_pb2_grpc,
    server_info_service_pb2,
    server_info_service_pb2_grpc,
)
from shardcall_core.access.addresses import is_loopback
from shardcall_core.call_error import CallError, Reason
from shardcall_core.wire.token_fields import PrincipalLimits, no_limits
from shardcall_core.wire.token_file import read, user_entry
from shardcall_server.frontend.access.floods import FloodGuard
from shardcall_server.frontend.access.gate import Gate
from shardcall_server.frontend.access.ports import listen, session_names
from shardcall_server.frontend.access.session_sockets import open_session_sockets
from shardcall_server.frontend.access.token_watch import RecentPrincipals, TokenWatch
from shardcall_server.frontend.access.tokens import FileTokens, open_tokens
from shardcall_server.frontend.autotune.autotuner import Autotuner
from shardcall_server.frontend.autotune.session_tuner import SessionTuner
from shardcall_server.frontend.autotune.tuning_cache import TuningCache
from shardcall_server.frontend.dispatch.array_reader import ArrayReader
from shardcall_server.frontend.dispatch.array_writer import ArrayWriter
from shardcall_server.frontend.dispatch.checkpoint_restorer import CheckpointRestorer
from shardcall_server.frontend.dispatch.checkpoint_writer import CheckpointWriter
from shardcall_server.frontend.dispatch.execution import Execution, default_mesh
from shardcall_server.frontend.dispatch.host_resources import HostResources
from shardcall_server.frontend.dispatch.idempotency import IdempotencyTable
from shardcall_server.frontend.dispatch.kernel_runner import KernelRunner
from shardcall_server.frontend.dispatch.mesh_queue import make_queue
from shardcall_server.frontend.dispatch.supervisor import MeshSupervisor, ReadyMesh, SupervisorConfig
from shardcall_server.frontend.files.array_folder import ArrayFolder
from shardcall_server.frontend.hosts.host_server import HostServer
from shardcall_server.frontend.hosts.hosts import Hosts, starts_of_hosts
from shardcall_server.frontend.inference.model_runner import ModelRunner
from shardcall_server.frontend.inference.model_table import ModelTable
from shardcall_server.frontend.inference.shared_memory_regions import SharedMemoryRegions
from shardcall_server.frontend.memory.budget import MemoryBudget
from shardcall_server.frontend.observability.telemetry import Telemetry
from shardcall_server.frontend.programs.known_answers import KnownAnswerRunner
from shardcall_server.frontend.programs.program_cache import ProgramCache
from shardcall_server.frontend.programs.program_table import ProgramLimits
from shardcall_server.frontend.programs.verdicts import Verdicts
from shardcall_server.frontend.programs.warm_up import WarmUp
from shardcall_server.frontend.rpc import reflection
from shardcall_server.frontend.rpc.admission import Admission
from shardcall_server.frontend.rpc.auxiliary_rpcs import AuxiliaryRpcs
from shardcall_server.frontend.rpc.call_threads import CallThreads
from shardcall_server.frontend.rpc.counted_threads import CountedThreads
from shardcall_server.frontend.rpc.deadline_timer import DeadlineTimer
from shardcall_server.frontend.rpc.drain import Drain
from shardcall_server.frontend.rpc.grpc_options import grpc_options
from shardcall_server.frontend.rpc.processor_shares import ProcessorShares
from shardcall_server.frontend.rpc.queued_calls import QueuedCalls
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.services.array_servicer import ArrayServicer
from shardcall_server.frontend.services.call_stream import MAX_PREPARED_CALLS, StreamLimits
from shardcall_server.frontend.services.call_streams import CallStreams
from shardcall_server.frontend.services.file_servicer import FileServicer
from shardcall_server.frontend.services.inference_servicer import InferenceServicer, add_inference_servicer
from shardcall_server.frontend.services.info_servicer import InfoSources, ServerInfoServicer
from shardcall_server.frontend.services.interceptor import CallInterceptor, Charges, TimeLimits, caller_of
from shardcall_server.frontend.services.kernel_servicer import KernelServicer
from shardcall_server.frontend.services.model_servicer import ModelServicer
from shardcall_server.frontend.services.principal_usage import PrincipalUsages
from shardcall_server.frontend.services.profile_servicer import ProfileServicer
from shardcall_server.frontend.services.request_streams import RequestStreams
from shardcall_server.frontend.services.segment_servicer import SegmentServicer
from shardcall_server.frontend.services.streamed_call import StreamServices
from shardcall_server.frontend.web.http_server import HttpServer
from shardcall_server.frontend.web.page_access import KEY_S, PageAccess
from shardcall_server.frontend.web.site import LivePage, Site
from shardcall_server.frontend.web.snapshot import SnapshotSources, snapshot
from shardcall_server.frontend.workers.process import WorkerProcess
from shardcall_server.frontend.workers.quarantine import Quarantine
from shardcall_server.frontend.workers.session import MeshSession
from shardcall_server.frontend.workers.watchdog import WatchLimits
from shardcall_server.frontend.workers.worker import Worker
from shardcall_server.frontend.workers.workers import Workers
from shardcall_server.settings import Settings
from shardcall_server.standard_streams import print_line
from shardcall_worker.v1 import link_pb2

_MESH_STOP_S = 1.0  # after the drain, when no call waits for the mesh; then the workers are killed
_SENDING_S = 2.0  # for sending the last responses, whose handlers have returned
_MAX_QUEUED_REQUESTS = 1024  # of the inference protocol, which wait for a call slot
_POLL_S = 0.2
_IN_TIME = f"within {KEY_S / 60:g} minutes"
_SERVICES = tuple(
    service.full_name
    for file in (
        kernel_service_pb2,
        array_service_pb2,
        file_service_pb2,
        model_service_pb2,
        segment_service_pb2,
        server_info_service_pb2,
        profile_service_pb2,
    )
    for service in file.DESCRIPTOR.services_by_name.values()
)


class FrontEnd:
    """The services and the mesh behind them.

    Args:
        settings: the settings.
        first_worker: the worker of the first mesh, if it has been started.

    Attributes:
        address: the address of the services, "host:port".

    Raises:
        SettingsError: an address cannot be bound, or threads cannot be started.
    """

    def __init__(self, settings: Settings, first_worker: WorkerProcess | None = None) -> None:
        self._settings = settings
        self._warm_up = WarmUp(settings)
        self._tokens = open_tokens(settings)
        self._health = health.HealthServicer()
        self._telemetry = Telemetry(settings)
        self._admission = Admission(
            settings.max_concurrent_calls, settings.calls_per_client, settings.calls_per_connection
        )
        self._floods = FloodGuard(self._telemetry.call_recorder.flooded)
        self._charges = Charges(
            ProcessorShares(), MemoryBudget(settings.max_bytes_in_flight, settings.max_bytes_per_client)
        )
        # Each stream has a thread that reads and one that sends.
        self._stream_threads = CountedThreads(
            2 * settings.max_call_streams, 2 * settings.max_call_streams - 1, "stream"
        )
        self._server = self._make_server()
        self.address = listen(self._server, settings)
        self._page_access: PageAccess | None = None
        self._sessions = open_session_sockets(session_names(self.address, settings.unix_socket), self._tokens)
        self._announce(False)
        self._autotuner = _autotuner(settings)
        limits_of = self._tokens.limits_of if self._tokens else no_limits
        self._array_folder = _array_folder(settings, limits_of)
        self._known_answers = KnownAnswerRunner(
            Verdicts(settings.cache_dir), is_strict=settings.known_answers == "strict"
        )
        checkpoints = self._array_folder.checkpoints if self._array_folder else None
        self._host_resources = HostResources(
            settings,
            self._charges.budget,
            lambda: self._supervisor.session,
            limits_of,
            checkpoints,
            self._known_answers.suspicion,
        )
        self._restorer = CheckpointRestorer(checkpoints, self._host_resources) if checkpoints else None
        self._idempotency = IdempotencyTable()
        self._token_watch = TokenWatch()
        self._regions = SharedMemoryRegions(enabled=settings.shared_memory_regions)
        self._profiles = ProfileServicer(lambda: self._supervisor, self._idempotency, settings)
        self._programs: ProgramCache | None = None
        self._queue = make_queue(settings, lambda: self._supervisor.session, self._host_resources.array_table)
        self._hosts = Hosts(settings, self._announce_host) if settings.hosts else None
        self._host_server = HostServer(settings, self._hosts, self._tokens, self._floods) if self._hosts else None
        self._supervisor = self._make_supervisor(first_worker)
        info = self._register()
        self._telemetry.expose(
            info.usage,
            self._supervisor.exit_counts,
            self._autotuner,
            self._host_resources.array_table.max_bytes,
        )
        self._http_server = self._serve_http(info)
        self._server.start()
        self._floods.watch(int(address.rpartition(":")[2]) for address in (self.address, self.hosts_address) if address)

    def _make_server(self) -> grpc.Server:
        settings, threads, drain = self._settings, CallThreads(self._admission.capacity), Drain()
        self._interceptor = CallInterceptor(
            TimeLimits(settings.max_call_s, settings.stream_idle_s),
            Gate(self._tokens),
            self._admission,
            threads,
            self._telemetry.call_recorder,
            self._floods,
            self._stream_threads,
            QueuedCalls(
                threads,
                caller_of,
                drain,
                settings.max_concurrent_calls,
                settings.calls_per_connection,
                _MAX_QUEUED_REQUESTS,
            ),
            drain,
            self._charges,
        )
        # On grpc.aio, a stream echo takes 0.43 to 0.48 ms instead of 0.49 to 0.54, and a unary echo 0.67 to 0.71
        # instead of 0.57 to 0.62, which does not justify a second kind of server.
        return grpc.server(
            threads,
            interceptors=[self._interceptor, AuxiliaryRpcs(threads)],
            options=grpc_options(settings),
            maximum_concurrent_rpcs=threads.hard_limit + _MAX_QUEUED_REQUESTS,
        )

    async def _mesh(self, call: ServerCall) -> ReadyMesh:
        return await self._supervisor.mesh(call)

    def _serve_http(self, info: ServerInfoServicer) -> HttpServer | None:
        settings = self._settings
        if settings.metrics_port is None:
            return None
        site = Site(self._telemetry.registry, self._not_ready_reason, self._live_page(info))
        server = HttpServer(settings.metrics_host, settings.metrics_port, site)
        structlog.get_logger().info("metrics", url=f"http://{server.address}/metrics")
        if site.page is not None:
            self._page_access = site.page.access
        return server

    def _not_ready_reason(self) -> str:
        """Returns why calls are not served, for anyone; empty if they are."""
        if self._interceptor.drain.begun:
            return "the server shuts down"
        state = self._supervisor.state()
        if state.ready:
            return ""
        if state.missing:
            return "the mesh waits for hosts"
        return "the mesh starts again" if state.restarts else "the mesh starts"

    def _live_page(self, info: ServerInfoServicer) -> LivePage | None:
        recent = self._telemetry.call_recorder.recent
        if recent is None:
            return None
        sources = SnapshotSources(
            address=self.address,
            usage=info.usage,
            draining=lambda: self._interceptor.drain.begun,
            ready=lambda: mesh.ready if (mesh := self._supervisor.latest) else None,
            mesh_axes=lambda ready: default_mesh(self._settings, ready).axes,
            exits=self._supervisor.exit_counts,
            arrays=self._host_resources.array_table.newest,
            max_resident_bytes=self._host_resources.array_table.max_bytes,
            programs=lambda count: self._programs.latest(count) if self._programs else (),
            streams=self._call_streams.counts,
            waiting=self._queue.waiting,
            recent=recent,
        )
        return LivePage(PageAccess(self._tokens), partial(snapshot, sources), self._settings.max_page_viewers)

    def _make_supervisor(self, first_worker: WorkerProcess | None) -> MeshSupervisor:
        settings, restorer = self._settings, self._restorer
        restoring: dict[str, Any] = {"restore": restorer.restore, "adopt": restorer.adopt} if restorer else {}
        return MeshSupervisor(
            self._hosts
            or Workers(
                settings.device_platform, settings.log_level, keep_spare=settings.spare_worker, first=first_worker
            ),
            SupervisorConfig(
                open_session=partial(_open_session, settings, Quarantine(), self._warm_up.program_dir),
                make_programs=self._program_cache,
                on_change=self._announce,
                on_session_end=self._discard_epoch,
                limits=_watch_limits(settings),
                warm_up=self._warm_up.prepare,
                hosts=self._hosts,
                **restoring,
            ),
        )

    def _discard_epoch(self, epoch: int) -> None:
        self._host_resources.array_table.remove_epoch(epoch)
        self._profiles.discard_stale()

    def _register(self) -> ServerInfoServicer:
        host_resources, settings = self._host_resources, self._settings
        queue = self._queue
        execution = Execution(self._supervisor, queue, self._known_answers, settings)
        # The servicers take a ServerCall where the generated base classes take gRPC's context; the interceptor
        # converts one to the other.
        idempotency = self._idempotency
        runner = KernelRunner(execution, host_resources.buffer_allocator, host_resources.array_table, settings)
        reader = ArrayReader(self._supervisor, host_resources.buffer_allocator, queue, self._known_answers, settings)
        writer = ArrayWriter(
            self._supervisor, host_resources.buffer_allocator, host_resources.array_table, queue, settings
        )
        self._call_streams = self._make_call_streams(runner, reader, writer)
        kernels = KernelServicer(
            self._supervisor,
            execution,
            runner,
            host_resources.array_table,
            idempotency,
            self._call_streams,
            settings,
        )
        kernel_service_pb2_grpc.add_KernelServiceServicer_to_server(
            cast(kernel_service_pb2_grpc.KernelServiceServicer, kernels), self._server
        )
        arrays = ArrayServicer(
            host_resources.buffer_allocator,
            host_resources.array_table,
            reader,
            writer,
            idempotency,
            self._supervisor,
            self._admission.calls,
            settings,
        )
        array_service_pb2_grpc.add_ArrayServiceServicer_to_server(
            cast(array_service_pb2_grpc.ArrayServiceServicer, arrays), self._server
        )
        folder, checkpoints = self._array_folder, None
        if folder is not None and self._restorer is not None:
            checkpoints = CheckpointWriter(folder, host_resources, self._restorer, self._mesh)
        files = FileServicer(folder, checkpoints, host_resources, reader, writer, idempotency, settings)
        file_service_pb2_grpc.add_FileServiceServicer_to_server(
            cast(file_service_pb2_grpc.FileServiceServicer, files), self._server
        )
        segments = SegmentServicer(host_resources.segments, host_resources.segment_broker, self._interceptor.drain)
        segment_service_pb2_grpc.add_SegmentServiceServicer_to_server(
            cast(segment_service_pb2_grpc.SegmentServiceServicer, segments), self._server
        )
        self._register_models(execution, runner)
        info = ServerInfoServicer(
            self._supervisor,
            settings,
            InfoSources(
                host_resources,
                self._admission,
                queue,
                lambda: len(self._programs or ()),
                self._known_answers.state,
                self._principal_usages(),
                self._telemetry.call_recorder.totals.snapshot,
                execution.progress,
            ),
        )
        server_info_service_pb2_grpc.add_ServerInfoServiceServicer_to_server(
            cast(server_info_service_pb2_grpc.ServerInfoServiceServicer, info), self._server
        )
        profile_service_pb2_grpc.add_ProfileServiceServicer_to_server(
            cast(profile_service_pb2_grpc.ProfileServiceServicer, self._profiles), self._server
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        if is_loopback(self._settings.host) or self._settings.reflection:
            reflection.serve(self._server, (*_SERVICES, health.SERVICE_NAME))
        return info

    def _register_models(self, execution: Execution, runner: KernelRunner) -> None:
        host_resources, settings = self._host_resources, self._settings
        gate = Gate(self._tokens)
        models, streams = ModelTable(host_resources.budget, gate.has_valid_token), RequestStreams(gate)
        self._token_watch.add(streams.check)
        recent = RecentPrincipals(gate.is_principal)
        for table in (self._regions, models):
            self._token_watch.add(partial(table.retain, recent.has))
        model_runner = ModelRunner(
            self._supervisor,
            runner,
            host_resources.array_table,
            host_resources.budget,
            models,
            self._regions,
            settings,
        )
        publishing = ModelServicer(
            models, execution, self._supervisor.mesh, host_resources.array_table, self._idempotency, settings
        )
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(
            cast(model_service_pb2_grpc.ModelServiceServicer, publishing), self._server
        )
        add_inference_servicer(
            InferenceServicer(model_runner, self._regions, self._telemetry.call_recorder, streams),
            self._server,
        )

    def _principal_usages(self) -> PrincipalUsages:
        totals, tokens = self._telemetry.call_recorder.totals, self._tokens
        return PrincipalUsages(
            self._host_resources.array_table,
            self._admission,
            lambda: self._programs.table.by_owner() if self._programs else {},
            lambda: totals.snapshot()[1],
            lambda: tokens.limits if tokens else None,
        )

    def _make_call_streams(self, runner: KernelRunner, reader: ArrayReader, writer: ArrayWriter) -> CallStreams:
        settings = self._settings
        services = StreamServices(
            gate=Gate(self._tokens),
            admission=self._admission,
            drain=self._interceptor.drain,
            recorder=self._telemetry.call_recorder,
            runner=runner,
            reader=reader,
            writer=writer,
            idempotency=self._idempotency,
            array_table=self._host_resources.array_table,
            timer=DeadlineTimer(),
            budget=self._charges.budget,
            shares=self._charges.shares,
            session=lambda: self._supervisor.session,
        )
        limits = StreamLimits(
            settings.max_streamed_calls, settings.max_streamed_bytes, MAX_PREPARED_CALLS, settings.max_call_s
        )
        return CallStreams(
            services, limits, self._stream_threads, settings.max_call_streams, self._floods, self._token_watch
        )

    def _program_cache(self, session: MeshSession) -> ProgramCache:
        settings = self._settings
        limits = ProgramLimits(
            settings.max_cached_programs, settings.max_cached_bytes, settings.max_call_bytes, settings.max_device_bytes
        )
        self._programs = ProgramCache(session, limits, self._telemetry.programs, self._warm_up.call_history)
        if self._autotuner is not None:
            self._programs.compiler.policy = SessionTuner(self._programs.compiler, self._autotuner)
        self._known_answers.begin(session)
        return self._programs

    def _announce(self, ready: bool) -> None:
        status = health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        self._telemetry.programs.serving = ready
        for service in ("", *_SERVICES):
            self._health.set(service, status)

    def wait_ready(self, stop: threading.Event) -> link_pb2.Ready | None:
        """Waits until the first mesh is ready; returns None if ``stop`` is set first.

        Raises:
            CallError: the mesh ended instead, or was not ready in time.
        """
        deadline = time.monotonic() + self._settings.start_timeout_s
        while not stop.is_set():
            try:
                return self._supervisor.wait_ready(_POLL_S).ready
            except FutureTimeoutError:
                if time.monotonic() > deadline and not self._hosts:  # hosts may join at any time
                    raise CallError(
                        Reason.MESH_NOT_READY,
                        f"it was not ready within {self._settings.start_timeout_s:g} s; see --start-timeout-s",
                    ) from None
        return None

    def _announce_host(self, name: str, present: bool) -> None:
        status = health_pb2.HealthCheckResponse.SERVING if present else health_pb2.HealthCheckResponse.NOT_SERVING
        self._health.set(f"hosts/{name}", status)

    @property
    def hosts_address(self) -> str:
        """The address at which hosts join; empty if the mesh has no other hosts."""
        return self._host_server.address if self._host_server is not None else ""

    def check_warm_up(self) -> None:
        """Raises SettingsError if a call of ``warm_up_file`` was refused."""
        self._warm_up.check()

    def introduce(self, arguments: str) -> None:
        """Reports a token that was generated at this start, and shows it on a terminal."""
        if isinstance(self._tokens, FileTokens) and self._tokens.is_created:
            path = self._settings.token_file
            token = f'"{user_entry(read(path)).token}"' if sys.stdout.isatty() else "…"
            shown = "" if sys.stdout.isatty() else "; shardcall token show prints it"
            print_line(
                f"shardcall generated a token in {path}; programs of this user on this machine find it by themselves, "
                f"others connect with: shardcall.connect({arguments}, token={token}){shown}"
            )

    def introduce_page(self) -> None:
        """Prints the address of the live page, with a key for a person: a log that has the output must not have one."""
        if self._page_access is None or self._http_server is None:
            return
        host = socket.gethostname()
        url = f"http://{self._http_server.address}/".replace("0.0.0.0", host).replace("[::]", host)
        if self._tokens is None:  # whoever reads the output may call everything, and only the key opens the page
            print_line(f"shardcall shows its live page at {url}#{self._page_access.issue_key()} (once, {_IN_TIME})")
        elif sys.stdout.isatty():
            link = f"{url}#{self._page_access.issue_key()}"
            print_line(f"shardcall shows its live page at {link} (once, {_IN_TIME}; then with the admin token)")
        else:
            print_line(f"shardcall shows its live page at {url} (sign in with: shardcall token show --admin)")

    def drain(self) -> None:
        """Refuses new calls, waits for those in progress, and stops the mesh."""
        drain = self._interceptor.drain
        drain.begin()
        self._health.enter_graceful_shutdown()
        # gRPC's server keeps listening meanwhile: stopped, it would end new calls without an error message.
        drain.wait(self._settings.drain_s)
        self._supervisor.refuse()
        self._close_sessions()  # before the port is free, since the next server there opens its own
        self._server.stop(min(self._settings.drain_s, _SENDING_S)).wait()
        self._supervisor.stop(_MESH_STOP_S)
        self._close()

    def stop(self) -> None:
        """Stops everything without waiting for calls."""
        self._close_sessions()
        self._server.stop(0).wait()
        self._supervisor.stop(0.0)
        self._close()

    def _close_sessions(self) -> None:
        if self._sessions is not None:
            self._sessions.close()

    def _close(self) -> None:
        """Closes the resources of the services and the mesh."""
        for optional in (self._http_server, self._host_server, self._tokens, self._autotuner, self._array_folder):
            if optional is not None:
                optional.close()
        parts = (
            self._floods,
            self._token_watch,
            self._regions,
            self._known_answers,
            self._warm_up,
            self._host_resources,
            self._telemetry,
        )
        for part in parts:
            part.close()


def _open_session(
    settings: Settings, quarantine: Quarantine, program_dir: str, workers: Sequence[Worker]
) -> MeshSession:
    start = link_pb2.Start(
        virtual_devices=settings.devices,
        platform=settings.device_platform,
        program_dir=program_dir,
        max_program_dir_bytes=settings.max_program_dir_bytes,
        max_compile_seconds=settings.max_compile_s,
        max_compiler_bytes=settings.max_compiler_bytes,
    )
    return MeshSession(workers, starts_of_hosts(start, workers) if settings.hosts else [start], quarantine)


def _watch_limits(settings: Settings) -> WatchLimits:
    return WatchLimits(
        silence_s=settings.worker_silence_s,
        start_s=settings.start_timeout_s,
        execute_s=settings.max_execute_s,
        compile_s=settings.max_compile_s,
        grace_s=settings.deadline_grace_s,
        straggler_s=settings.straggler_timeout_s,
    )


def _array_folder(settings: Settings, limits_of: Callable[[str], PrincipalLimits]) -> ArrayFolder | None:
    if not settings.array_dir:
        return None
    return ArrayFolder(settings.array_dir, settings.max_file_bytes, settings.max_files, limits_of)


def _autotuner(settings: Settings) -> Autotuner | None:
    return (
        Autotuner(TuningCache(settings.cache_dir), settings.max_timing_s) if settings.strategy == "measured" else None
    )
