import copy
import pickle

import pytest
from rows import rows

import shardcall
from shardcall import P
from shardcall_core.types.specs import as_spec, as_specs, from_proto, to_proto


def test_entries_read_as_a_tuple():
    spec = P("x", None, ("y", "z"))
    assert tuple(spec) == ("x", None, ("y", "z"))
    assert spec[2] == ("y", "z")
    assert len(P()) == 0
    assert P(*spec) == spec


def test_one_name_in_a_tuple_and_no_name_are_written_short():
    assert P(("x",), ()) == P("x", None)
    assert P(["x", "y"]) == P(("x", "y"))


@rows("spec", [P(), P("x", None), P(("x", "y"), None, "z")])
def test_repr_copy_pickle_and_wire_give_the_same_spec(spec):
    assert eval(repr(spec), {"P": P}) == spec
    assert copy.deepcopy(spec) == pickle.loads(pickle.dumps(spec)) == spec
    assert from_proto(to_proto(spec).spec) == spec


def test_unset_is_not_replicated():
    assert not to_proto(None).HasField("spec")
    assert to_proto(P()).HasField("spec")


@pytest.fixture(scope="session")
def jax_spec():
    """JAX's own class, which is not named PartitionSpec in every version and is no tuple."""
    return pytest.importorskip("jax.sharding").PartitionSpec


def test_a_spec_of_jax_is_read_by_its_entries(jax_spec):
    assert as_spec(jax_spec("x", None, ("y", "z"))) == P("x", None, ("y", "z"))
    assert as_spec(jax_spec()) == P()
    assert as_specs([jax_spec("x"), None], "in_specs") == (P("x"), None)


def test_what_only_jax_can_do_is_refused(jax_spec):
    with pytest.raises(shardcall.ShardingError, match=r"unreduced"):
        as_spec(jax_spec("x", unreduced={"y"}))
    with pytest.raises(shardcall.ShardingError, match=r"an entry is None"):
        as_spec(jax_spec(jax_spec.UNCONSTRAINED))
    with pytest.raises(shardcall.ShardingError, match=r"give a list"):
        as_specs(jax_spec("x"), "in_specs")


@rows("entry", [1, 1.5, ("x", 1), object(), b"x"])
def test_an_entry_that_names_no_axis_is_refused(entry):
    with pytest.raises(shardcall.ShardingError, match=r"an entry is None, the name of a mesh axis"):
        P(entry)


@rows("entries", [("x", "x"), (("x", "x"),), ("y", None, ("x", "y"))])
def test_a_mesh_axis_splits_one_array_axis(entries):
    with pytest.raises(shardcall.ShardingError, match=r"twice"):
        P(*entries)


@rows("value", ["x", ("x",), ["x"]])
def test_names_and_entries_are_a_spec(value):
    assert as_spec(value) == P("x")
    assert type(as_spec(value)) is P


def test_several_entries_are_one_spec():
    assert as_spec(("x", None, ("y", "z"))) == as_spec(["x", None, ["y", "z"]]) == P("x", None, ("y", "z"))
    assert as_spec(()) == P()
    assert as_specs(["x", None, ("x", None)], "in_specs") == (P("x"), None, P("x", None))


def test_a_wrong_entry_is_reported_with_the_field():
    with pytest.raises(shardcall.ShardingError, match=r"^lhs_spec is \('x', 3\): a spec's entry is 3") as caught:
        as_spec(("x", 3), "lhs_spec")
    assert caught.value.field == "lhs_spec"


@rows("value", [3, b"x", {"x": 0}, object()])
def test_what_is_no_spec_is_refused(value):
    with pytest.raises(shardcall.ShardingError, match=r"lhs_spec is .*give shardcall.P"):
        as_spec(value, "lhs_spec")


@rows("value", [P("x", None), "x", 3, {"x": P()}])
def test_specs_of_several_arrays_are_a_list(value):
    with pytest.raises(shardcall.ShardingError, match=r"in_specs is .*give a list"):
        as_specs(value, "in_specs")


def test_a_wrong_spec_in_a_list_is_named():
    with pytest.raises(shardcall.ShardingError, match=r"in_specs\[1\]") as caught:
        as_specs([P("x"), 3], "in_specs")
    assert caught.value.field == "in_specs[1]"
