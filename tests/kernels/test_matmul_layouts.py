"""`matmul` on meshes of two axes, with batch axes, transposed: np.matmul, by every strategy that does not refuse."""

import itertools
import re

import ml_dtypes
import numpy as np
import pytest
from pairs import pairs_of

from shardcall_core.call_error import CallError
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.products.matmul import MatMul

MATMUL = MatMul()
F32 = np.dtype(np.float32)
MESHES = [{"a": 4, "b": 2}, {"a": 2, "b": 4}, {"a": 8, "b": 1}]
SPECS = [(), ("a",), ("b",), (None, "a"), (None, "b"), ("a", "b"), ("b", "a"), (("a", "b"),), (None, ("b", "a"))]
SIZES = [(16, 16, 16), (11, 13, 5)]
COLLECTIVES = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")


def serving(run, *operands, **how):
    """The explicit strategies that do not refuse."""
    able = []
    for strategy in MATMUL.strategies[1:]:
        try:
            run.resolve(MATMUL, *operands, strategy=strategy.name, **how)
        except CallError:
            continue
        able.append(strategy.name)
    return able


def integers(values, shape):
    return values.small(shape, np.dtype(np.float64))


def short_and_complete(table, every):
    return [pytest.param(*row, marks=() if i % every == 0 else pytest.mark.long) for i, row in enumerate(table)]


TABLE = [
    (*combination, SIZES[i % 2])
    for i, combination in enumerate(itertools.product(MESHES, SPECS, SPECS, [None, *SPECS]))
]


@pytest.mark.parametrize(("mesh", "lhs_spec", "rhs_spec", "out_spec", "size"), short_and_complete(TABLE, every=197))
def test_every_strategy_that_serves_a_layout_is_right(run, values, same, mesh, lhs_spec, rhs_spec, out_spec, size):
    m, k, n = size
    lhs, rhs = integers(values, (m, k)), integers(values, (k, n))
    how = {"mesh": mesh, "in_specs": [lhs_spec, rhs_spec], "out_specs": [out_spec]}
    for strategy in ["gspmd", *serving(run, lhs, rhs, **how)]:
        same(run(MATMUL, lhs, rhs, padding=np.nan, strategy=strategy, **how), lhs @ rhs + 0.0)
    run.programs.clear()


@pytest.mark.parametrize(
    ("lhs_spec", "rhs_spec", "out_spec", "able"),
    [
        (("a", "b"), ("a", "b"), None, ["all_gather", "summa", "reshard"]),
        (("a", "b"), ("a", "b"), ("b", "a"), ["all_gather"]),
        (("a", "b"), ("b",), None, ["psum", "psum_scatter"]),
        (("a", "b"), ("b",), ("a", "b"), ["psum_scatter", "all_gather"]),
        (("a",), (None, "b"), None, []),
        ((None, "a"), ("a", "b"), (), []),
        (("a", "b"), ("b", "a"), None, ["reshard"]),
        (("a", "b"), ("b", "a"), ("a", "b"), ["all_gather", "reshard"]),
        (("b",), ("a",), ("b", "a"), ["all_gather", "reshard"]),
        (("b",), ("b",), None, ["all_gather", "summa", "reshard"]),
        (("b",), ("a",), ("b",), ["reshard"]),
    ],
)
def test_which_strategies_serve(run, lhs_spec, rhs_spec, out_spec, able):
    how = {"mesh": {"a": 4, "b": 2}, "in_specs": [lhs_spec, rhs_spec], "out_specs": [out_spec]}
    assert serving(run, ArrayType((16, 16), F32), ArrayType((16, 16), F32), **how) == able


# From the documentation of np.matmul: "if either argument is N-D, N > 2, it is treated as a stack of matrices residing
# in the last two indexes and broadcast accordingly", and a vector is a matrix by "prepending" or "appending a 1".
STACKS = [
    ((9, 5, 7, 4), (9, 5, 4, 3)),
    ((2, 2, 4), (2, 4, 2)),
    ((5, 1, 3, 6), (4, 6, 2)),
    ((3, 11, 13), (13, 5)),
    ((11, 13), (3, 13, 5)),
    ((1, 3, 4), (7, 4, 2)),
    ((13,), (3, 13, 5)),
    ((3, 11, 13), (13,)),
    ((0, 3, 4), (1, 4, 2)),
    ((2, 3, 0), (2, 0, 5)),
]


@pytest.mark.parametrize(("left", "right"), STACKS)
def test_stacks_of_matrices_are_broadcast(run, values, same, left, right):
    lhs, rhs = integers(values, left), integers(values, right)
    same(run(MATMUL, lhs, rhs, mesh={"a": 4, "b": 2}, padding=np.nan), np.matmul(lhs, rhs) + 0.0)


PREFERRED = [
    *(("bfloat16", "float32"), ("float8_e4m3fn", "float64"), ("int8", "int32"), ("bool", "int64"), ("int4", "int8"))
]


@pytest.mark.parametrize(("types", "strategy"), pairs_of(PREFERRED, ["gspmd", "psum"]))
def test_preferred_element_type_is_summed_up_in_and_returned(run, values, same, types, strategy):
    of_factors, preferred = types
    of_factors, wide = np.dtype(getattr(ml_dtypes, of_factors, of_factors)), np.dtype(preferred)
    lhs, rhs = values.small((9, 300), of_factors), values.small((300, 6), of_factors)
    how = {"mesh": {"x": 8}, "in_specs": [(None, "x"), ("x", None)], "strategy": strategy}
    result = run(MATMUL, lhs, rhs, preferred_element_type=preferred, **how)
    same(result, lhs.astype(wide) @ rhs.astype(wide))


