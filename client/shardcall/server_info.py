"""What a server is and what it allows."""

from __future__ import annotations

from dataclasses import dataclass, fields

from shardcall import mesh
from shardcall.mesh import Mesh
from shardcall.v1 import server_info_service_pb2


@dataclass(frozen=True)
class Device:
    """A device of the mesh: its id as a mesh names it, its kind, and the mesh process that owns it."""

    id: int
    kind: str
    process_index: int


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
    """

    max_message_bytes: int
    max_inline_bytes: int
    max_chunk_bytes: int
    max_call_bytes: int
    max_call_seconds: float
    max_rank: int
    max_concurrent_calls: int
    max_cached_programs: int


@dataclass(frozen=True)
class Versions:
    """What runs on the server."""

    shardcall: str
    jax: str
    jaxlib: str


@dataclass(frozen=True)
class ServerInfo:
    """What a server is and what it allows.

    Attributes:
        devices: the devices of the mesh, by ascending id.
        platform: "cpu", "gpu" or "tpu".
        default_mesh: the mesh that a call without one gets if it has a spec or large operands.
        limits: what one call may ask for.
        versions: what runs there.
        epoch: this start of the mesh; other after every restart.
        data_addresses: where calls may be sent; empty for the address asked.
    """

    devices: tuple[Device, ...]
    platform: str
    default_mesh: Mesh
    limits: Limits
    versions: Versions
    epoch: int
    data_addresses: tuple[str, ...]


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
    )
