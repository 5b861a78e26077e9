"""Transfers of arrays to the devices and back: the memory that they use, and that no bit changes."""

import itertools
import math
import os
import tracemalloc

import jax
import ml_dtypes
import numpy as np
from rows import rows

from shardcall_core.layouts.layout import ArrayType, MeshAxes, Spec, padded_shape
from shardcall_server.compilation.program import Placement, build_mesh, named_sharding
from shardcall_server.link.process_blocks import device_blocks, lay_out
from shardcall_server.mesh import placement as placement_module
from shardcall_server.mesh.executor import Executor
from shardcall_server.mesh.loops import Loops
from shardcall_server.mesh.memory import MemoryFiles
from shardcall_server.mesh.placement import ParallelCopier, gather, put_padded
from shardcall_server.mesh.resident_arrays import ResidentArrays
from shardcall_worker.v1 import link_pb2

ROWS = MeshAxes((("x", 8),))
ALIGNMENT = 64
MIB = 1 << 20

LAYOUTS = {  # mesh, spec of a matrix
    "one device": ({"x": 1}, ((), ())),
    "rows": ({"x": 8}, (("x",), ())),
    "columns": ({"x": 8}, ((), ("x",))),
    "replicated": ({"x": 8}, ((), ())),
    "both": ({"a": 4, "b": 2}, (("a",), ("b",))),
    "rows by two axes": ({"a": 4, "b": 2}, (("b", "a"), ())),
    "half replicated": ({"a": 4, "b": 2}, ((), ("b",))),
    "three axes": ({"a": 2, "b": 2, "c": 2}, (("a", "c"), ("b",))),
}
SHAPES = [(16, 8), (13, 7), (1, 3), (3, 1), (8, 0), (0, 8)]


def where(mesh: MeshAxes, spec: Spec, shape: tuple[int, ...]) -> Placement:
    sharding = named_sharding(build_mesh(mesh, range(mesh.device_count)), spec)
    return Placement(padded_shape(shape, spec, mesh), sharding)


def layout(name: str, shape: tuple[int, ...]) -> Placement:
    axes, spec = LAYOUTS[name]
    return where(MeshAxes(tuple(axes.items())), spec, shape)


