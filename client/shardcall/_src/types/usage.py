"""What a server holds."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from shardcall._src.types.server_info import HostState, KnownAnswers, hosts_from_proto, known_answers_from_proto
from shardcall._src.types.sizes import human
from shardcall.v1 import server_info_service_pb2

_OWN = {"mesh", "known_answers"}  # fields that are messages


@dataclass(frozen=True)
class MeshState:
    """Whether the mesh serves, and what became of the one before.

    Attributes:
        ready: whether it answers.
        ready_seconds: since when; 0 where it does not.
        restarts: how often it ended and was started again, since the server's start.
        last_exit_reason: why it ended the last time; empty where it never did.
        seconds_since_exit: how long ago that was.
        spare_ready: whether another worker stands by; of several hosts, one on each.
        hosts: those of a mesh of several, in the order of their processes.
        missing: which hosts are missing, in words; empty where none is.
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
        serves = f"ready for {self.ready_seconds:.0f} s" if self.ready else "not ready"
        spare = "a spare worker stands by" if self.spare_ready else "no spare worker"
        ended = f"; the last time {self.seconds_since_exit:.0f} s ago: {self.last_exit_reason}" if self.restarts else ""
        missing = f"; hosts are missing: {self.missing}" if self.missing else ""
        return f"{serves}, {spare}, restarted {self.restarts} times{ended}{missing}"


@dataclass(frozen=True)
class Usage:
    """What a server holds at one moment; prints as a table.

    Attributes:
        regions: regions of calls at work.
        bytes_in_use: memory of calls at work and of segments.
        bytes_high_water: the most that those bytes ever were.
        bytes_idle: regions kept warm for the next calls.
        segments: segments of clients.
        leases: leases on arrays.
        arrays: arrays that stay.
        array_bytes: what these take on the devices.
        descriptors: files that the front end has open.
        calls: calls that are worked on, those that wait for the mesh included.
        queued_calls: calls that wait for the mesh.
        programs: compiled programs that the mesh holds.
        program_device_bytes: what running programs may use on the devices, arrays that stay left out.
        mesh: whether the mesh serves.
        known_answers: what the known-answer tests have shown.
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

    def __str__(self) -> str:
        rows = {
            "calls": f"{self.calls}, {self.queued_calls} of them queued",
            "regions": f"{self.regions}, {human(self.bytes_idle)} more kept warm",
            "memory": f"{human(self.bytes_in_use)}, {human(self.bytes_high_water)} at the highest",
            "segments": str(self.segments),
            "programs": f"{self.programs}, {human(self.program_device_bytes)} on the devices",
            "arrays": f"{self.arrays}, {human(self.array_bytes)} on the devices",
            "leases": str(self.leases),
            "open files": str(self.descriptors),
            "mesh": str(self.mesh),
            "known answers": str(self.known_answers),
        }
        return "\n".join(f"{label:<13}  {text}" for label, text in rows.items())


def from_proto(message: server_info_service_pb2.GetUsageResponse) -> Usage:
    """Returns the numbers that a message holds."""
    alike = (item.name for item in fields(MeshState) if item.name != "hosts")
    state = MeshState(
        **{name: getattr(message.mesh, name) for name in alike}, hosts=hosts_from_proto(message.mesh.hosts)
    )
    told = {item.name: getattr(message, item.name) for item in fields(Usage) if item.name not in _OWN}
    return Usage(**told, mesh=state, known_answers=known_answers_from_proto(message.known_answers))
