"""Meshes and specs."""

import copy
import pickle

import numpy as np
import pytest
from rows import rows

import shardcall
from shardcall import P
from shardcall.v1 import mesh_pb2
from shardcall_core.types import mesh as meshes
from shardcall_core.types import specs
from shardcall_core.types.errors import ProtocolError
from shardcall_core.types.mesh import Mesh, as_mesh
from shardcall_core.types.specs import as_spec, as_specs

# Meshes


def test_meshes_are_compared_by_axes_in_their_order_and_by_devices():
    assert Mesh(x=4, y=2) == Mesh({"x": np.int64(4), "y": 2})
    assert hash(Mesh(x=4, y=2)) == hash(Mesh({"x": 4, "y": 2}))
    assert Mesh(x=4, y=2) != Mesh(y=2, x=4)
    assert Mesh(x=2) != Mesh(x=2, device_ids=[0, 1])
    mesh = Mesh(x=4, y=2)
    assert (mesh.axis_names, dict(mesh.shape), mesh.size) == (("x", "y"), {"x": 4, "y": 2}, 8)


@rows(
    "mesh",
    [
        Mesh(x=8),
        Mesh({"x": 4, "y": 2}, device_ids=[7, 6, 5, 4, 3, 2, 1, 0]),
        Mesh(a=1, b=3, device_ids=(4, 2, 0)),
        Mesh({"class": 2}),
        Mesh({"device_ids": 2}),
    ],
)
def test_repr_copy_pickle_and_wire_give_the_same_mesh(mesh):
    assert eval(repr(mesh), {"Mesh": Mesh}) == mesh
    assert copy.deepcopy(mesh) == pickle.loads(pickle.dumps(mesh)) == mesh
    assert meshes.from_proto(meshes.to_proto(mesh)) == mesh
    with pytest.raises(AttributeError):
        mesh.axes = ()
    with pytest.raises(TypeError):
        mesh.shape["x"] = 3


@rows(
    ("says", "arguments"),
    [
        ("needs an axis", [(), ({},), ((),)]),
        ("give sizes by name", [(8,), ("x",), ([("x", 8)],)]),
        ("axis 'y' has size 0", [((4, 0),)]),
        ("or a tuple of sizes", [((4, True),)]),
        ("4 axes, and without names it may have 3", [((1, 1, 1, 8),)]),
        ("size 0; a size is an integer from 1 to 2", [({"x": 0},)]),
        (r"0; a size is an integer from 1 to 2\*\*63 - 1$", [({"x": 10**30},)]),
        ("from 1 to", [({"x": -1},), ({"x": 2**63},)]),
        ("has size (2.0|True|'2')", [({"x": 2.0},), ({"x": True},), ({"x": "2"},)]),
        ("(1x|x y|é||3)'? is no name", [({name: 2},) for name in ("1x", "x y", "é", "", 3)]),
    ],
)
def test_what_is_no_mesh_is_refused(says, arguments):
    for one in arguments:
        with pytest.raises(shardcall.ShardingError, match=says) as caught:
            Mesh(*one)
        assert caught.value.field.startswith("mesh")
        assert isinstance(caught.value, ValueError)


@rows(
    ("sizes", "keywords", "says"),
    [
        ((4,), {"y": 2}, "one way"),
        ({"x": 8}, {"y": 2}, "one way"),
        ({"x": 2}, {"device_ids": [0]}, "has 2 devices and device_ids names 1"),
        ({"x": 2}, {"device_ids": [1, 1]}, "twice"),
        ({"x": 2}, {"device_ids": [0, -1]}, "from 0 to"),
        ({"x": 2}, {"device_ids": [0, 1.5]}, "ids are integers"),
    ],
)
def test_axes_and_devices_that_do_not_agree_are_refused(sizes, keywords, says):
    with pytest.raises(shardcall.ShardingError, match=says):
        Mesh(sizes, **keywords)


