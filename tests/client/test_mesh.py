import copy
import pickle

import numpy as np
import pytest
from rows import rows

import shardcall
from shardcall.v1 import mesh_pb2
from shardcall_core.types.errors import ProtocolError
from shardcall_core.types.mesh import Mesh, as_mesh, from_proto, to_proto


def test_axes_by_keyword_and_by_mapping_are_the_same_mesh():
    assert Mesh(x=4, y=2) == Mesh({"x": 4, "y": 2})
    assert hash(Mesh(x=4, y=2)) == hash(Mesh({"x": 4, "y": 2}))
    assert Mesh(x=4, y=2) != Mesh(y=2, x=4)
    assert Mesh(x=2) != Mesh(x=2, device_ids=[0, 1])


def test_names_shape_and_size():
    mesh = Mesh({"x": np.int64(4), "y": 2})
    assert mesh.axis_names == ("x", "y")
    assert dict(mesh.shape) == {"x": 4, "y": 2}
    assert mesh.size == 8


@rows(
    "mesh",
    [
        Mesh(x=8),
        Mesh({"x": 4, "y": 2}, device_ids=[7, 6, 5, 4, 3, 2, 1, 0]),
        Mesh({"class": 2}),
        Mesh({"device_ids": 2}),
    ],
)
def test_repr_makes_the_same_mesh(mesh):
    assert eval(repr(mesh), {"Mesh": Mesh}) == mesh


def test_a_mesh_cannot_be_changed_but_copied():
    mesh = Mesh(x=2, device_ids=[1, 0])
    with pytest.raises(AttributeError):
        mesh.axes = ()
    with pytest.raises(TypeError):
        mesh.shape["x"] = 3
    assert copy.deepcopy(mesh) == pickle.loads(pickle.dumps(mesh)) == mesh


@rows("mesh", [Mesh(x=8), Mesh(a=1, b=3, device_ids=(4, 2, 0))])
def test_the_wire_gives_back_what_it_got(mesh):
    assert from_proto(to_proto(mesh)) == mesh


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


def test_sizes_without_names_are_axes_x_y_and_z():
    assert Mesh((4, 2)) == Mesh([np.int64(4), 2]) == Mesh(x=4, y=2)
    assert Mesh((2, 2, 2)).axis_names == ("x", "y", "z")
    assert Mesh((2,), device_ids=[1, 0]) == Mesh(x=2, device_ids=[1, 0])


@rows("value", [Mesh(x=4, y=2), {"x": 4, "y": 2}, (4, 2), [4, 2]])
def test_what_stands_for_a_mesh_is_one(value):
    assert as_mesh(value) == Mesh(x=4, y=2)


def test_a_server_without_a_mesh_in_its_answer_breaks_the_contract():
    with pytest.raises(ProtocolError, match=r"needs an axis"):
        from_proto(mesh_pb2.Mesh())
