"""What a server is and what it allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from shardcall._src.types import mesh
from shardcall._src.types.mesh import Mesh
from shardcall._src.types.sizes import human
from shardcall.v1 import server_info_service_pb2


@dataclass(frozen=True)
class Device:
    """A device of the mesh: its id as a mesh names it, its kind, and the mesh process that owns it."""

    id: int
    kind: str
    process_index: int


@dataclass(frozen=True)
class HostState:
    """A host of a mesh of several.

    Attributes:
        name: what its keeper calls it.
        present: whether it is there.
        process_index: the mesh process that is its; -1 for one that stands by.
        device_count: its devices; 0 where that is not known yet.
        address: where the other hosts reach it; empty where it is not there.
        absent_seconds: since when it is gone; 0 where it is there.
        absent_reason: why it is gone.
        sent_bytes: commands and operands that went to its present worker; 0 where that shares memory with the server.
        received_bytes: answers and results that came from it; likewise.
    """

    name: str
    present: bool
    process_index: int
    device_count: int
    address: str
    absent_seconds: float
    absent_reason: str
    sent_bytes: int = 0
    received_bytes: int = 0

    def __str__(self) -> str:
        if not self.present:
            return f"{self.name} (gone for {self.absent_seconds:.0f} s: {self.absent_reason})"
        return f"{self.name} ({self.device_count} devices)" if self.process_index >= 0 else f"{self.name} (stands by)"


@dataclass(frozen=True)
class FailedKnownAnswer:
    """A kernel that failed a known-answer test, and what was wrong.

    Attributes:
        kernel: the kernel, which is refused.
        known_answer: the test's name, such as ``elementwise float64 1/5`` or ``halo exchange``.
        detail: what was wrong, in words: ``3584 of 4096 elements are wrong``.
    """

    kernel: str
    known_answer: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kernel} ({self.known_answer}: {self.detail})"


@dataclass(frozen=True)
class KnownAnswers:
    """What a server's known-answer tests have shown: programs whose results are known.

    Attributes:
        passed: how many passed.
        pending: how many have not been run yet, which they are while the mesh is idle, or when a call waits for one;
            or could not be run in full, for which the server's log has the reason.
        failures: the kernels that failed, which are refused.
    """

    passed: int = 0
    pending: int = 0
    failures: tuple[FailedKnownAnswer, ...] = ()

    def __str__(self) -> str:
        if self.failures:
            return f"FAILED, and refused: {', '.join(map(str, self.failures))}"
        return f"{self.passed} passed" + (f", {self.pending} pending" if self.pending else "")


@dataclass(frozen=True)
class Limits:
    """What one call may ask for; 0 where the server does not tell.

    Attributes:
        max_message_bytes: the largest message, in either direction.
        max_inline_bytes: operands of one unary call.
        max_chunk_bytes: data of one chunk.
        max_call_bytes: operands and results of one call.
        max_call_seconds: the longest call.
        max_rank: axes of an array.
        max_concurrent_calls: calls that the server works on at once.
        max_cached_programs: compiled programs kept.
        max_segment_bytes: shared memory of one client; 0 where the server shares none.
        min_segment_bytes: operands and results from which on shared memory is quicker than messages.
        lease_seconds: how long arrays stay after their client was last heard of.
        max_resident_bytes: arrays of one client that stay, on the devices, where others hold none.
        max_concurrent_calls_per_client: calls of one client that the server works on at once.
        max_concurrent_calls_per_connection: those of one connection; a `shardcall.Client` has more wait for their turn.
        max_queued_calls: calls that wait for the mesh.
        max_device_bytes: arrays that stay and programs that run, on the devices.
        max_execute_seconds: the longest run of one program.
        max_compile_seconds: the longest compilation of one.
    """

    max_message_bytes: int
    max_inline_bytes: int
    max_chunk_bytes: int
    max_call_bytes: int
    max_call_seconds: float
    max_rank: int
    max_concurrent_calls: int
    max_cached_programs: int
    max_segment_bytes: int
    min_segment_bytes: int
    lease_seconds: float
    max_resident_bytes: int
    max_concurrent_calls_per_client: int = 0
    max_queued_calls: int = 0
    max_device_bytes: int = 0
    max_execute_seconds: float = 0.0
    max_compile_seconds: float = 0.0
    max_concurrent_calls_per_connection: int = 0


@dataclass(frozen=True)
class Versions:
    """What runs on the server."""

    shardcall: str
    jax: str
    jaxlib: str


@dataclass(frozen=True, repr=False)
class ServerInfo:
    """What a server is and what it allows; shows as a table.

    Attributes:
        devices: the devices of the mesh, by ascending id.
        platform: "cpu", "gpu" or "tpu".
        default_mesh: the mesh that a call without one gets if it has a spec or large operands.
        limits: what one call may ask for.
        versions: what runs there.
        epoch: this start of the mesh, or the last one's while the mesh is formed anew; other after every restart.
        data_addresses: where calls may be sent; empty for the address asked.
        hosts: those of the mesh, in the order of their processes; empty where the server's own has all devices.
        ready: whether the mesh answers; if not, it is formed anew.
        missing: which hosts the mesh waits for, since when and why, in words; empty where it waits for none.
        known_answers: what its known-answer tests have shown.
    """

    devices: tuple[Device, ...]
    platform: str
    default_mesh: Mesh
    limits: Limits
    versions: Versions
    epoch: int
    data_addresses: tuple[str, ...]
    hosts: tuple[HostState, ...] = ()
    ready: bool = True
    missing: str = ""
    known_answers: KnownAnswers = KnownAnswers()

    @property
    def summary(self) -> Mapping[str, str]:
        """What people want to know of it, as texts by label."""
        kinds = Counter(device.kind for device in self.devices)
        limits, versions = self.limits, self.versions
        call_bytes = f"{limits.max_call_bytes:,} bytes ({human(limits.max_call_bytes)})"
        return {
            "devices": ", ".join(f"{count} × {kind}" for kind, count in kinds.items()),
            **({"hosts": ", ".join(map(str, self.hosts))} if self.hosts else {}),
            **({} if self.ready else {"mesh": "NOT READY" + (f", waits for {self.missing}" if self.missing else "")}),
            "platform": self.platform,
            "default mesh": str(self.default_mesh),
            "one call": f"{call_bytes}, {limits.max_call_seconds:g} s, rank {limits.max_rank}",
            "one message": f"{limits.max_message_bytes:,} bytes, {limits.max_inline_bytes:,} of them operands",
            "at once": f"{limits.max_concurrent_calls} calls, {limits.max_concurrent_calls_per_client} of one client; "
            f"{limits.max_cached_programs} compiled programs",
            "one program": f"{limits.max_execute_seconds:g} s to run, {limits.max_compile_seconds:g} s to compile",
            "on devices": f"{human(limits.max_device_bytes)} (--max-device-bytes)",
            "that stay": f"{human(limits.max_resident_bytes)} of one client if others hold none (--max-resident-bytes)",
            "versions": f"shardcall {versions.shardcall}, jax {versions.jax}, jaxlib {versions.jaxlib}",
            "known answers": str(self.known_answers),
            "epoch": f"{self.epoch:016x}",
        }

    def __str__(self) -> str:
        return "\n".join(f"{label:<13}  {text}" for label, text in self.summary.items())

    __repr__ = __str__


def from_proto(message: server_info_service_pb2.GetServerInfoResponse) -> ServerInfo:
    """Returns the information that a message holds."""
    return ServerInfo(
        devices=tuple(Device(item.id, item.kind, item.process_index) for item in message.devices),
        platform=message.platform,
        default_mesh=mesh.from_proto(message.default_mesh),
        limits=Limits(**{field.name: getattr(message.limits, field.name) for field in fields(Limits)}),
        versions=Versions(**{field.name: getattr(message.versions, field.name) for field in fields(Versions)}),
        epoch=message.epoch,
        data_addresses=tuple(message.data_addresses),
        hosts=hosts_from_proto(message.hosts),
        ready=message.ready,
        missing=message.missing,
        known_answers=known_answers_from_proto(message.known_answers),
    )


def known_answers_from_proto(message: server_info_service_pb2.KnownAnswers) -> KnownAnswers:
    """Returns what a message tells of known-answer tests."""
    failures = (FailedKnownAnswer(item.kernel, item.known_answer, item.detail) for item in message.failures)
    return KnownAnswers(message.passed, message.pending, tuple(failures))


def hosts_from_proto(messages: Iterable[server_info_service_pb2.HostState]) -> tuple[HostState, ...]:
    """Returns the hosts that messages tell of."""
    return tuple(
        HostState(**{field.name: getattr(item, field.name) for field in fields(HostState)}) for item in messages
    )
