"""Blocks of each process: as JAX counts them, laid out so that nothing is missing and nothing twice."""

import math
from dataclasses import dataclass

import jax
import ml_dtypes
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shardcall_core.layouts.layout import ArrayType, MeshAxes, Spec, padded_shape
from shardcall_server.compilation.program import Placement, build_mesh, named_sharding
from shardcall_server.link.process_blocks import Blocks, Bounds, blocks_of, crop, device_blocks, laid_out_bytes, lay_out
from shardcall_server.mesh.placement import gather_blocks, gathered_bytes, put_blocks

DEVICES = 8
ALIGNMENT = 64
DTYPES = [np.float64, np.bool_, np.uint8, np.complex128, ml_dtypes.bfloat16, ml_dtypes.int4]


@dataclass
class Layout:
    """An array on a mesh of some devices in some order, which belong to several processes.

    Attributes:
        array_type: the array.
        spec: the axes over which it is sharded.
        axes: the mesh's axes.
        device_ids: its devices.
        padded: the array's shape on the devices.
        bounds: of each device's block.
        processes: the process of every device.
    """

    array_type: ArrayType
    spec: Spec
    axes: MeshAxes
    device_ids: list[int]
    processes: list[int]

    @property
    def padded(self) -> tuple[int, ...]:
        return padded_shape(self.array_type.shape, self.spec, self.axes)

    @property
    def bounds(self) -> list[Bounds]:
        return device_blocks(self.padded, self.spec, self.axes)

    @property
    def blocks(self) -> Blocks:
        return blocks_of(zip(self.processes, self.bounds, strict=True))

    @property
    def placement(self) -> Placement:
        return Placement(self.padded, named_sharding(build_mesh(self.axes, self.device_ids), self.spec))


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    sizes: list[int] = []
    for _ in range(draw(st.integers(1, 3))):
        sizes.append(draw(st.integers(1, DEVICES // math.prod(sizes))))
    axes = MeshAxes(tuple(zip("abc", sizes, strict=False)))
    ndim = draw(st.integers(0, 3))
    entries: list[list[str]] = [[] for _ in range(ndim)]
    for name in draw(st.permutations(axes.names)):
        where = draw(st.integers(-1, ndim - 1))
        if where >= 0:
            entries[where].append(name)
    shape = tuple(draw(st.lists(st.integers(0, 9), min_size=ndim, max_size=ndim)))
    array_type = ArrayType(shape, np.dtype(draw(st.sampled_from(DTYPES))))
    device_ids = draw(st.permutations(range(DEVICES)))[: axes.device_count]
    processes = draw(st.lists(st.integers(0, 3), min_size=axes.device_count, max_size=axes.device_count))
    return Layout(array_type, tuple(map(tuple, entries)), axes, device_ids, processes)


def bounds_of(index: tuple[slice, ...], shape: tuple[int, ...]) -> Bounds:
    return tuple(s.indices(n)[:2] for s, n in zip(index, shape, strict=True))


@settings(max_examples=200, deadline=None)
@given(layout=layouts())
def test_blocks_are_those_of_jax_and_laid_out_so_that_every_element_is_there_once(layout: Layout):
    """One test, since to draw a layout takes longer than to check it."""
    index_map, devices = layout.placement.sharding.devices_indices_map(layout.padded), jax.devices()
    assert [bounds_of(index_map[devices[i]], layout.padded) for i in layout.device_ids] == layout.bounds
    # A process holds what its devices do, and the first that holds a block gives it.
    holders = list(zip(layout.processes, layout.bounds, strict=True))
    blocks, array_type, count = layout.blocks, layout.array_type, np.zeros(layout.array_type.shape, np.uint8)
    for process in set(layout.processes):
        assert blocks.held[process] == {bounds for holder, bounds in holders if holder == process}
        for block in blocks.held[process]:
            first = min(holder for holder, bounds in holders if bounds == block)
            assert (block in blocks.gathered[process]) == (first == process)
    for gathered in blocks.gathered.values():
        pieces = lay_out(gathered, array_type)
        for piece in pieces:
            piece.of(count)[...] += 1
        # Front end and worker lay out alike: padding may be cut off before or after.
        assert lay_out([crop(block, array_type.shape) for block in gathered], array_type) == pieces
    assert (count == 1).all()
    for held in blocks.held.values():
        pieces, end = lay_out(held, array_type), 0
        cropped = [crop(block, array_type.shape) for block in held]
        assert {piece.bounds for piece in pieces} == {b for b in cropped if all(low < high for low, high in b)}
        assert pieces == sorted(pieces, key=lambda piece: piece.bounds)
        for piece in pieces:
            assert piece.offset == -(-end // ALIGNMENT) * ALIGNMENT
            assert piece.nbytes == math.prod(piece.shape) * array_type.dtype.itemsize > 0
            end = piece.offset + piece.nbytes
        assert laid_out_bytes(pieces) == end


@settings(max_examples=100, deadline=None)
@given(layout=layouts(), may_alias=st.booleans(), seed=st.integers(0, 99))
def test_blocks_in_memory_become_the_array_and_its_blocks_again(copier, layout: Layout, may_alias, seed):
    """One process has all devices here, so it holds and gives every block."""
    array_type = layout.array_type
    source = np.random.default_rng(seed).integers(0, 2, array_type.shape).astype(array_type.dtype)
    pieces = lay_out(set(layout.bounds), array_type)
    nbytes = laid_out_bytes(pieces)
    memory = np.full(nbytes + ALIGNMENT, 0xFF, np.uint8)
    for piece in pieces:
        piece.view(memory, array_type.dtype)[...] = piece.of(source)
    array = put_blocks(memory, array_type, layout.placement, copier, may_alias=may_alias)
    jax.block_until_ready(array)
    if not may_alias:
        memory[...] = 0xA5
    assert array.shape == layout.padded
    assert np.asarray(array)[tuple(slice(n) for n in array_type.shape)].tobytes() == source.tobytes()
    assert gathered_bytes(array, array_type) == nbytes
    out = np.zeros(nbytes + ALIGNMENT, np.uint8)
    gather_blocks(array, array_type, out, copier)
    for piece in pieces:
        assert piece.view(out, array_type.dtype).tobytes() == piece.of(source).tobytes()
    assert not out[nbytes:].any(), "nothing is written behind the last block"
