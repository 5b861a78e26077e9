"""Transfer of resident arrays from the host to the mesh."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax

from shardcall_core.layouts.checks import check_put
from shardcall_core.layouts.layout import ArrayType, MeshAxes, Spec, padded_shape
from shardcall_server.compilation.program import Placement, build_mesh, named_sharding
from shardcall_server.link.wire import decode_array_type, decode_mesh, decode_spec
from shardcall_server.mesh.array_files import FileSource, FolderSource, UnreadableSource
from shardcall_server.mesh.host_buffers import Source
from shardcall_server.mesh.placement import ParallelCopier
from shardcall_server.mesh.resident_arrays import ResidentArrays
from shardcall_server.mesh.sizes import check_placed
from shardcall_server.mesh.zarr_files import ZarrSource
from shardcall_worker.v1 import link_pb2


@dataclass(frozen=True)
class Arrival:
    """An array that is being put on the devices.

    Attributes:
        array_id: the id by which commands will refer to it.
        type: its shape and element type.
        mesh: the axes of its mesh.
        device_ids: the devices of its mesh.
        spec: its partition spec.
    """

    array_id: int
    type: ArrayType
    mesh: MeshAxes
    device_ids: tuple[int, ...]
    spec: Spec


class Arrivals:
    """Puts arrays on the devices."""

    def __init__(self, resident_arrays: ResidentArrays, copier: ParallelCopier, devices: Sequence[int]) -> None:
        self._resident_arrays = resident_arrays
        self._copier = copier
        self._devices = devices

    def prepare(self, command: link_pb2.PutArray) -> Arrival:
        """Checks the placement of a new array.

        Raises:
            CallError: the mesh or the spec is invalid, or the padded array is too large.
        """
        array_type = decode_array_type(command.type, "array")
        mesh = decode_mesh(command.mesh)
        device_ids, spec = check_put(
            array_type, decode_spec(command.spec), mesh, command.mesh.device_ids, self._devices
        )
        check_placed(array_type, spec, mesh)  # the front end accounts for the memory
        return Arrival(command.array_id, array_type, mesh, device_ids, spec)

    def finish(self, put: Arrival, source: Source | FileSource | ZarrSource) -> link_pb2.ArrayPut:
        """Copies an array to the devices and registers it; the devices do not alias ``source``."""
        began = time.monotonic()
        self._resident_arrays.keep(put.array_id, put.type, self._placed(put, source))
        return link_pb2.ArrayPut(place_seconds=time.monotonic() - began)

    def declare(self, put: Arrival, source: FolderSource | UnreadableSource) -> None:
        """Registers an array that is read when a command first uses it."""
        self._resident_arrays.declare(put.array_id, put.type, partial(self._placed, put, source))

    def _placed(
        self, put: Arrival, source: Source | FileSource | ZarrSource | FolderSource | UnreadableSource
    ) -> jax.Array:
        sharding = named_sharding(build_mesh(put.mesh, put.device_ids), put.spec)
        placement = Placement(padded_shape(put.type.shape, put.spec, put.mesh), sharding)
        array: jax.Array = jax.block_until_ready(source.put(placement, self._copier, may_alias=False))
        return array
