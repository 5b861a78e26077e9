"""Arrays as the server describes them."""

from __future__ import annotations

from shardcall._src.device_arrays.array_table import ArrayGuest, ListedArray
from shardcall._src.device_arrays.array_version import ArrayVersion, Owner, ServerIdentity
from shardcall._src.device_arrays.remote_array import RemoteArray
from shardcall._src.transfer.download import broken
from shardcall.v1 import array_service_pb2
from shardcall_core.placements.placement import MeshPlacement, placement_from_proto
from shardcall_core.types import mesh


def described(
    owner: Owner, server: ServerIdentity, answer: array_service_pb2.ArrayDescription, *, committed: bool = True
) -> RemoteArray:
    """Returns the object of an array that the server describes."""
    placement = placement_from_proto(answer.placement)
    if placement is None:
        raise broken("an array has no element type")
    placed = MeshPlacement(placement, mesh.from_proto(answer.mesh), answer.device_bytes)
    array = RemoteArray(ArrayVersion(owner, server, answer.handle, placement.type, placed, committed=committed))
    array._is_ndarray = True
    array._store.name, array._store.restored_us = answer.name, answer.version.since_microseconds
    return array


def listed(item: array_service_pb2.ArrayDescription) -> ListedArray:
    """Returns the row of an array in a table."""
    placement = placement_from_proto(item.placement)
    if placement is None:
        raise broken("an array has no element type")
    expires_in_s = item.expires_in_seconds if item.HasField("expires_in_seconds") else None
    return ListedArray(
        item.handle.hex(),
        item.name,
        item.owner,
        placement.type,
        placement.spec,
        item.device_bytes,
        item.age_seconds,
        expires_in_s,
        tuple(ArrayGuest(guest.principal, guest.may_write) for guest in item.guests),
        item.in_checkpoint,
        item.suspect,
    )