@rows("value", [Mesh(x=4, y=2), {"x": 4, "y": 2}, (4, 2), [4, np.int64(2)]])
def test_what_stands_for_a_mesh_is_one_whose_axes_without_names_are_x_y_and_z(value):
    assert as_mesh(value) == Mesh(value.shape if isinstance(value, Mesh) else value) == Mesh(x=4, y=2)
    assert Mesh((2, 2, 2)).axis_names == ("x", "y", "z")
    assert Mesh((2,), device_ids=[1, 0]) == Mesh(x=2, device_ids=[1, 0])


def test_a_server_without_a_mesh_in_its_answer_breaks_the_contract():
    with pytest.raises(ProtocolError, match=r"needs an axis"):
        meshes.from_proto(mesh_pb2.Mesh())


# Specs


def test_entries_read_as_a_tuple_in_their_shortest_form():
    spec = P("x", None, ("y", "z"))
    assert tuple(spec) == ("x", None, ("y", "z"))
    assert spec[2] == ("y", "z")
    assert len(P()) == 0
    assert (P(*spec), P(("x",), ()), P(["x", "y"])) == (spec, P("x", None), P(("x", "y")))


@rows("spec", [P(), P("x", None), P(("x", "y"), None, "z")])
def test_repr_copy_pickle_and_wire_give_the_same_spec(spec):
    assert eval(repr(spec), {"P": P}) == spec
    assert copy.deepcopy(spec) == pickle.loads(pickle.dumps(spec)) == spec
    assert specs.from_proto(specs.to_proto(spec).spec) == spec
    assert (specs.to_proto(spec).HasField("spec"), specs.to_proto(None).HasField("spec")) == (True, False)


def test_a_spec_of_jax_is_read_by_its_entries_and_refused_where_only_jax_can_do_it():
    """JAX's own class is not named PartitionSpec in every version and is no tuple."""
    jax_spec = pytest.importorskip("jax.sharding").PartitionSpec
    assert (as_spec(jax_spec("x", None, ("y", "z"))), as_spec(jax_spec())) == (P("x", None, ("y", "z")), P())
    assert as_specs([jax_spec("x"), None], "in_specs") == (P("x"), None)
    with pytest.raises(shardcall.ShardingError, match=r"unreduced"):
        as_spec(jax_spec("x", unreduced={"y"}))
    with pytest.raises(shardcall.ShardingError, match=r"an entry is None"):
        as_spec(jax_spec(jax_spec.UNCONSTRAINED))
    with pytest.raises(shardcall.ShardingError, match=r"give a list"):
        as_specs(jax_spec("x"), "in_specs")


@rows(
    ("says", "entries"),
    [
        ("an entry is None, the name of a mesh axis", [(1,), (1.5,), (("x", 1),), (object(),), (b"x",)]),
        ("twice", [("x", "x"), (("x", "x"),), ("y", None, ("x", "y"))]),
    ],
)
def test_an_entry_names_axes_that_divide_one_array_axis(says, entries):
    for one in entries:
        with pytest.raises(shardcall.ShardingError, match=says):
            P(*one)


def test_names_and_entries_are_a_spec():
    for value in ("x", ("x",), ["x"]):
        assert as_spec(value) == P("x")
        assert type(as_spec(value)) is P
    assert as_spec(("x", None, ("y", "z"))) == as_spec(["x", None, ["y", "z"]]) == P("x", None, ("y", "z"))
    assert as_spec(()) == P()
    assert as_specs(["x", None, ("x", None)], "in_specs") == (P("x"), None, P("x", None))


@rows(
    ("read", "value", "field", "says"),
    [
        (as_spec, ("x", 3), "lhs_spec", r"^lhs_spec is \('x', 3\): a spec's entry is 3"),
        *((as_spec, value, "lhs_spec", "lhs_spec is .*give shardcall.P") for value in (3, b"x", {"x": 0}, object())),
        *((as_specs, value, "in_specs", "in_specs is .*give a list") for value in (P("x", None), "x", 3, {"x": P()})),
        (as_specs, [P("x"), 3], "in_specs[1]", r"in_specs\[1\]"),
    ],
)
def test_what_is_no_spec_and_no_list_of_specs_is_refused_by_its_field(read, value, field, says):
    with pytest.raises(shardcall.ShardingError, match=says) as caught:
        read(value, field.partition("[")[0])
    assert caught.value.field == field
