"""Descriptions of servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from shardcall.v1 import server_info_service_pb2
from shardcall_core.markup import page
from shardcall_core.types import mesh
from shardcall_core.types.mesh import Mesh
from shardcall_core.types.sizes import exact, human


@dataclass(frozen=True)
class Device:
    """A device of the mesh: its id as a mesh names it, its model as JAX names it, and the mesh process that owns it."""

    id: int
    device_kind: str
    process_index: int


@dataclass(frozen=True)
class HostState:
    """A host of a mesh of several.

    Attributes:
        name: the name that its administrator chose.
        present: True while it is connected.
        process_index: the index of its mesh process; -1 for a standby host.
        device_count: the number of its devices; 0 until it is known.
        address: the address for the other hosts; empty while it is absent.
        absent_seconds: the seconds since it disappeared; 0 while it is present.
        absent_reason: the reason for its absence.
        sent_bytes: the bytes of commands and operands sent to its worker; 0 if that shares memory with the server.
        received_bytes: the bytes of answers and results received from it; 0 likewise.
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
    """A kernel that failed a known-answer test.

    Attributes:
        kernel: the kernel, which is refused.
        known_answer: the test's name, such as ``elementwise float64 1/5`` or ``halo exchange``.
        detail: the failure, such as ``3584 of 4096 elements are wrong``.
        calls: the number of calls of the kernel that had been answered before; the server's log names the last ones.
    """

    kernel: str
    known_answer: str
    detail: str
    calls: int = 0

    def __str__(self) -> str:
        before = f"; {self.calls} calls had been answered before" if self.calls else ""
        return f"{self.kernel} ({self.known_answer}: {self.detail}{before})"


@dataclass(frozen=True)
class KnownAnswers:
    """The results of a server's known-answer tests: programs whose results are known.

    Attributes:
        passed: the number that passed.
        pending: the number that have not run yet, since they run while the mesh is idle or a call waits for them, or
            that could not be completed, for which the server's log has the reason.
        failures: the kernels that failed, which the server refuses.
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
    """The server's limits; 0 where it reports none.

    Attributes:
        max_message_bytes: the largest message, in either direction.
        max_inline_bytes: bytes of the operands of one unary call.
        max_chunk_bytes: bytes of one chunk.
        max_call_bytes: bytes of the operands and results of one call together.
        max_call_seconds: seconds of one call.
        max_rank: axes of an array.
        max_concurrent_calls: calls in progress at once.
        max_cached_programs: compiled programs in the cache.
        max_segment_bytes: shared memory of one client; 0 if the server shares none.
        min_segment_bytes: bytes of operands and results from which shared memory is faster than messages.
        lease_seconds: seconds that arrays stay after the last renewal of their lease.
        max_resident_bytes: bytes on the devices of one client's arrays, if others have none.
        max_concurrent_calls_per_client: calls of one client in progress at once.
        max_concurrent_calls_per_connection: calls of one connection at once; in a `shardcall.Client` others wait.
        max_queued_calls: calls that wait for the mesh.
        max_device_bytes: bytes on the devices of arrays and running programs.
        max_execute_seconds: seconds of one execution of a program.
        max_compile_seconds: seconds of one compilation.
        max_streamed_calls: unanswered calls of one call stream; 0 if the server accepts no call streams.
        max_streamed_bytes: bytes of the operands of all unanswered calls of one call stream.
        max_prepared_calls: prepared calls of one call stream.
        max_lease_seconds: seconds for which arrays may be kept without a client; 0 if they may not.
        max_replaced_arrays: arrays that the server deletes once a call has succeeded; 0 if clients delete them.
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
    max_streamed_calls: int = 0
    max_streamed_bytes: int = 0
    max_prepared_calls: int = 0
    max_lease_seconds: float = 0.0
    max_replaced_arrays: int = 0


@dataclass(frozen=True)
class Versions:
    """The versions of the server's software."""

    shardcall: str
    jax: str
    jaxlib: str


@dataclass(frozen=True, repr=False)
class ServerInfo:
    """The description of a server; prints as a table.

    Attributes:
        devices: the devices of the mesh, by ascending id.
        platform: "cpu", "gpu" or "tpu".
        default_mesh: the mesh that a call without one gets if it has a spec or large operands.
        limits: its limits.
        versions: the versions of its software.
        epoch: the epoch of the mesh, or the last one while the mesh restarts; every restart has another.
        hosts: the hosts of the mesh, in the order of their processes; empty if all devices are the server's own.
        ready: False while the mesh restarts.
        missing: a description of the hosts that the mesh waits for; empty if it waits for none.
        known_answers: the results of its known-answer tests.
    """

    devices: tuple[Device, ...]
    platform: str
    default_mesh: Mesh
    limits: Limits
    versions: Versions
    epoch: int
    hosts: tuple[HostState, ...] = ()
    ready: bool = True
    missing: str = ""
    known_answers: KnownAnswers = KnownAnswers()

    @property
    def summary(self) -> Mapping[str, str]:
        """The most important facts, as texts by label."""
        device_kinds = Counter(device.device_kind for device in self.devices)
        limits, versions = self.limits, self.versions
        call_bytes = exact(limits.max_call_bytes)
        return {
            "devices": ", ".join(f"{count} × {device_kind}" for device_kind, count in device_kinds.items()),
            **({"hosts": ", ".join(map(str, self.hosts))} if self.hosts else {}),
            **({} if self.ready else {"mesh": "NOT READY" + (f", waits for {self.missing}" if self.missing else "")}),
            "platform": self.platform,
            "default mesh": str(self.default_mesh),
            "one call": f"{call_bytes}, {limits.max_call_seconds:g} s, rank {limits.max_rank}",
            "one message": f"{exact(limits.max_message_bytes)}, {human(limits.max_inline_bytes)} of them operands",
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

    def _repr_html_(self) -> str:
        """Returns the table for a notebook."""
        return page.page(f"shardcall server, {len(self.devices)} {self.platform} devices", page.facts(self.summary))


def from_proto(message: server_info_service_pb2.GetServerInfoResponse) -> ServerInfo:
    """Returns the description in a message."""
    return ServerInfo(
        devices=tuple(Device(item.id, item.kind, item.process_index) for item in message.devices),
        platform=message.platform,
        default_mesh=mesh.from_proto(message.default_mesh),
        limits=Limits(**{field.name: getattr(message.limits, field.name) for field in fields(Limits)}),
        versions=Versions(**{field.name: getattr(message.versions, field.name) for field in fields(Versions)}),
        epoch=message.epoch,
        hosts=hosts_from_proto(message.hosts),
        ready=message.ready,
        missing=message.missing,
        known_answers=known_answers_from_proto(message.known_answers),
    )


def known_answers_from_proto(message: server_info_service_pb2.KnownAnswers) -> KnownAnswers:
    """Returns the results of known-answer tests in a message."""
    failures = (FailedKnownAnswer(item.kernel, item.known_answer, item.detail, item.calls) for item in message.failures)
    return KnownAnswers(message.passed, message.pending, tuple(failures))


def hosts_from_proto(messages: Iterable[server_info_service_pb2.HostState]) -> tuple[HostState, ...]:
    """Returns the hosts in messages."""
    return tuple(
        HostState(**{field.name: getattr(item, field.name) for field in fields(HostState)}) for item in messages
    )
