"""Templates of calls, without a server."""

import numpy as np
import pytest

import shardcall as sc
from shardcall._src.calls.call_request import prepare
from shardcall._src.device_arrays.array_version import ArrayVersion, ServerIdentity
from shardcall._src.programs.templates import Templates
from shardcall_core.placements.placement import ArrayPlacement, MeshPlacement

X = np.ones((3, 4))


def test_calls_of_one_form_share_a_template():
    templates = Templates()
    first = templates.find("add", [X, X], {})
    assert templates.find("add", [X + 1, sc.Array((3, 4), "float64")], {}) is first
    assert first.results == (sc.Array((3, 4), "float64"),)
    others = [templates.find(name, [X, y], {}) for name, y in (("add", X[0]), ("subtract", X), ("abs", None))]
    assert len({first.number, *(template.number for template in others)}) == 4


def test_equal_parameters_of_different_classes_are_different():
    templates = Templates()
    kept = templates.find("sum", [X], {"axis": 0, "keepdims": True})
    assert templates.find("sum", [X], {"axis": 0, "keepdims": 1}) is not kept
    assert kept.results[0].shape == (1, 4)


def test_nodes_that_compute_the_same_are_equal():
    templates = Templates()
    last = templates.find("sum", [X], {"axis": -1})
    assert templates.find("sum", [X], {"axis": 1, "keepdims": False}).node == last.node
    assert templates.find("mod", [X, X], {}).node == templates.find("remainder", [X, X], {}).node


@pytest.mark.parametrize("keywords", [{"axis": 0.0}, {"axis": [0]}, {"mesh": None}, {"axis": (0.0, 1)}])
def test_calls_with_values_that_may_change_or_that_are_no_parameters_have_none(keywords):
    templates = Templates()
    assert templates.find("sum", [X], {"axis": (0, 1)})
    assert templates.find("sum", [X], keywords) is None


def test_calls_of_other_kernels_have_none():
    assert Templates().find("of_a_package", [X], {}) is None


def test_invalid_calls_are_refused():
    with pytest.raises(sc.ShardcallError):
        Templates().find("add", [X, np.ones(5)], {})


@pytest.mark.parametrize(
    ("name", "operands", "keywords", "is_fusable"),
    [
        ("add", [X, X], {}, True),
        ("matmul", [X, X.T], {}, False),
        ("multiply", [X.astype(complex), X], {}, False),
        ("add", [X.astype(complex), X], {}, True),
        ("power", [X.astype(int), X.astype(int)], {}, False),
        ("roll", [X], {"shift": 1}, False),
        ("roll", [X], {"shift": 1, "axis": 0}, True),
    ],
)
def test_fusable_calls_have_values_that_do_not_depend_on_others(name, operands, keywords, is_fusable):
    assert Templates().find(name, operands, keywords).is_fusable == is_fusable


@pytest.mark.parametrize("is_placed_meanwhile", [False, True])
def test_messages_are_kept_for_operands_whose_placement_did_not_change(monkeypatch, is_placed_meanwhile):
    templates, x = Templates(), sc.Array((3, 4), "float64")
    version = ArrayVersion(None, ServerIdentity("here", 1), bytes(16), x)
    template = templates.find("negative", [version], {})

    def slow(*arguments, **keywords):
        call = prepare(*arguments, **keywords)
        if is_placed_meanwhile:  # by another thread
            version.placed = MeshPlacement(ArrayPlacement(x, sc.P(), (3, 4), (3, 4)), sc.Mesh(x=1), 96)
        return call

    monkeypatch.setattr("shardcall._src.programs.templates.prepare", slow)
    assert template.request([version], templates.messages).message.kernel == "negative"
    assert len(templates.messages) == 1 + (not is_placed_meanwhile)  # by what it means, and as one of the template
