"""The arrays, programs and calls of each principal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from shardcall.v1 import server_info_service_pb2
from shardcall_core.wire.token_fields import PrincipalLimits
from shardcall_server.frontend.memory.resident_array_table import ResidentArrayTable
from shardcall_server.frontend.observability.call_totals import Total, Totals
from shardcall_server.frontend.rpc.admission import Admission


@dataclass(frozen=True)
class PrincipalUsages:
    """The objects that know what principals have and do.

    Attributes:
        array_table: the resident arrays.
        admission: the calls in progress.
        programs: returns the number of programs on the mesh by the client that had them compiled.
        totals: returns the calls that have ended, by principal.
        limits: returns the limits of all principals with a token; None without authentication.
    """

    array_table: ResidentArrayTable
    admission: Admission
    programs: Callable[[], Mapping[str, int]]
    totals: Callable[[], Totals]
    limits: Callable[[], Mapping[str, PrincipalLimits] | None]

    def of_all(self) -> list[server_info_service_pb2.PrincipalUsage]:
        """Returns the usage of every principal with a token, an array, a program or a call, by name."""
        limits, arrays, programs = self.limits(), self.array_table.by_owner(), self.programs()
        if limits is None:
            return [self._of_callers()]
        calls = self.admission.calls_by_owner()
        return self._of(sorted({*limits, *arrays, *programs, *calls} - {""}))

    def of(self, principal: str) -> list[server_info_service_pb2.PrincipalUsage]:
        """Returns the usage of one principal."""
        return self._of([principal])

    def _of(self, names: Iterable[str]) -> list[server_info_service_pb2.PrincipalUsage]:
        limits, arrays, programs = self.limits() or {}, self.array_table.by_owner(), self.programs()
        calls, totals = self.admission.calls_by_owner(), self.totals()
        usages = []
        for name in names:
            limit = limits.get(name)
            count, nbytes = arrays.get(name, (0, 0))
            usages.append(
                server_info_service_pb2.PrincipalUsage(
                    name=name,
                    arrays=count,
                    array_bytes=nbytes,
                    programs=programs.get(name, 0),
                    calls=calls[name],
                    ended_calls=totals.get(name, Total()).calls,
                    max_bytes=limit.max_bytes if limit else None,
                    max_arrays=limit.max_arrays if limit else None,
                    max_file_bytes=limit.max_file_bytes if limit else None,
                    weight=limit.weight if limit else 0,
                )
            )
        return usages

    def _of_callers(self) -> server_info_service_pb2.PrincipalUsage:
        """Returns the usage of all callers of a server without authentication."""
        return server_info_service_pb2.PrincipalUsage(
            arrays=self.array_table.count,
            array_bytes=self.array_table.device_bytes,
            programs=sum(self.programs().values()),
            calls=self.admission.call_count,
            ended_calls=self.totals().get("", Total()).calls,
            weight=1,
        )
