"""The tests of `test_einsum.py` that take long."""

import numpy as np
import pytest
from kernels.test_einsum import EINSUM, MESH, MESHES, OF_TYPES, TABLE, arrays, check_table, expected, of_type

from shardcall_core.call_error import CallError, Reason

pytestmark = pytest.mark.long


def layouts_of_one_axis(shapes, names):
    """Specs that shard one axis of each array, in every combination."""
    if not shapes:
        return [[]]
    first = [tuple(names[0] if i == axis else None for i in range(len(shapes[0]))) for axis in range(len(shapes[0]))]
    return [[spec, *others] for spec in [(), *first] for others in layouts_of_one_axis(shapes[1:], names[1:])]


@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_the_documented_cases_are_numpys_on_every_mesh(run, values, mesh):
    check_table(run, values, mesh)


@pytest.mark.parametrize(("subscripts", "shapes"), TABLE, ids=[f"{row[0]}-{i}" for i, row in enumerate(TABLE)])
def test_every_strategy_that_serves_a_layout_is_numpys(run, values, subscripts, shapes):
    operands, cases = arrays(values, shapes), []
    for in_specs in (*layouts_of_one_axis(shapes, "ab"), *layouts_of_one_axis(shapes, "aa")):
        for strategy in EINSUM.strategies:
            how = {"mesh": MESH, "in_specs": in_specs, "strategy": strategy.name, "subscripts": subscripts}
            try:
                run.resolve(EINSUM, *operands, **how)
            except CallError as refused:
                assert (refused.reason, strategy.name != "gspmd") == (Reason.STRATEGY_UNSUPPORTED, True)  # noqa: PT017
                continue
            cases.append((run.call(EINSUM, *operands, **how), expected(subscripts, operands)))
    run.check_together(cases, padding=np.nan)


@pytest.mark.parametrize(
    ("subscripts", "shapes", "in_specs", "strategy", "collective"),
    [
        ("ij,jk->ik", [(11, 13), (13, 5)], [(None, "a"), ("a",)], "psum", "all-reduce"),
        ("ij,jk->ki", [(11, 13), (13, 5)], [(None, "a"), ("a",)], "psum_scatter", "reduce-scatter"),
        ("ij,ij->", [(11, 13), (11, 13)], [("a", "b"), ("a", "b")], "psum", "all-reduce"),
        ("ij->j", [(11, 13)], [("a",)], "psum", "all-reduce"),
        ("ij,k->k", [(11, 13), (5,)], [("a", "b"), ()], "psum", "all-reduce"),
        ("bij,bjk->bik", [(9, 11, 13), (9, 13, 5)], [("a", None, "b"), ("a", "b")], "psum", "all-reduce"),
        ("ij,jk->ik", [(11, 13), (13, 5)], [("a", "b"), ("a", "b")], "all_gather", "all-gather"),
        ("ij,ij->ij", [(11, 13), (11, 13)], [("a", "b"), ("b", "a")], "all_gather", "all-gather"),
        ("ij,jk->ik", [(11, 13), (13, 5)], [("a",), ("a",)], "reshard", "all-gather"),
        ("ij,jk->ki", [(3, 13), (13, 25)], [("a",), ("a",)], "reshard", "reduce-scatter"),
        ("bij,bjk->bik", [(9, 3, 13), (9, 13, 25)], [("a",), (None, "a")], "reshard", "all-to-all"),
        ("iij,jk->ik", [(3, 3, 13), (13, 5)], [("a", None, "b"), ("a", "b")], "reshard", "reduce-scatter"),
    ],
)
def test_explicit_strategies(run, values, same, subscripts, shapes, in_specs, strategy, collective):
    operands = arrays(values, shapes)
    how = {"mesh": MESH, "in_specs": in_specs, "strategy": strategy, "subscripts": subscripts}
    same(run(EINSUM, *operands, padding=np.nan, **how), expected(subscripts, operands))
    assert f" {collective}(" in run.program(EINSUM, *operands, **how).text


def test_every_element_type(run, values, dtype):
    run.check_together(of_type(run, values, dtype, *case) for case in OF_TYPES)