def test_a_preferred_type_that_is_the_default_is_the_same_call(run):
    lhs = rhs = ArrayType((8, 8), F32)
    named, unset = (run.resolve(MATMUL, lhs, rhs, preferred_element_type=name).problem for name in ("float32", None))
    assert named.parameters == unset.parameters


def compiled(run, strategy, size=64, mesh=None, specs=(("a", "b"), ("a", "b")), **how):
    lhs = rhs = ArrayType((size, size), F32)
    how |= {"mesh": mesh or {"a": 4, "b": 2}, "in_specs": specs, "strategy": strategy}
    return run.program(MATMUL, lhs, rhs, **how).compiled


def test_all_gather_gathers_rows_and_columns_and_multiplies_once(run):
    text = compiled(run, "all_gather").as_text()
    assert text.count(" all-gather(") == 2
    assert not any(f" {operation}(" in text for operation in COLLECTIVES[1:])
    assert len(re.findall(r"f32\[(16,32|32,16)\]\S* dot\(", text)) == 1


def test_summa_broadcasts_panels_and_never_holds_the_gathered_operands(run):
    summa, gathered = (compiled(run, strategy, size=256) for strategy in ("summa", "all_gather"))
    text = summa.as_text()
    assert " all-reduce(" in text
    assert not any(f" {operation}(" in text for operation in COLLECTIVES if operation != "all-reduce")
    panels = 4
    block = 256 * 256 * 4 // 8
    gathered_bytes = 2 * block + 4 * block  # lhs along b, rhs along a
    assert gathered.memory_analysis().temp_size_in_bytes >= gathered_bytes
    assert summa.memory_analysis().temp_size_in_bytes <= 2 * gathered_bytes // panels + 2 * block


@pytest.mark.parametrize(
    ("in_specs", "out_spec", "collective"),
    [
        ([(None, "a"), ("a",)], ("a",), "reduce-scatter"),
        ([(None, "a"), ("a",)], (), "all-reduce"),
        ([("b", "a"), ("a",)], (("b", "a"),), "reduce-scatter"),
    ],
)
def test_the_plan_names_the_collective_that_completes_the_partial_sums(run, in_specs, out_spec, collective):
    lhs = rhs = ArrayType((16, 16), F32)
    how = {"mesh": {"a": 4, "b": 2}, "in_specs": in_specs, "out_specs": [out_spec]}
    reason = run.resolve(MATMUL, lhs, rhs, **how).reason
    assert reason == f"an axis that is summed over is sharded over 'a', and {collective} completes the partial sums"
    text = run.program(MATMUL, lhs, rhs, **how).text
    assert [operation for operation in COLLECTIVES if f" {operation}(" in text] == [collective]


@pytest.mark.parametrize(
    ("strategy", "requested", "filled"),
    [
        ("psum", [], [((), ("a", "b")), (("a", "b"), ())]),
        ("summa", [], [(("a",), ("b",)), (("a",), ("b",))]),
        ("auto", [], [(("a",), ()), ((), ("b",))]),
        ("auto", [("b",)], [(("b",), ()), ((), ("a",))]),
        ("auto", [("a", "b")], [(("a",), ("b",)), (("b",), ())]),
        ("auto", [None, ("b",)], [(("a",), ("b",)), (("b",), ())]),
    ],
)
def test_specs_that_are_unset_meet_those_that_are_set(run, strategy, requested, filled):
    lhs = rhs = ArrayType((16, 16), F32)
    how = {"mesh": {"a": 4, "b": 2}, "in_specs": requested, "strategy": strategy}
    assert run.resolve(MATMUL, lhs, rhs, **how).problem.in_specs == tuple(filled)


def test_one_device_gathers_nothing(run):
    operands = ArrayType((160, 128), F32), ArrayType((128, 24), F32)
    for mesh, specs, out_spec in (
        ({"x": 1}, [("x",), ()], ()),
        ({"x": 1}, [(), ()], ()),
        ({"x": 8, "y": 1}, [("x",), ()], ("x",)),
        ({"x": 8, "y": 1}, [(("x", "y"),), ()], ("x",)),
    ):
        how = {"mesh": mesh, "in_specs": specs, "out_specs": [out_spec], "strategy": "gspmd"}
        assert " all-gather(" not in run.program(MATMUL, *operands, **how).compiled.as_text()


def test_distributed_work_has_minimal_padding(run):
    lhs, rhs = ArrayType((9, 128), F32), ArrayType((128, 64), F32)
    how = {"mesh": {"x": 8}, "in_specs": [(), ()], "out_specs": [()], "strategy": "gspmd"}
    assert "f32[9,8]" in run.program(MATMUL, lhs, rhs, **how).text


def test_work_is_distributed_where_nothing_is_sharded(run, values, same):
    lhs, rhs = values.small((160, 128), np.dtype(np.float32)), values.small((128, 24), np.dtype(np.float32))
    how = {"mesh": {"x": 4, "y": 2}, "in_specs": [(), ()], "out_specs": [()], "strategy": "gspmd"}
    same(run(MATMUL, lhs, rhs, **how), lhs @ rhs)
    text = run.program(MATMUL, lhs, rhs, **how).text
    assert "f32[20,24]" in text  # a device's share of the rows
    assert "all-gather" in text
    few = [a[tuple(slice(8) for _ in a.shape)] for a in (lhs, rhs)]
    assert "all-gather" not in run.program(MATMUL, *few, **how).text
