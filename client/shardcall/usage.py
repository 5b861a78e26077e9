"""What a server holds."""

from __future__ import annotations

from dataclasses import dataclass, fields

from shardcall.v1 import server_info_service_pb2


@dataclass(frozen=True)
class Usage:
    """What a server holds at one moment.

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


def from_proto(message: server_info_service_pb2.GetUsageResponse) -> Usage:
    """Returns the numbers that a message holds."""
    return Usage(**{field.name: getattr(message, field.name) for field in fields(Usage)})
