"""Operands of which a process gets only its blocks, for all sizes and meshes."""

import itertools
import os

import numpy as np
from rows import rows

from shardcall_core.layouts.layout import ArrayType, MeshAxes, padded_shape
from shardcall_server.compilation.program import Placement, build_mesh, named_sharding
from shardcall_server.link.process_blocks import device_blocks, lay_out
from shardcall_server.mesh.executor import Executor
from shardcall_server.mesh.loops import Loops
from shardcall_server.mesh.memory import MemoryFiles
from shardcall_server.mesh.resident_arrays import ResidentArrays
from shardcall_worker.v1 import link_pb2


@rows(("devices", "length"), itertools.product([1, 2, 8], [1, 8, 4096]))
def test_blocks_are_placed_as_blocks_on_a_mesh_of_one_process_too(copier, devices, length):
    """Otherwise small arrays, and those of one device, are passed to JAX uncopied and complete."""
    axes, spec = MeshAxes((("x", devices),)), (("x",), ())
    array_type = ArrayType((length, 8), np.dtype(np.float64))
    padded = padded_shape(array_type.shape, spec, axes)
    placement = Placement(padded, named_sharding(build_mesh(axes, range(devices)), spec))
    source = np.random.default_rng(length).standard_normal(array_type.shape)
    memory = MemoryFiles()
    size = 1 << 20
    with os.fdopen(os.memfd_create("blocks"), "w+b") as file:
        file.truncate(size)
        memory.attach(7, os.dup(file.fileno()), size)
    span = link_pb2.MemorySpan(memory_id=7, offset=4096)
    for piece in lay_out(set(device_blocks(padded, spec, axes)), array_type):
        piece.view(memory.rest(span), array_type.dtype)[...] = piece.of(source)
    resident_arrays = ResidentArrays(copier)
    executor = Executor(memory, resident_arrays, Loops(resident_arrays, copier), copier)
    data = link_pb2.TensorData(blocks=span)
    placed = executor._argument(array_type, placement, array_type.dtype, data)
    assert np.asarray(placed)[:length].tobytes() == source.tobytes()
