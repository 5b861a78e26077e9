"""Which process of the mesh holds which blocks of a command's arrays."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from shardcall.v1 import kernel_pb2, mesh_pb2, server_info_service_pb2
from shardcall_server.kernels.layout import ArrayType
from shardcall_server.link.process_blocks import Blocks, Piece, blocks_of, device_blocks, lay_out
from shardcall_server.link.wire import decode_array_type, decode_mesh

_MAX_KNOWN = 1024


class BlockTable:
    """Counts blocks from what a plan says, as the workers count them from JAX's shardings.

    Args:
        devices: of the mesh of all processes.
    """

    def __init__(self, devices: Sequence[server_info_service_pb2.Device]) -> None:
        self._process = {device.id: device.process_index for device in devices}
        self._known: OrderedDict[tuple[bytes, bytes], tuple[ArrayType, Blocks]] = OrderedDict()

    def held(
        self, placement: kernel_pb2.ArrayPlacement, mesh: mesh_pb2.Mesh, process: int
    ) -> tuple[ArrayType, list[Piece]]:
        """An array, and what of it the devices of a process hold."""
        kind, blocks = self._find(placement, mesh)
        return kind, lay_out(blocks.held.get(process, ()), kind)

    def given(
        self, placement: kernel_pb2.ArrayPlacement, mesh: mesh_pb2.Mesh, process: int
    ) -> tuple[ArrayType, list[Piece]]:
        """An array, and what of it a process gives when it is gathered."""
        kind, blocks = self._find(placement, mesh)
        return kind, lay_out(blocks.given.get(process, ()), kind)

    def _find(self, placement: kernel_pb2.ArrayPlacement, mesh: mesh_pb2.Mesh) -> tuple[ArrayType, Blocks]:
        key = placement.SerializeToString(deterministic=True), mesh.SerializeToString(deterministic=True)
        found = self._known.get(key)
        if found is None:
            kind = decode_array_type(placement.type, "array")
            spec = tuple(tuple(entry.axis_names) for entry in placement.spec.entries)
            spec += ((),) * (kind.ndim - len(spec))
            bounds = device_blocks(placement.padded_shape, spec, decode_mesh(mesh))
            holders = zip((self._process[i] for i in mesh.device_ids), bounds, strict=True)
            found = self._known[key] = kind, blocks_of(holders)
            if len(self._known) > _MAX_KNOWN:
                self._known.popitem(last=False)
        return found
