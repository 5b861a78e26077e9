"""Products in every layout, of every element type and of any size, by every strategy."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernels.test_products import (
    AB,
    BY_COLUMNS,
    BY_ROWS,
    COLLECTIVE,
    F32,
    F64,
    GATHER_STRATEGIES,
    GATHERED,
    LAYOUTS,
    MATMUL,
    MESHES,
    SCATTER_STRATEGIES,
    SCATTERED,
    STACKS,
    UNSHARDED,
    XY,
    assert_near,
    check_layouts,
    collective,
    collective_cases,
    exact,
    near,
    of_every_strategy,
)

from shardcall_core.element_types import NAMED
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.products import rings

pytestmark = pytest.mark.long

PARTS = 40
ALL_MESHES = [{"x": 1}, {"x": 8}, XY, {"x": 2, "y": 4}, {"x": 2, "y": 2, "z": 2}]


@pytest.mark.parametrize("part", range(PARTS))
def test_every_strategy_that_serves_any_layout_is_right(run, values, part):
    check_layouts(run, values, LAYOUTS[part::PARTS])


@pytest.mark.parametrize(("left", "right"), STACKS)
@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_stacks_of_every_sharding(run, values, mesh, left, right):
    lhs, rhs = values.small(left, F64), values.small(right, F64)
    cases = []
    for axes in itertools.product(range(len(left)), range(len(right))):
        for names in (("a", "b"), ("a", "a")):
            in_specs = [
                tuple(name if i == axis else None for i in range(len(shape)))
                for shape, axis, name in zip((left, right), axes, names, strict=True)
            ]
            cases += of_every_strategy(run, lhs, rhs, mesh=mesh, in_specs=in_specs)
    run.check_together(cases, padding=np.nan)


@pytest.mark.parametrize(("transpose_lhs", "transpose_rhs"), [(True, False), (True, True)])
def test_transposes(run, values, transpose_lhs, transpose_rhs):
    cases = []
    for strategy in ("gspmd", "psum", "psum_scatter", "all_gather", "summa"):
        lhs, rhs = values.small((3, 11, 13), F64), values.small((13, 5), F64)
        product = np.matmul(lhs, rhs) + 0.0
        contracting = "a" if strategy in ("all_gather", "summa") else "b"
        left, right = (None, "a", "b"), (contracting, "b" if contracting == "a" else None)
        lhs, left = (lhs.mT.copy(), (None, "b", "a")) if transpose_lhs else (lhs, left)
        rhs, right = (rhs.mT.copy(), right[::-1]) if transpose_rhs else (rhs, right)
        how = {"mesh": AB, "in_specs": [left, right], "strategy": strategy}
        if strategy == "psum_scatter":
            how["out_specs"] = [("b", "a", None)]
        call = run.call(MATMUL, lhs, rhs, **how, transpose_lhs=transpose_lhs, transpose_rhs=transpose_rhs)
        cases.append((call, product))
    run.check_together(cases, padding=np.nan)


OTHER_AXES = [  # lhs, rhs, result
    (("x", "y"), ("y", None), UNSHARDED),
    (("x", "y"), ("y", "x"), (None, "x")),
    (("x", "y"), ("y", "x"), ("x", None)),
    (("x", None), (None, "y"), (None, "y")),
    ((("y", "x"), None), UNSHARDED, ("y", None)),
    ((("y", "x"), None), (None, "x"), ("y", "x")),
    (("y", "x"), (None, "x"), ("y", "x")),
    ((None, ("y", "x")), ("y", "x"), (None, "x")),
    (("x", None), ("x", "y"), ("x", "y")),
    (("y", None), ("x", None), ("y", None)),
    (("x", "y"), (("y", "x"), None), ("x", None)),
    (("y", None), (None, "x"), ("y", None)),
    (UNSHARDED, (None, ("y", "x")), (None, "y")),
]
OTHER_AXES_OF_SUMS = [
    (("y", "x"), ("x", None), (("y", "x"), None)),
    (("y", "x"), ("x", None), ("y", "x")),
    ((None, ("y", "x")), (("y", "x"), None), BY_ROWS),
    ((None, ("x", "y")), (("x", "y"), None), BY_COLUMNS),
    ((None, "x"), ("x", "y"), ("x", "y")),
    ((None, "x"), ("x", "y"), (None, ("y", "x"))),
]


@pytest.mark.parametrize("mesh", [{"x": 2, "y": 4}, {"y": 2, "x": 3}, {"x": 4, "y": 2}], ids=str)
def test_other_mesh_axes_may_shard_the_other_axes_of_a_collective_product(run, values, mesh):
    lhs, rhs = values.normal((13, 10), F64), values.normal((10, 11), F64)
    cases = collective_cases(OTHER_AXES, OTHER_AXES_OF_SUMS)
    calls = [near(run, COLLECTIVE, lhs, rhs, **collective(*case, mesh)) for case in cases]
    run.check_together(calls, assert_near, np.nan)


COLLECTIVE_OF_TYPES = [
    ((BY_ROWS, BY_ROWS, BY_ROWS), "bidirectional_ring", {"x": 3}),
    ((BY_COLUMNS, BY_ROWS, BY_ROWS), "psum_scatter_ring", {"x": 3}),
    (((None, ("y", "x")), ("y", "x"), (None, "x")), "ring", {"x": 2, "y": 2}),
    ((("x", "y"), ("y", "x"), (None, "x")), "all_gather", {"x": 2, "y": 2}),
    ((("x", "y"), ("y", "x"), ("x", None)), "bidirectional_ring", {"x": 2, "y": 2}),
    (((None, ("y", "x")), (("y", "x"), None), BY_COLUMNS), "psum_scatter_bidirectional_ring", {"x": 2, "y": 2}),
]


def test_products_of_every_element_type_by_every_strategy(run, values, dtype):
    lhs, rhs = values.small((9, 11), dtype), values.small((11, 6), dtype)
    hows = [
        {"mesh": {"x": 8}},
        *({"mesh": AB, "in_specs": [("a", "b")] * 2, "strategy": s} for s in ("all_gather", "summa", "reshard")),
        *(
            {"mesh": mesh, "in_specs": [BY_COLUMNS, BY_ROWS], "strategy": strategy}
            for mesh in ALL_MESHES
            for strategy in ("gspmd", "psum", "psum_scatter")
        ),
    ]
    calls = [run.call(MATMUL, lhs, rhs, **how) for how in hows]
    calls += [run.call(COLLECTIVE, lhs, rhs, **collective(*case)) for case in COLLECTIVE_OF_TYPES]
    calls += [
        run.call(COLLECTIVE, lhs, rhs, mesh=mesh, axis_name="x", strategy=strategy)
        for mesh in ALL_MESHES
        for strategy in GATHER_STRATEGIES + SCATTER_STRATEGIES
    ]
    run.check_together([(call, exact(lhs, rhs)) for call in calls])


def test_narrow_products_are_summed_up_in_float32(run, values):
    calls = []
    for name in ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float64"):
        dtype = NAMED[name]
        lhs, rhs = values.normal((8, 300), dtype) / dtype.type(8), values.normal((300, 4), dtype) / dtype.type(8)
        calls.append(near(run, MATMUL, lhs, rhs, mesh={"x": 8}, in_specs=[BY_COLUMNS, BY_ROWS]))
    run.check_together(calls, assert_near)


@pytest.mark.parametrize("name", ["int4", "bool", "bfloat16", "float8_e4m3fn", "float32"])
@pytest.mark.parametrize("size", [(16, 8, 24), (11, 13, 5)])
def test_a_product_in_smaller_blocks_is_gathered_by_hand(run, values, same, size, name):
    m, k, n = size
    lhs, rhs = values.small((m, k), NAMED[name]), values.small((k, n), NAMED[name])
    for specs, out_spec in (
        (((), (None, ("a", "b"))), (None, None)),
        ((("a",), (None, "b")), (None, None)),
        ((("a",), (None, "b")), ("a", None)),
        ((("a",), ()), (None, None)),
    ):
        how = {"mesh": AB, "in_specs": specs, "out_specs": [out_spec], "strategy": "gspmd"}
        same(run(MATMUL, lhs, rhs, **how), run(MATMUL, lhs, rhs, mesh={"x": 1}))
        text = run.program(MATMUL, *(ArrayType(a.shape, a.dtype) for a in (lhs, rhs)), **how).compiled.as_text()
        gathers = [line for line in text.splitlines() if " all-gather(" in line]
        assert gathers
        assert all("dimensions={0}" in line for line in gathers)


@pytest.mark.parametrize("name", ["int4", "bool", "float32"])
@pytest.mark.parametrize("cut", [0, 1])
def test_work_is_distributed_along_mesh_axes_that_shard_nothing(run, values, same, name, cut):
    lhs, rhs = values.small((160 - cut, 128), NAMED[name]), values.small((128, 24), NAMED[name])
    for specs, out_spec, rows in (
        (((), ()), ("a", None), 20),
        ((("a",), ()), (None, "a"), 20),
        (((None, "a"), ()), (), 80),
        (((), (None, "a")), ("a",), 20),
    ):
        how = {"mesh": AB, "in_specs": specs, "out_specs": [out_spec], "strategy": "gspmd"}
        same(run(MATMUL, lhs, rhs, **how), run(MATMUL, lhs, rhs, mesh={"x": 1}))
        if not cut:
            dots = re.findall(r"\[(\d+),(\d+)\]\S* dot\(", run.program(MATMUL, lhs, rhs, **how).compiled.as_text())
            assert [int(m) * int(n) for m, n in dots] == [rows * 24]


@pytest.mark.parametrize("strategy", [*GATHER_STRATEGIES, *SCATTER_STRATEGIES[:2]])
def test_long_rings_are_a_loop(run, values, monkeypatch, strategy):
    monkeypatch.setattr(rings, "MAX_UNROLLED", 1)
    lhs, rhs = values.normal((27, 21)), values.normal((21, 2))
    how = {"mesh": {"x": 7}, "axis_name": "x", "strategy": strategy}
    assert_near(run(COLLECTIVE, lhs, rhs, **how), (lhs, rhs))
    if "ring" in strategy:
        assert " while(" in run.program(COLLECTIVE, lhs, rhs, **how).compiled.as_text()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_product_does_not_depend_on_the_mesh(run, same, data):
    run.programs.clear()
    mesh = data.draw(st.sampled_from(ALL_MESHES))
    m, k, n = (data.draw(st.integers(0, 20)) for _ in range(3))
    random = np.random.default_rng(0)
    lhs, rhs = random.integers(-9, 9, (m, k)).astype(float), random.integers(-9, 9, (k, n)).astype(float)
    specs = st.none() | st.permutations([*mesh]).flatmap(
        lambda names: st.integers(0, len(names)).map(lambda cut: (tuple(names[:cut]), tuple(names[cut:])))
    )
    how = {"mesh": mesh, "in_specs": [data.draw(specs), data.draw(specs)], "out_specs": [data.draw(specs)]}
    same(run(MATMUL, lhs, rhs, padding=np.nan, **how), lhs @ rhs)
    how = collective(*data.draw(st.sampled_from(collective_cases(GATHERED, SCATTERED))), {"x": data.draw(DEVICES)})
    same(run(COLLECTIVE, lhs, rhs, padding=np.nan, **how), lhs @ rhs)


DEVICES = st.integers(1, 8)


@pytest.mark.parametrize(("layout", "strategy"), collective_cases(GATHERED, SCATTERED), ids=str)
def test_rings_never_hold_what_is_gathered_or_summed(run, layout, strategy):
    """Temporary memory of a device: one collective holds the complete operand, a ring at most half on 8 devices."""
    m, k, n = (512, 16, 512) if layout in SCATTERED else (512, 512, 32) if _travels_lhs(layout) else (32, 512, 512)
    full_bytes = 512 * 512 * 4
    how = collective(layout, strategy, {"x": 8})
    program = run.program(COLLECTIVE, ArrayType((m, k), F32), ArrayType((k, n), F32), **how)
    temp_bytes = program.compiled.memory_analysis().temp_size_in_bytes
    if "ring" in strategy:
        assert 0 < temp_bytes < full_bytes / 2
        assert not any(word in program.text for word in ("all-gather", "all-reduce", "all-to-all", "reduce-scatter"))
    elif layout not in (GATHERED[0], GATHERED[3]):  # of these the products are gathered
        assert temp_bytes >= full_bytes


def _travels_lhs(layout):
    lhs, _, result = layout
    return lhs == BY_COLUMNS or (lhs == BY_ROWS and result != BY_ROWS)
