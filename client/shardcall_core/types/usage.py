"""The memory, programs and arrays in use on a server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from shardcall.v1 import server_info_service_pb2
from shardcall_core.markup import page
from shardcall_core.types.server_info import HostState, KnownAnswers, hosts_from_proto, known_answers_from_proto
from shardcall_core.types.sizes import human

_ENDLESS = 1 << 62  # the number of iterations of a loop that ends by its condition
_MESSAGE_FIELDS = {
    "mesh",
    "known_answers",
    "kernels",
    "principals",
    "loops",
    "by_principal",
}  # fields that are messages
_OF_ALL = {"mesh", "known_answers", "principals", "by_principal", "is_partial"}  # fields without the scope admin, too
_OF_ADMIN = ("restarts", "last_exit_reason", "seconds_since_exit", "spare_ready")  # fields of the mesh


@dataclass(frozen=True)
class MeshState:
    """The state of the mesh.

    Attributes:
        ready: True if it accepts calls.
        ready_seconds: the seconds since it became ready; 0 if it is not.
        restarts: the number of restarts since the server's start.
        last_exit_reason: the reason of its last exit; empty if there was none.
        seconds_since_exit: the seconds since that exit.
        spare_ready: True if a spare worker stands by; of several hosts, one on each.
        hosts: the hosts of a mesh of several, in the order of their processes.
        missing: a description of missing hosts; empty if none is.
    """

    ready: bool = False
    ready_seconds: float = 0.0
    restarts: int = 0
    last_exit_reason: str = ""
    seconds_since_exit: float = 0.0
    spare_ready: bool = False
    hosts: tuple[HostState, ...] = ()
    missing: str = ""

    def __str__(self) -> str:
        spare = "a spare worker stands by" if self.spare_ready else "no spare worker"
        ended = f"; the last time {self.seconds_since_exit:.0f} s ago: {self.last_exit_reason}" if self.restarts else ""
        return f"{self._serves}, {spare}, restarted {self.restarts} times{ended}{self._missing}"

    @property
    def partial_text(self) -> str:
        """The text of what callers without the scope ``admin`` know."""
        return f"{self._serves}{self._missing}"

    @property
    def _serves(self) -> str:
        return f"ready for {self.ready_seconds:.0f} s" if self.ready else "not ready"

    @property
    def _missing(self) -> str:
        return f"; hosts are missing: {self.missing}" if self.missing else ""


@dataclass(frozen=True)
class CallTotals:
    """The calls of a kernel, or of a principal, that have ended since the server's start.

    Attributes:
        calls: the number of them; a call without a kernel counts for its principal.
        failed_calls: those that failed.
        execute_seconds: the seconds that their programs ran on the devices.
        array_bytes: the bytes of their arrays, in messages and in shared memory.
    """

    calls: int
    failed_calls: int
    execute_seconds: float
    array_bytes: int


@dataclass(frozen=True)
class RunningLoop:
    """A loop that runs in slices, of which it has ended one or more.

    Attributes:
        request_id: the request id of its call, as in the server's log.
        caller: the principal that called it; without authentication its connection.
        iterations: the number of iterations that have run.
        iterations_left: the number of iterations that are left at most.
        seconds: the seconds since it began.
    """

    request_id: str
    caller: str
    iterations: int
    iterations_left: int
    seconds: float

    def __str__(self) -> str:
        total = self.iterations + self.iterations_left
        of_total = f" of {total:,}" if total < _ENDLESS else ""
        return f"{self.iterations:,}{of_total} iterations in {self.seconds:.0f} s, {self.caller}"


@dataclass(frozen=True)
class PrincipalUsage:
    """The arrays, programs and calls of one principal, and its limits in the token file.

    Attributes:
        arrays: the number of its arrays on the mesh, in leases and with names.
        array_bytes: the bytes of these on the devices.
        programs: the number of programs on the mesh that were compiled for one of its calls first.
        calls: the number of its calls in progress.
        ended_calls: the number of its calls that have ended since the server's start.
        max_bytes: the limit of ``array_bytes``; None for that of all clients alone.
        max_arrays: the limit of ``arrays``; None for that of all clients alone.
        max_file_bytes: the limit of the bytes of its files; None for no limit.
        weight: the number of its waiting calls that are launched for each one of a principal of weight 1; 0 for a
            principal that has no token any more.
    """

    arrays: int = 0
    array_bytes: int = 0
    programs: int = 0
    calls: int = 0
    ended_calls: int = 0
    max_bytes: int | None = None
    max_arrays: int | None = None
    max_file_bytes: int | None = None
    weight: int = 1

    def __str__(self) -> str:
        of_arrays = "" if self.max_arrays is None else f" of {self.max_arrays:,}"
        of_bytes = "" if self.max_bytes is None else f" of {human(self.max_bytes)}"
        parts = [
            f"{self.arrays:,}{of_arrays} arrays, {human(self.array_bytes)}{of_bytes} on the devices",
            f"{self.programs:,} programs",
            f"{self.calls:,} calls in progress, {self.ended_calls:,} ended",
        ]
        if self.max_file_bytes is not None:
            parts.append(f"files up to {human(self.max_file_bytes)}")
        if self.weight != 1:
            parts.append(f"weight {self.weight}" if self.weight else "no token")
        return ", ".join(parts)


@dataclass(frozen=True, repr=False)
class Usage:
    """The memory, programs and arrays in use on a server; prints as a table.

    Without the scope ``admin`` only ``mesh`` (without its restarts and its spare worker), ``known_answers``,
    ``principals`` and ``by_principal`` have values, the last two of the caller alone.

    Attributes:
        regions: the number of memory regions of calls in progress.
        bytes_in_use: the bytes of calls in progress and of segments.
        bytes_high_water: the highest value of ``bytes_in_use``.
        bytes_idle: the bytes of idle regions, kept for the next calls.
        segments: the number of clients' segments.
        leases: the number of leases on arrays.
        arrays: the number of arrays on the mesh.
        array_bytes: the bytes of these on the devices.
        descriptors: the number of files that the front end has open.
        calls: the number of calls in progress, those that wait for the mesh included.
        queued_calls: the number of calls that wait for the mesh.
        programs: the number of compiled programs on the mesh.
        program_device_bytes: the bytes that running programs may use on the devices, without arrays on the mesh.
        mesh: the state of the mesh.
        known_answers: the results of the known-answer tests.
        kernels: the calls by kernel.
        principals: the calls by principal; empty without authentication.
        loops: the loops that run in slices, those that began first first.
        by_principal: what each principal has and does; without authentication, all callers are "".
        is_partial: True without the scope ``admin``.
        named_arrays: those of ``arrays`` that have names, and no lease.
    """

    regions: int
    bytes_in_use: int
    bytes_high_water: int
    bytes_idle: int
    segments: int
    leases: int
    arrays: int
    array_bytes: int
    descriptors: int
    calls: int = 0
    queued_calls: int = 0
    programs: int = 0
    program_device_bytes: int = 0
    mesh: MeshState = MeshState()
    known_answers: KnownAnswers = field(default_factory=KnownAnswers)
    kernels: Mapping[str, CallTotals] = field(default_factory=dict, hash=False)
    principals: Mapping[str, CallTotals] = field(default_factory=dict, hash=False)
    loops: tuple[RunningLoop, ...] = ()
    by_principal: Mapping[str, PrincipalUsage] = field(default_factory=dict, hash=False)
    is_partial: bool = False
    named_arrays: int = 0

    @property
    def summary(self) -> Mapping[str, str]:
        """The use of each resource, as texts by label."""
        state = self.mesh.partial_text if self.is_partial else str(self.mesh)
        mesh = {"mesh": state, "known answers": str(self.known_answers)}
        principals = [f"{name}: {usage}" for name, usage in self.by_principal.items() if name]
        of_principals = {"principals": "; ".join(principals)} if principals else {}
        if self.is_partial:
            return of_principals | mesh
        return {
            "calls": f"{self.calls}, {self.queued_calls} of them queued",
            **({"loops": "; ".join(map(str, self.loops))} if self.loops else {}),
            "regions": f"{self.regions}, {human(self.bytes_idle)} more kept warm",
            "memory": f"{human(self.bytes_in_use)}, {human(self.bytes_high_water)} at the highest",
            "segments": str(self.segments),
            "programs": f"{self.programs}, {human(self.program_device_bytes)} on the devices",
            "arrays": f"{self.arrays}, {self.named_arrays} with names, {human(self.array_bytes)} on the devices",
            "leases": str(self.leases),
            "open files": str(self.descriptors),
            **of_principals,
            **mesh,
        }

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields by name, with None for those that have no value without the scope ``admin``."""
        values = asdict(self)
        if self.is_partial:
            values |= dict.fromkeys(values.keys() - _OF_ALL)
            values["mesh"] |= dict.fromkeys(_OF_ADMIN)
        return values

    def __str__(self) -> str:
        return "\n".join(f"{label:<13}  {text}" for label, text in self.summary.items())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Returns the table for a notebook."""
        return page.page("Usage", page.facts(self.summary))


def from_proto(message: server_info_service_pb2.GetUsageResponse) -> Usage:
    """Returns the usage in a message."""
    alike = (item.name for item in fields(MeshState) if item.name != "hosts")
    state = MeshState(
        **{name: getattr(message.mesh, name) for name in alike}, hosts=hosts_from_proto(message.mesh.hosts)
    )
    values = {item.name: getattr(message, item.name) for item in fields(Usage) if item.name not in _MESSAGE_FIELDS}
    return Usage(
        **values,
        mesh=state,
        known_answers=known_answers_from_proto(message.known_answers),
        kernels=_totals(message.kernels),
        principals=_totals(message.principals),
        loops=tuple(
            RunningLoop(item.request_id, item.caller, item.iterations, item.iterations_left, item.seconds)
            for item in message.loops
        ),
        by_principal={item.name: _of_principal(item) for item in message.by_principal},
    )


def _of_principal(message: server_info_service_pb2.PrincipalUsage) -> PrincipalUsage:
    limits = ("max_bytes", "max_arrays", "max_file_bytes")
    values = {item.name: getattr(message, item.name) for item in fields(PrincipalUsage) if item.name not in limits}
    return PrincipalUsage(
        **values,
        **{name: getattr(message, name) for name in limits if message.HasField(name)},  # type: ignore[arg-type]
    )


def _totals(messages: Iterable[server_info_service_pb2.CallTotals]) -> dict[str, CallTotals]:
    return {
        item.name: CallTotals(item.calls, item.failed_calls, item.execute_seconds, item.array_bytes)
        for item in messages
    }
