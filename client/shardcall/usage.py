"""What a server holds."""

from __future__ import annotations

from dataclasses import dataclass, fields

from shardcall.sizes import human
from shardcall.v1 import server_info_service_pb2


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

    def __str__(self) -> str:
        rows = {
            "calls": f"{self.regions} regions, {human(self.bytes_idle)} kept warm",
            "memory": f"{human(self.bytes_in_use)}, {human(self.bytes_high_water)} at most",
            "segments": str(self.segments),
            "arrays": f"{self.arrays}, {human(self.array_bytes)} on the devices",
            "leases": str(self.leases),
            "open files": str(self.descriptors),
        }
        return "\n".join(f"{label:<12}  {text}" for label, text in rows.items())


def from_proto(message: server_info_service_pb2.GetUsageResponse) -> Usage:
    """Returns the numbers that a message holds."""
    return Usage(**{field.name: getattr(message, field.name) for field in fields(Usage)})
