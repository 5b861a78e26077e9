"""Transfers of operands: the bytes that a device does not hold, and equivalent layouts."""

from rows import rows

from shardcall import Array, Mesh, P
from shardcall_core.placements.placement import ArrayPlacement
from shardcall_core.placements.resharding import find_transfer

X = Mesh(x=4, device_ids=[0, 1, 2, 3])
TURNED = Mesh(x=4, device_ids=[3, 2, 1, 0])
SQUARE = Mesh(a=2, b=2, device_ids=[0, 1, 2, 3])
PAIR = Mesh(x=2, device_ids=[0, 1])


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


@rows(
    ("from_spec", "from_mesh", "to_spec", "to_mesh"),
    [
        (P("x", None), X, P("x", None), X),
        (P("x", None), X, P("y", None), Mesh(y=4, device_ids=[0, 1, 2, 3])),
        (P("x", None), X, P(("a", "b"), None), SQUARE),
        (P(None, None), X, P(None, None), SQUARE),
    ],
)
def test_equivalent_layouts_need_no_transfer(from_spec, from_mesh, to_spec, to_mesh):
    assert transfer((8, 4), from_spec, from_mesh, to_spec, to_mesh) is None


@rows(
    ("from_spec", "from_mesh", "to_spec", "to_mesh", "elements"),
    [
        (P("x", None), X, P(None, "x"), X, 32 - 8),  # of its 8 elements each device has 2
        (P("x", None), X, P("x", None), TURNED, 32),
        (P("x", None), X, P(None, None), X, 4 * (32 - 8)),
        (P(None, None), X, P("x", None), X, 0),  # every device has its block, in an array that is to be cut
        (P("x", None), X, P("x", None), PAIR, 16 - 8 + 16),
        (P("x", None), PAIR, P("x", None), X, 32 - 8),
        (P("a", "b"), SQUARE, P("b", "a"), SQUARE, 16),  # two of four devices are swapped
        (P(None, None), X, P(None, None), TURNED, 0),
    ],
)
def test_a_device_receives_what_it_does_not_hold(from_spec, from_mesh, to_spec, to_mesh, elements):
    moved = transfer((8, 4), from_spec, from_mesh, to_spec, to_mesh)
    assert moved.received_bytes == elements * 8
    assert not moved.through_host
    assert (moved.operand, moved.from_mesh, moved.to_spec) == (1, from_mesh, to_spec)


def test_an_array_padded_otherwise_moves_through_the_host_without_its_padding():
    moved = transfer((5, 4), P("x", None), X, P(None, "x"), X)
    assert moved.through_host
    assert moved.received_bytes == 5 * 4 * 8
    assert str(moved) == "operand 1 from P('x', None), 160 bytes through the host"


def test_between_other_devices_of_several_hosts_too():
    among = (8, 4), P("x", None), X, P("x", None), TURNED
    assert not transfer(*among, between_hosts=True).through_host  # the same devices in another order
    apart = transfer((8, 4), P("x", None), PAIR, P("x", None), X, between_hosts=True)
    assert apart.through_host
    assert apart.received_bytes == 32 * 8


def test_a_scalar_and_an_empty_array_receive_what_they_have():
    assert transfer((), P(), X, P(), PAIR).received_bytes == 0
    assert transfer((0, 4), P("x", None), X, P(None, "x"), X).received_bytes == 0


def test_print_names_the_mesh_where_it_is_another():
    assert str(transfer((8, 4), P("x", None), X, P(None, "x"), X)).startswith("operand 1 from P('x', None), 192 bytes")
    assert str(transfer((8, 4), P("x", None), TURNED, P("x", None), X)) == (
        "operand 1 from P('x', None) on Mesh(x=4, device_ids=[3, 2, 1, 0]), 256 bytes between devices"
    )
