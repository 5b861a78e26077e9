"""The tests of `test_matmul_layouts.py` that take long."""

import itertools
import re

import ml_dtypes
import numpy as np
import pytest
from kernels.test_matmul_layouts import MATMUL, MESHES, STACKS, integers, serving
from pairs import pairs_of

from shardcall_core.layouts.layout import ArrayType

pytestmark = pytest.mark.long


def long_types(*names):
    return [pytest.param(name, marks=pytest.mark.long) for name in names]


@pytest.mark.parametrize(("left", "right"), STACKS)
@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_stacks_of_every_sharding(run, values, same, mesh, left, right):
    lhs, rhs = integers(values, left), integers(values, right)
    for of_lhs, of_rhs in itertools.product(range(len(left)), range(len(right))):
        for names in (("a", "b"), ("a", "a")):
            in_specs = [
                tuple(name if i == axis else None for i in range(len(shape)))
                for shape, axis, name in zip((left, right), (of_lhs, of_rhs), names, strict=True)
            ]
            how = {"mesh": mesh, "in_specs": in_specs}
            for strategy in ["gspmd", *serving(run, lhs, rhs, **how)]:
                same(run(MATMUL, lhs, rhs, padding=np.nan, strategy=strategy, **how), np.matmul(lhs, rhs) + 0.0)
    run.programs.clear()


@pytest.mark.parametrize("strategy", ["gspmd", "psum", "psum_scatter", "all_gather", "summa"])
@pytest.mark.parametrize(("transpose_lhs", "transpose_rhs"), [(True, False), (True, True)])
def test_transposes(run, values, same, strategy, transpose_lhs, transpose_rhs):
    lhs, rhs = integers(values, (3, 11, 13)), integers(values, (13, 5))
    product = np.matmul(lhs, rhs) + 0.0
    contracting = "a" if strategy in ("all_gather", "summa") else "b"
    left, right = (None, "a", "b"), (contracting, "b" if contracting == "a" else None)
    lhs, left = (lhs.mT.copy(), (None, "b", "a")) if transpose_lhs else (lhs, left)
    rhs, right = (rhs.mT.copy(), right[::-1]) if transpose_rhs else (rhs, right)
    how = {"mesh": {"a": 4, "b": 2}, "in_specs": [left, right], "strategy": strategy}
    if strategy == "psum_scatter":
        how["out_specs"] = [("b", "a", None)]
    transposes = {"transpose_lhs": transpose_lhs, "transpose_rhs": transpose_rhs}
    same(run(MATMUL, lhs, rhs, padding=np.nan, **how, **transposes), product)


@pytest.mark.parametrize(
    ("name", "strategy"),
    pairs_of(["bool", "int4", "uint16", "bfloat16", "float8_e5m2", "complex64"], ["all_gather", "summa", "reshard"]),
)
def test_blocks_of_these_element_types_are_brought(run, values, same, name, strategy):
    of_every_type(run, values, same, np.dtype(getattr(ml_dtypes, name, name)), strategy)


@pytest.mark.parametrize("strategy", ["all_gather", "summa", "reshard"])
def test_blocks_of_every_element_type_are_brought(run, values, same, dtype, strategy):
    of_every_type(run, values, same, dtype, strategy)


def of_every_type(run, values, same, dtype, strategy):
    lhs, rhs = values.small((9, 11), dtype), values.small((11, 6), dtype)
    how = {"mesh": {"a": 4, "b": 2}, "in_specs": [("a", "b"), ("a", "b")], "strategy": strategy}
    wide = bool if dtype == np.bool_ else np.complex128 if dtype.kind == "c" else np.int64
    same(run(MATMUL, lhs, rhs, **how), (lhs.astype(wide) @ rhs.astype(wide)).astype(dtype))


@pytest.mark.parametrize("dtype_name", ["int4", "bfloat16", *long_types("bool", "float8_e4m3fn", "float32")])
@pytest.mark.parametrize(
    ("layout", "size"),
    pairs_of(
        [
            (((), (None, ("a", "b"))), (None, None)),
            ((("a",), (None, "b")), (None, None)),
            ((("a",), (None, "b")), ("a", None)),
            ((("a",), ()), (None, None)),
        ],
        [(16, 8, 24), (11, 13, 5)],
    ),
)
def test_a_product_in_smaller_blocks_is_gathered_by_hand(run, values, same, element_types, size, layout, dtype_name):
    specs, out_spec = layout
    dtype = next(element_type for element_type in element_types if element_type.name == dtype_name)
    lhs, rhs = values.small(size[:2], dtype), values.small(size[1:], dtype)
    how = {"mesh": {"a": 4, "b": 2}, "in_specs": specs, "out_specs": [out_spec], "strategy": "gspmd"}
    same(run(MATMUL, lhs, rhs, **how), run(MATMUL, lhs, rhs, mesh={"x": 1}))
    text = run.program(MATMUL, *(ArrayType(factor.shape, dtype) for factor in (lhs, rhs)), **how).compiled.as_text()
    gathers = [line for line in text.splitlines() if " all-gather(" in line]
    assert gathers
    assert all("dimensions={0}" in line for line in gathers)


@pytest.mark.parametrize(
    ("specs", "out_spec", "rows"),
    [
        (((), ()), ("a", None), 20),
        ((("a",), ()), (None, "a"), 20),
        (((None, "a"), ()), (), 80),
        (((), (None, "a")), ("a",), 20),
    ],
)
@pytest.mark.parametrize("dtype_name", ["int4", *long_types("bool", "float32")])
@pytest.mark.parametrize("cut", [0, 1])
def test_work_is_distributed_along_mesh_axes_that_shard_nothing(
    run, values, same, element_types, specs, out_spec, rows, dtype_name, cut
):
    dtype = next(element_type for element_type in element_types if element_type.name == dtype_name)
    lhs, rhs = values.small((160 - cut, 128), dtype), values.small((128, 24), dtype)
    how = {"mesh": {"a": 4, "b": 2}, "in_specs": specs, "out_specs": [out_spec], "strategy": "gspmd"}
    same(run(MATMUL, lhs, rhs, **how), run(MATMUL, lhs, rhs, mesh={"x": 1}))
    if not cut:
        dots = re.findall(r"\[(\d+),(\d+)\]\S* dot\(", run.program(MATMUL, lhs, rhs, **how).compiled.as_text())
        assert [int(m) * int(n) for m, n in dots] == [rows * 24]
