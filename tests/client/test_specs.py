import copy
import pickle

import pytest

import shardcall
from shardcall import P
from shardcall.specs import as_spec, from_proto, to_proto, to_protos


def test_entries_read_as_a_tuple():
    spec = P("x", None, ("y", "z"))
    assert tuple(spec) == ("x", None, ("y", "z"))
    assert spec[2] == ("y", "z")
    assert len(P()) == 0
    assert P(*spec) == spec


def test_one_name_in_a_tuple_and_no_name_are_written_short():
    assert P(("x",), ()) == P("x", None)
    assert P(["x", "y"]) == P(("x", "y"))


@pytest.mark.parametrize("spec", [P(), P("x", None), P(("x", "y"), None, "z")])
def test_repr_copy_pickle_and_wire_give_the_same_spec(spec):
    assert eval(repr(spec), {"P": P}) == spec
    assert copy.deepcopy(spec) == pickle.loads(pickle.dumps(spec)) == spec
    assert from_proto(to_proto(spec).spec) == spec


def test_unset_is_not_replicated():
    assert not to_proto(None).HasField("spec")
    assert to_proto(P()).HasField("spec")


class PartitionSpec:
    """JAX's, as far as it matters: no tuple, known by its name, read by its entries."""

    unreduced = frozenset()

    def __init__(self, *entries):
        self._entries = entries

    def __iter__(self):
        return iter(self._entries)


def test_a_spec_of_jax_is_read_by_its_entries():
    assert as_spec(PartitionSpec("x", None, ("y", "z"))) == P("x", None, ("y", "z"))
    assert to_protos([PartitionSpec("x"), None], "in_specs") == to_protos([P("x"), None], "in_specs")


def test_unreduced_axes_of_jax_are_refused():
    spec = PartitionSpec("x")
    spec.unreduced = frozenset({"y"})
    with pytest.raises(shardcall.ShardingError, match=r"unreduced"):
        as_spec(spec)


@pytest.mark.parametrize("entry", [1, 1.5, ("x", 1), object(), b"x"])
def test_an_entry_that_names_no_axis_is_refused(entry):
    with pytest.raises(shardcall.ShardingError, match=r"an entry is None, the name of a mesh axis"):
        P(entry)


@pytest.mark.parametrize("entries", [("x", "x"), (("x", "x"),), ("y", None, ("x", "y"))])
def test_a_mesh_axis_splits_one_array_axis(entries):
    with pytest.raises(shardcall.ShardingError, match=r"twice"):
        P(*entries)


@pytest.mark.parametrize("value", ["x", ("x", None), ["x"], 3])
def test_what_is_no_spec_is_refused(value):
    with pytest.raises(shardcall.ShardingError, match=r"lhs_spec is .*give shardcall.P"):
        as_spec(value, "lhs_spec")


@pytest.mark.parametrize("value", [P("x", None), PartitionSpec("x"), "x", 3, {"x": P()}])
def test_specs_of_several_arrays_are_a_list(value):
    with pytest.raises(shardcall.ShardingError, match=r"in_specs is .*give a list"):
        to_protos(value, "in_specs")


def test_a_wrong_spec_in_a_list_is_named():
    with pytest.raises(shardcall.ShardingError, match=r"in_specs\[1\]") as caught:
        to_protos([P("x"), "x"], "in_specs")
    assert caught.value.field == "in_specs[1]"
