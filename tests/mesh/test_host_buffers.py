"""Operands of which a process gets only its blocks, for all sizes and meshes."""

from __future__ import annotations

import os

import numpy as np
import pytest

from shardcall_core.layouts.layout import ArrayType, MeshAxes, padded_shape
from shardcall_server.compilation.program import Placement, build_mesh, named_sharding
from shardcall_server.link.process_blocks import device_blocks, lay_out
from shardcall_server.mesh.executor import Executor
from shardcall_server.mesh.loops import Loops
from shardcall_server.mesh.memory import MemoryFiles
from shardcall_server.mesh.resident_arrays import ResidentArrays
from shardcall_worker.v1 import link_pb2


@pytest.mark.parametrize("devices", [1, 2, 8])
@pytest.mark.parametrize("rows", [1, 8, 4096], ids=lambda rows: f"{rows} rows")
def test_blocks_are_placed_as_blocks_on_a_mesh_of_one_process_too(copier, devices, rows):
    """Otherwise small arrays, and those of one device, are passed to JAX uncopied and complete."""
    axes, spec = MeshAxes((("x", devices),)), (("x",), ())
    array_type = ArrayType((rows, 8), np.dtype(np.float64))
    padded = padded_shape(array_type.shape, spec, axes)
    placement = Placement(padded, named_sharding(build_mesh(axes, range(devices)), spec))
    source = np.random.default_rng(rows).standard_normal(array_type.shape)
    memory = MemoryFiles()
    size = 1 << 20
    with os.fdopen(os.memfd_create("blocks"), "w+b") as file:
        file.truncate(size)
        memory.attach(7, os.dup(file.fileno()), size)
    offset = 4096
    for piece in lay_out(set(device_blocks(padded, spec, axes)), array_type):
        piece.view(memory.rest(link_pb2.MemorySpan(memory_id=7, offset=offset)), array_type.dtype)[...] = piece.of(
            source
        )
    resident_arrays = ResidentArrays(copier)
    executor = Executor(memory, resident_arrays, Loops(resident_arrays, copier), copier)
    data = link_pb2.TensorData(blocks=link_pb2.MemorySpan(memory_id=7, offset=offset))
    placed = executor._argument(array_type, placement, array_type.dtype, data)
    assert np.asarray(placed)[:rows].tobytes() == source.tobytes()
