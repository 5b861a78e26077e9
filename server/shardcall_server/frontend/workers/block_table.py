"""Table of the blocks of a command's arrays that each process of the mesh holds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from shardcall.v1 import kernel_pb2, mesh_pb2, server_info_service_pb2
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.link.process_blocks import Blocks, Piece, blocks_of, device_blocks, lay_out
from shardcall_server.link.wire import decode_array_type, decode_mesh

_MAX_ENTRIES = 1024


class BlockTable:
    """Computes blocks from a plan, as the workers compute them from JAX's shardings.

    Args:
        devices: the devices of all processes.
    """

    def __init__(self, devices: Sequence[server_info_service_pb2.Device]) -> None:
        self._process = {device.id: device.process_index for device in devices}
        self._cache: OrderedDict[tuple[bytes, bytes], tuple[ArrayType, Blocks]] = OrderedDict()

    def held(
        self, placement: kernel_pb2.ArrayPlacement, mesh: mesh_pb2.Mesh, process: int
    ) -> tuple[ArrayType, list[Piece]]:
        """Returns the type of an array and the pieces that the devices of a process hold."""
        array_type, blocks = self._get(placement, mesh)
        return array_type, lay_out(blocks.held.get(process, ()), array_type)

    def gathered(
        self, placement: kernel_pb2.ArrayPlacement, mesh: mesh_pb2.Mesh, process: int
    ) -> tuple[ArrayType, list[Piece]]:
        """Returns the type of an array and the pieces that a process contributes when the array is gathered."""
        array_type, blocks = self._get(placement, mesh)
        return array_type, lay_out(blocks.gathered.get(process, ()), array_type)

    def _get(self, placement: kernel_pb2.ArrayPlacement, mesh: mesh_pb2.Mesh) -> tuple[ArrayType, Blocks]:
        key = placement.SerializeToString(deterministic=True), mesh.SerializeToString(deterministic=True)
        entry = self._cache.get(key)
        if entry is None:
            array_type = decode_array_type(placement.type, "array")
            spec = tuple(tuple(entry.axis_names) for entry in placement.spec.entries)
            spec += ((),) * (array_type.ndim - len(spec))
            bounds = device_blocks(placement.padded_shape, spec, decode_mesh(mesh))
            holders = zip((self._process[i] for i in mesh.device_ids), bounds, strict=True)
            entry = self._cache[key] = array_type, blocks_of(holders)
            if len(self._cache) > _MAX_ENTRIES:
                self._cache.popitem(last=False)
        return entry
