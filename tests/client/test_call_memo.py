"""Sharing of request messages and of templates among equal calls."""

import itertools
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from client.stream_server import in_threads
from hypothesis import given
from hypothesis import strategies as st
from rows import rows

import shardcall
from shardcall import Mesh, P
from shardcall._src.calls import call_request
from shardcall._src.calls.call_memo import CallMemo, call_key
from shardcall._src.calls.call_request import CallOptions, prepare
from shardcall._src.device_arrays.array_version import ArrayVersion, ServerIdentity
from shardcall._src.programs.fused_programs import FusedPrograms
from shardcall._src.programs.recorded_calls import RecordedBatch
from shardcall._src.programs.templates import Templates
from shardcall.v1 import kernel_pb2
from shardcall_core.graphs.graph import Node, Value
from shardcall_core.placements.placement import ArrayPlacement, MeshPlacement

X = np.arange(8.0)


# Messages


def message(memo, kernel="diff", parameters=(), **options):
    return prepare(kernel, [X], dict(parameters), CallOptions(**options), memo=memo).message


@rows(
    "options",
    [
        {},
        {"parameters": {"n": 2, "axis": -1}},
        {"parameters": {"mode": "a", "flag": True, "nothing": None}},
        {"parameters": {"spec": P("x")}},
        {"in_specs": [P(("x", "y")), None], "strategy": "halo"},
        {"out_specs": (P(None, "x"),), "kernel": "echo"},
    ],
)
def test_calls_that_are_alike_share_a_message_that_says_the_same(options):
    memo = CallMemo()
    first, again = message(memo, **options), message(memo, **options)
    assert again is first
    assert first == message(CallMemo(), **options)


def test_meshes_that_are_alike_and_short_forms_share_a_message():
    memo = CallMemo()
    first = message(memo, mesh=Mesh(x=2, device_ids=[1, 0]))
    assert message(memo, mesh=Mesh({"x": 2}, device_ids=(1, 0))) is first
    assert len(memo) == 1
    first = message(memo, mesh=Mesh(x=4, y=2), parameters={"spec": P("x")}, out_specs=[P("x", None)])
    for mesh, spec, out_spec in (({"x": 4, "y": 2}, "x", ("x", None)), ((4, 2), ["x"], ["x", None])):
        assert message(memo, mesh=mesh, parameters={"spec": spec}, out_specs=[out_spec]) is first


def test_the_oldest_messages_are_dropped_beyond_a_size():
    nbytes = message(CallMemo(), parameters={"n": 1}).ByteSize()
    memo = CallMemo(max_bytes=2 * nbytes)
    first, second, third = (message(memo, parameters={"n": n}) for n in (1, 2, 3))
    assert message(memo, parameters={"n": 3}) is third
    assert message(memo, parameters={"n": 2}) is second
    assert message(memo, parameters={"n": 1}) is not first
    assert len(memo) == 2


ALL_DIFFERENT = [
    *({}, {"kernel": "echo"}, {"strategy": "ring"}, {"parameters": {"axis": 1}}, {"out_specs": [P("x")]}),
    *({"parameters": {"n": n}} for n in (1, True, 1.0, "1", None, 0, False, 0.0, -0.0, [1])),
    *({"mesh": mesh} for mesh in (Mesh(x=2), Mesh(y=2), Mesh(x=2, y=1), Mesh(y=1, x=2))),
    *({"mesh": Mesh(x=2, device_ids=ids)} for ids in ([0, 1], [1, 0])),
    *({"in_specs": specs} for specs in ([P("x")], [P()], [None, P("x")], [P("x", "y")], [P(("x", "y"))])),
]


@rows("backwards", [False, True])
def test_calls_that_differ_have_messages_that_differ(backwards):
    memo = CallMemo()
    said = [message(memo, **options) for options in ALL_DIFFERENT[:: -1 if backwards else 1]]
    for one, other in itertools.combinations(said, 2):
        assert one.SerializeToString(deterministic=True) != other.SerializeToString(deterministic=True)


@rows("value", [1.0, np.int64(1), np.bool_(True), np.array(1), [1], range(2)])
def test_only_plain_values_are_cached(value):
    memo = CallMemo()
    message(memo, parameters={"n": value})
    assert len(memo) == 0


