"""Blocks of arrays on meshes, and transfers: the bytes that a device does not hold, and equivalent layouts.

`kernels/test_drawings_equal_jax.py` compares blocks with those of JAX.
"""

import pytest
from rows import rows

import shardcall
from shardcall import Array, Mesh, P
from shardcall_core.placements.placement import ArrayPlacement
from shardcall_core.placements.resharding import find_transfer
from shardcall_core.types.blocks import block_grid

X = Mesh(x=4, device_ids=[0, 1, 2, 3])
TURNED = Mesh(x=4, device_ids=[3, 2, 1, 0])
SQUARE = Mesh(a=2, b=2, device_ids=[0, 1, 2, 3])
PAIR = Mesh(x=2, device_ids=[0, 1])


@rows(
    ("shape", "size", "spans"),
    [
        ((10,), 4, [(0, 3), (3, 6), (6, 9), (9, 10)]),
        ((2,), 4, [(0, 1), (1, 2), (2, 2), (2, 2)]),
        ((0, 3), 2, [(0, 0), (0, 0)]),
    ],
)
def test_spans_of_a_size_that_does_not_divide_leave_padding_out(shape, size, spans):
    assert [block_grid(shape, P("x"), Mesh(x=size)).span(0, i) for i in range(size)] == spans


@rows(("spec", "says"), [(P("x", None, None), "3 entries and the array has 2 axes"), (P("q"), "'q', which Mesh")])
def test_a_spec_that_does_not_fit_is_refused(spec, says):
    with pytest.raises(shardcall.ShardingError, match=says):
        block_grid((4, 4), spec, Mesh(x=2))


def placed(shape, spec, mesh, dtype="float64"):
    counts = [1] * len(shape)
    for axis, entry in enumerate(spec):
        for name in (entry,) if isinstance(entry, str) else entry or ():
            counts[axis] *= mesh.shape[name]
    block = tuple(-(-n // count) for n, count in zip(shape, counts, strict=True))
    return ArrayPlacement(Array(shape, dtype), spec, tuple(b * c for b, c in zip(block, counts, strict=True)), block)


def transfer(shape, from_spec, from_mesh, to_spec, to_mesh, **options):
    taken = placed(shape, to_spec, to_mesh)
    return find_transfer(1, from_mesh, placed(shape, from_spec, from_mesh), to_mesh, taken, **options)


def test_between_other_devices_of_several_hosts_too():
    moved = [
        transfer((8, 4), P("x", None), one, P("x", None), other, between_hosts=True)
        for one, other in ((X, TURNED), (PAIR, X))
    ]
    assert [one.through_host for one in moved] == [False, True]  # the same devices in another order; other devices
    assert moved[1].received_bytes == 32 * 8


def test_a_scalar_and_an_empty_array_receive_what_they_have():
    assert transfer((), P(), X, P(), PAIR).received_bytes == 0
    assert transfer((0, 4), P("x", None), X, P(None, "x"), X).received_bytes == 0


@rows(
    ("shape", "from_mesh", "to_spec", "expected"),
    [
        ((8, 4), X, P(None, "x"), "operand 1 from P('x', None), 192 bytes between devices"),
        ((5, 4), X, P(None, "x"), "operand 1 from P('x', None), 160 bytes through the host"),
        ((8, 4), TURNED, P("x", None), f"operand 1 from P('x', None) on {TURNED}, 256 bytes between devices"),
    ],
)
def test_print_names_the_mesh_where_it_is_another(shape, from_mesh, to_spec, expected):
    assert str(transfer(shape, P("x", None), from_mesh, to_spec, X)) == expected