def memory_at(shape: tuple[int, ...], dtype: np.typing.DTypeLike, offset: int = 0) -> np.ndarray:
    """A row-major array of random bytes with an offset from a multiple of the alignment."""
    dtype = np.dtype(dtype)
    nbytes = math.prod(shape) * dtype.itemsize
    memory = np.empty(nbytes + 2 * ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % ALIGNMENT + offset
    memory[begin : begin + nbytes] = np.frombuffer(np.random.default_rng(nbytes).bytes(nbytes), np.uint8)
    return memory[begin : begin + nbytes].view(dtype).reshape(shape)


def pointers(array: jax.Array) -> list[int]:
    """The address of each device's block, by the rows and columns that it holds."""
    shards = sorted(array.addressable_shards, key=lambda shard: [s.start or 0 for s in shard.index])
    return [shard.data.unsafe_buffer_pointer() for shard in shards]


def shares_memory(array: jax.Array, source: np.ndarray) -> bool:
    """True if the block of any device shares memory with a NumPy array."""
    return any(np.shares_memory(np.asarray(shard.data), source) for shard in array.addressable_shards)


def values(array: jax.Array, shape: tuple[int, ...]) -> np.ndarray:
    """The leading corner, assembled by JAX itself."""
    return np.asarray(array)[tuple(slice(n) for n in shape)]


def placed(name: str, source: np.ndarray, copier: ParallelCopier, *, may_alias: bool = True) -> jax.Array:
    return put_padded(source, layout(name, source.shape), copier, may_alias=may_alias)


@rows(
    ("name", "shape"),
    [("rows", (8, 64)), ("rows", (8, MIB)), ("replicated", (16, 8)), ("one device", (3, 5)), ("one device", (8, MIB))],
)
def test_aligned_arrays_become_blocks_without_a_copy(copier, name, shape):
    source = memory_at(shape, np.float64)
    blocks = [row.ctypes.data for row in source] if name == "rows" else [source.ctypes.data]
    assert pointers(placed(name, source, copier)) == blocks * (8 // len(blocks) if name == "replicated" else 1)


@rows(
    ("name", "count", "offset", "columns"),
    [(*case, columns) for case in (("rows", 8, 8), ("columns", 8, 0), ("rows", 7, 8)) for columns in (64, MIB // 2)],
)
def test_unaligned_sources_are_copied_and_right(copier, name, count, offset, columns):
    source = memory_at((count, columns), np.int64, offset)
    array = placed(name, source, copier)
    assert values(array, source.shape).tobytes() == source.tobytes()
    assert not shares_memory(array, source)


def test_where_the_last_block_needs_padding_the_others_are_not_copied(copier):
    source = memory_at((15, 64), np.int64)
    array = placed("rows", source, copier)
    *unpadded, padded = pointers(array)
    assert unpadded == [source[row : row + 1].ctypes.data for row in range(0, 14, 2)]
    assert padded != source[14:].ctypes.data
    assert values(array, source.shape).tobytes() == source.tobytes()


@rows("may_alias", [True, False])
def test_padding_is_zeros_in_every_block(copier, may_alias):
    source = memory_at((13, 7), np.uint8)
    source[source == 0] = 1
    array = np.array(placed("both", source, copier, may_alias=may_alias))
    assert array.shape == (16, 8)
    assert array[:13, :7].tobytes() == source.tobytes()
    array[:13, :7] = 0
    assert not array.any()


@rows(
    ("name", "shape", "offset"),
    [*itertools.product(LAYOUTS, [*SHAPES, (1021, 513)], [0, 8]), ("rows", (1021, 4093), 8), ("both", (1021, 4093), 8)],
)
def test_what_may_not_alias_keeps_its_bits_when_its_source_is_overwritten(copier, name, shape, offset):
    source = memory_at(shape, np.float64, offset)
    before = source.tobytes()
    array = placed(name, source, copier, may_alias=False)
    jax.block_until_ready(array)
    assert not shares_memory(array, source)
    source.view(np.uint8)[...] = 0xA5
    assert values(array, shape).tobytes() == before


@rows("shape", [(), (1,), (0,), (5,), (16,)])
def test_arrays_of_few_axes_may_alias_nothing_either(copier, shape):
    source = memory_at(shape, np.float64)
    before = source.tobytes()
    array = put_padded(source, where(ROWS, (("x",),) * len(shape), shape), copier, may_alias=False)
    source[...] = 0.5
    assert values(array, shape).tobytes() == before


@rows(
    ("name", "shape", "dtype"),
    [
        *itertools.product(LAYOUTS, SHAPES, [np.bool_, ml_dtypes.int4, ml_dtypes.bfloat16, np.complex128]),
        *((name, (2051, 1021), np.uint64) for name in LAYOUTS),  # by two threads
    ],
)
def test_what_is_gathered_is_what_was_placed(copier, name, shape, dtype):
    source = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    out = np.full(shape, 1).astype(dtype)
    gather(placed(name, source, copier), out, copier, lambda _: None)
    assert out.tobytes() == source.tobytes()


@rows(("name", "slab_bytes"), itertools.product(LAYOUTS, [1, 100, 4096]))
def test_reported_bytes_are_present_at_that_moment(copier, monkeypatch, name, slab_bytes):
    monkeypatch.setattr(placement_module, "_SLAB_BYTES", slab_bytes)
    monkeypatch.setattr(placement_module, "_LARGE_BYTES", 64)  # both threads at work
    source = memory_at((61, 9), np.int32)
    out = np.zeros_like(source)
    reported: list[int] = []

    def report(byte_count: int) -> None:
        reported.append(byte_count)
        assert out.tobytes()[:byte_count] == source.tobytes()[:byte_count]

    gather(placed(name, source, copier), out, copier, report)
    steps = [after - before for before, after in itertools.pairwise([0, *reported])]
    assert min(steps) > 0
    assert max(steps) <= max(slab_bytes, source.nbytes // 61)
    assert len(reported) > 4
    assert reported[-1] == source.nbytes
    assert out.tobytes() == source.tobytes()


def test_a_gather_takes_no_additional_memory(copier):
    source = memory_at((1024, 4096), np.float64)
    array = placed("both", source, copier)
    out = np.zeros_like(source)
    tracemalloc.start()
    try:
        gather(array, out, copier, lambda _: None)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert out.tobytes() == source.tobytes()
    assert peak < source.nbytes / 8


def test_a_copy_that_many_ask_for_at_once_is_done_for_all():
    copier, done = ParallelCopier(), np.zeros(8, np.uint8)

    def copy(begin: int, end: int) -> None:
        if end - begin == 4:  # half: within, another asks
            copier.by_rows(8, 8 * MIB, lambda low, high: None)
        done[begin:end] += 1

    copier.by_rows(8, 8 * MIB, copy)
    copier.close()
    assert done.tolist() == [1] * 8


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
    placed = executor._argument(array_type, placement, array_type.dtype, link_pb2.TensorData(blocks=span))
    assert np.asarray(placed)[:length].tobytes() == source.tobytes()