def test_a_list_that_changed_is_sent_as_it_is():
    memo, axes, specs = CallMemo(), [0], [P("x")]
    message(memo, parameters={"axes": axes}, in_specs=specs)
    axes.append(1)
    assert message(memo, parameters={"axes": axes}).parameters["axes"].int_list.values == [0, 1]
    message(memo, in_specs=specs)
    specs[0] = P("y")
    assert message(memo, in_specs=specs).in_specs[0].spec.entries[0].axis_names == ["y"]


@rows("options", [{"in_specs": P()}, {"in_specs": [(3,)]}, {"mesh": (("x", 2),)}, {"parameters": {"n": 2**63}}])
def test_what_is_refused_is_refused_again(options):
    memo = CallMemo()
    message(memo, in_specs=[])
    message(memo, mesh=Mesh(x=2))
    for _ in range(2):
        with pytest.raises(shardcall.ShardcallError):
            message(memo, **options)


def test_the_oldest_are_forgotten():
    memo = CallMemo()
    first = message(memo, parameters={"n": 0})
    for n in range(1, 4200):
        last = message(memo, parameters={"n": n})
    assert len(memo) < 4200
    assert message(memo, parameters={"n": 4199}) is last
    assert message(memo, parameters={"n": 0}) is not first


def test_the_largest_operand_decides_where_none_is_committed():
    memo, types = CallMemo(), [shardcall.Array(size, "float64") for size in (8, 64)]
    placements = [ArrayPlacement(one, P(), one.shape, one.shape) for one in types]
    for meshes in ([Mesh(x=1), Mesh(x=2)], [Mesh(x=2), Mesh(x=1)]):
        for small, large in ((0, 1), (1, 0)):
            operands = [
                ArrayVersion(None, ServerIdentity("here", 1), bytes(16), types[i], placed, committed=False)
                for i, mesh in zip((small, large), meshes, strict=True)
                for placed in [MeshPlacement(placements[i], mesh, 64)]
            ]
            assert prepare("outer", operands, {}, memo=memo).message == prepare("outer", operands, {}).message
    assert len(memo) == 4


def test_arguments_that_a_key_cannot_represent_have_none():
    assert call_key("diff", {"n": 1}, None, None, None, "auto") == call_key("diff", {"n": 1}, None, [], (), "auto")
    assert call_key("diff", {"n": 0.0}, None, None, None, "auto") is None
    assert CallMemo().find(None) is None
    memo = CallMemo()
    memo.add(None, kernel_pb2.KernelCall())
    assert len(memo) == 0


def test_threads_share_the_programs_of_recorded_calls(monkeypatch):
    monkeypatch.setattr("shardcall._src.programs.fused_programs._MAX", 8)
    programs, before = FusedPrograms(), sys.getswitchinterval()

    def work(thread):
        for i in range(300):
            batch = RecordedBatch()
            batch.inputs.append(X)
            batch.add_node(Node("negative", (Value(-1, 0),)))
            batch.calls = [SimpleNamespace(template=SimpleNamespace(number=1000 * thread + i))]
            batch.kept = {0: None}
            programs.get(batch)

    sys.setswitchinterval(1e-6)
    try:
        assert in_threads(4, work) == [None] * 4
    finally:
        sys.setswitchinterval(before)
    assert len(programs._programs) == len(programs._bounds) == 8


def terms_of(batch, values):
    """Returns what the nodes of a batch compute, from what its inputs are."""
    terms = []
    for node in batch.nodes:
        terms.append((*(values[batch.inputs[v.number]] if v.node < 0 else terms[v.node] for v in node.operands),))
    return terms


@given(st.data())
def test_a_part_of_recorded_calls_takes_inputs_and_results_of_the_parts_before(data):
    distances = st.lists(st.integers(0, 5), min_size=1, max_size=2)  # to the calls that make operands
    calls = data.draw(st.lists(distances, min_size=2, max_size=9))
    which = st.sets(st.integers(0, len(calls) - 1))
    kept, replaced = data.draw(which), data.draw(which)
    for count in range(1, len(calls)):
        batch = RecordedBatch()
        batch.inputs = ["x", "y"]
        for i, back in enumerate(calls):
            batch.add_node(Node("add", tuple(Value(i - k, 0) if 0 < k <= i else Value(-1, k % 2) for k in back)))
            batch.calls.append(SimpleNamespace(written=(lambda: 0) if i in replaced else None))
        batch.kept = {i: f"result {i}" for i in sorted(kept)}
        complete, values = terms_of(batch, {"x": "x", "y": "y"}), {"x": "x", "y": "y"}
        for part in batch.parts(count, lambda i: f"result {i}"):
            terms = terms_of(part, values)
            values |= {item: terms[i] for i, item in part.kept.items()}
            assert len(part.calls) == len(part.nodes)
        assert {f"result {i}": complete[i] for i in kept}.items() <= values.items()


