"""The service that describes the server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from shardcall.v1 import server_info_service_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_core.layouts.layout import MAX_RANK
from shardcall_core.versions import build_version
from shardcall_server.frontend.access.principals import Scope
from shardcall_server.frontend.dispatch.call_progress import CallProgress
from shardcall_server.frontend.dispatch.execution import default_mesh
from shardcall_server.frontend.dispatch.host_resources import HostResources
from shardcall_server.frontend.dispatch.mesh_queue import MeshQueue
from shardcall_server.frontend.dispatch.supervisor import MeshSupervisor
from shardcall_server.frontend.memory.resident_array_table import MAX_DELETED
from shardcall_server.frontend.observability.call_totals import Totals
from shardcall_server.frontend.rpc.admission import Admission
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.services.call_stream import MAX_PREPARED_CALLS
from shardcall_server.frontend.services.principal_usage import PrincipalUsages
from shardcall_server.link.wire import encode_mesh
from shardcall_server.settings import Settings

_MAX_REQUEST_IDS = 64
_MIN_SEGMENT_BYTES = 256 << 10


@dataclass(frozen=True)
class InfoSources:
    """The objects whose state `ServerInfoServicer` reports.

    Attributes:
        programs: returns the number of programs on the mesh.
        known_answers: returns the results of the known-answer tests.
        principals: what each principal has and does.
        totals: returns the calls by kernel, and by principal.
        progress: the calls that wait or run in slices.
    """

    host_resources: HostResources
    admission: Admission
    queue: MeshQueue
    programs: Callable[[], int]
    known_answers: Callable[[], server_info_service_pb2.KnownAnswers]
    principals: PrincipalUsages
    totals: Callable[[], tuple[Totals, Totals]]
    progress: CallProgress


class ServerInfoServicer:
    """`shardcall.v1.ServerInfoService`."""

    def __init__(self, supervisor: MeshSupervisor, settings: Settings, sources: InfoSources) -> None:
        self._supervisor = supervisor
        self._settings = settings
        self._sources = sources
        self._version = build_version()  # of the files that this process has loaded

    def GetUsage(  # noqa: N802
        self, request: server_info_service_pb2.GetUsageRequest, call: ServerCall
    ) -> server_info_service_pb2.GetUsageResponse:
        """Returns the current usage of memory, devices and programs; without the scope, of the caller alone."""
        if call.principal is None or Scope.ADMIN in call.principal.scopes:
            return self.usage()
        return self._usage_of(call.principal.name)

    def _usage_of(self, principal: str) -> server_info_service_pb2.GetUsageResponse:
        _, by_principal = self._sources.totals()
        total, state = by_principal.get(principal), self._supervisor.state()
        # Without the reason of an exit, which names a kernel of whoever called it.
        mesh = server_info_service_pb2.MeshState(
            ready=state.ready, ready_seconds=state.ready_seconds, hosts=state.hosts, missing=state.missing
        )
        return server_info_service_pb2.GetUsageResponse(
            mesh=mesh,
            known_answers=self._sources.known_answers(),
            principals=_encode_totals({principal: total} if total else {}),
            by_principal=self._sources.principals.of(principal),
            is_partial=True,
        )

    def usage(self) -> server_info_service_pb2.GetUsageResponse:
        """Returns the usage, for the RPC and for metrics."""
        host_resources = self._sources.host_resources
        by_kernel, by_principal = self._sources.totals()
        return server_info_service_pb2.GetUsageResponse(
            regions=host_resources.arena.in_use,
            bytes_in_use=host_resources.budget.used_bytes,
            bytes_high_water=host_resources.budget.high_water_bytes,
            bytes_idle=host_resources.arena.idle_bytes,
            segments=host_resources.segments.count,
            leases=host_resources.array_table.leases,
            arrays=host_resources.array_table.count,
            named_arrays=host_resources.array_table.named_count,
            array_bytes=host_resources.array_table.device_bytes,
            descriptors=len(os.listdir("/proc/self/fd")),
            mesh=self._supervisor.state(),
            calls=self._sources.admission.call_count,
            queued_calls=self._sources.queue.queued,
            programs=self._sources.programs(),
            program_device_bytes=self._sources.queue.budget.program_bytes,
            known_answers=self._sources.known_answers(),
            kernels=_encode_totals(by_kernel),
            principals=_encode_totals({name: total for name, total in by_principal.items() if name}),
            by_principal=self._sources.principals.of_all(),
            loops=self._sources.progress.loops(),
        )

    def GetProgress(  # noqa: N802
        self, request: server_info_service_pb2.GetProgressRequest, call: ServerCall
    ) -> server_info_service_pb2.GetProgressResponse:
        """Returns the progress of calls of the caller's principal."""
        if len(request.request_ids) > _MAX_REQUEST_IDS:
            raise CallError(
                Reason.MALFORMED_REQUEST,
                f"there are {len(request.request_ids)} request ids; send at most {_MAX_REQUEST_IDS}",
                field="request_ids",
            )
        calls = self._sources.progress.of_principal(
            call.principal_name, frozenset(request.request_ids), with_results=request.with_results
        )
        return server_info_service_pb2.GetProgressResponse(calls=calls)

    def GetServerInfo(  # noqa: N802
        self, request: server_info_service_pb2.GetServerInfoRequest, call: ServerCall
    ) -> server_info_service_pb2.GetServerInfoResponse:
        """Returns the devices, limits and versions."""
        self._supervisor.last_mesh(call)  # waits for the first
        state = self._supervisor.state()
        mesh = self._supervisor.last_mesh(call)
        settings, host_resources = self._settings, self._sources.host_resources
        versions = server_info_service_pb2.Versions()
        versions.CopyFrom(mesh.ready.versions)
        versions.shardcall = self._version
        return server_info_service_pb2.GetServerInfoResponse(
            devices=mesh.ready.devices,
            platform=mesh.ready.platform,
            default_mesh=encode_mesh(default_mesh(settings, mesh.ready)),
            limits=server_info_service_pb2.Limits(
                max_message_bytes=settings.max_message_bytes,
                max_inline_bytes=settings.max_inline_bytes,
                max_chunk_bytes=settings.max_chunk_bytes,
                max_call_bytes=settings.max_call_bytes,
                max_call_seconds=settings.max_call_s,
                max_rank=MAX_RANK,
                max_concurrent_calls=settings.max_concurrent_calls,
                max_cached_programs=settings.max_cached_programs,
                max_segment_bytes=host_resources.segments.max_bytes if host_resources.segment_broker else 0,
                min_segment_bytes=_MIN_SEGMENT_BYTES,
                lease_seconds=settings.lease_s,
                max_resident_bytes=host_resources.array_table.lone_client_bytes,
                max_execute_seconds=settings.max_execute_s,
                max_compile_seconds=settings.max_compile_s,
                max_concurrent_calls_per_client=settings.calls_per_client,
                max_concurrent_calls_per_connection=settings.calls_per_connection,
                max_queued_calls=settings.queued_calls,
                max_device_bytes=self._sources.queue.budget.limit_bytes(),
                max_streamed_calls=settings.max_streamed_calls,
                max_streamed_bytes=settings.max_streamed_bytes,
                max_prepared_calls=MAX_PREPARED_CALLS,
                max_lease_seconds=settings.max_lease_s,
                max_replaced_arrays=MAX_DELETED,
            ),
            versions=versions,
            epoch=mesh.session.epoch,
            hosts=state.hosts,
            missing=state.missing,
            ready=state.ready,
            known_answers=self._sources.known_answers(),
        )


def _encode_totals(totals: Totals) -> Iterator[server_info_service_pb2.CallTotals]:
    for name, total in totals.items():
        yield server_info_service_pb2.CallTotals(
            name=name,
            calls=total.calls,
            failed_calls=total.failed_calls,
            execute_seconds=total.execute_s,
            array_bytes=total.array_bytes,
        )