# Templates


ONES = np.ones((3, 4))


def test_calls_of_one_form_share_a_template():
    templates = Templates()
    first = templates.find("add", [ONES, ONES], {})
    assert templates.find("add", [ONES + 1, shardcall.Array((3, 4), "float64")], {}) is first
    assert first.results == (shardcall.Array((3, 4), "float64"),)
    others = [templates.find(name, [ONES, y], {}) for name, y in (("add", ONES[0]), ("subtract", ONES), ("abs", None))]
    assert len({first.number, *(template.number for template in others)}) == 4


def test_equal_parameters_of_different_classes_are_different():
    templates = Templates()
    kept = templates.find("sum", [ONES], {"axis": 0, "keepdims": True})
    assert templates.find("sum", [ONES], {"axis": 0, "keepdims": 1}) is not kept
    assert kept.results[0].shape == (1, 4)


def test_nodes_that_compute_the_same_are_equal():
    templates = Templates()
    last = templates.find("sum", [ONES], {"axis": -1})
    assert templates.find("sum", [ONES], {"axis": 1, "keepdims": False}).node == last.node
    assert templates.find("mod", [ONES, ONES], {}).node == templates.find("remainder", [ONES, ONES], {}).node


@rows("keywords", [{"axis": 0.0}, {"axis": [0]}, {"mesh": None}, {"axis": (0.0, 1)}])
def test_calls_with_values_that_may_change_or_of_other_parameters_or_kernels_have_none(keywords):
    templates = Templates()
    assert templates.find("sum", [ONES], {"axis": (0, 1)})
    assert templates.find("sum", [ONES], keywords) is None
    assert templates.find("of_a_package", [ONES], {}) is None
    with pytest.raises(shardcall.ShardcallError):
        templates.find("add", [ONES, np.ones(5)], {})


@rows(
    ("name", "operands", "keywords", "is_fusable"),
    [
        ("add", [ONES, ONES], {}, True),
        ("matmul", [ONES, ONES.T], {}, False),
        ("multiply", [ONES.astype(complex), ONES], {}, False),
        ("add", [ONES.astype(complex), ONES], {}, True),
        ("power", [ONES.astype(int), ONES.astype(int)], {}, False),
        ("roll", [ONES], {"shift": 1}, False),
        ("roll", [ONES], {"shift": 1, "axis": 0}, True),
    ],
)
def test_fusable_calls_have_values_that_do_not_depend_on_others(name, operands, keywords, is_fusable):
    assert Templates().find(name, operands, keywords).is_fusable == is_fusable


@pytest.mark.parametrize("is_placed_meanwhile", [False, True])
def test_messages_are_kept_for_operands_whose_placement_did_not_change(monkeypatch, is_placed_meanwhile):
    templates, x = Templates(), shardcall.Array((3, 4), "float64")
    version = ArrayVersion(None, ServerIdentity("here", 1), bytes(16), x)
    template = templates.find("negative", [version], {})

    def slow(*arguments, **keywords):
        call = prepare(*arguments, **keywords)
        if is_placed_meanwhile:  # by another thread
            version.placed = MeshPlacement(ArrayPlacement(x, shardcall.P(), (3, 4), (3, 4)), shardcall.Mesh(x=1), 96)
        return call

    monkeypatch.setattr("shardcall._src.programs.templates.prepare", slow)
    assert template.request([version], templates.messages).message.kernel == "negative"
    assert len(templates.messages) == 1 + (not is_placed_meanwhile)  # by what it means, and as one of the template


@pytest.mark.parametrize("is_placed_meanwhile", [False, True])
def test_messages_are_cached_for_operands_whose_placement_did_not_change(monkeypatch, is_placed_meanwhile):
    memo, x, find_placing = CallMemo(), shardcall.Array(8, "float64"), call_request.placed
    version = ArrayVersion(None, ServerIdentity("here", 1), bytes(16), x)

    def slow(*arguments):
        placing = find_placing(*arguments)
        if is_placed_meanwhile:  # by another thread
            version.placed = MeshPlacement(ArrayPlacement(x, P(), (8,), (8,)), Mesh(x=1), 64)
        return placing

    monkeypatch.setattr(call_request, "placed", slow)
    prepare("negative", [version], {}, memo=memo)
    assert len(memo) == (not is_placed_meanwhile)
