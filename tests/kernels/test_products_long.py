"""The tests of `test_products.py` that take long."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernels.test_products import BY_COLUMNS, BY_ROWS, COLLECTIVE, MATMUL, MESHES, SIZES, assert_near, exact
from pairs import pairs_of

from shardcall_server.kernels.products import rings

pytestmark = pytest.mark.long


@pytest.mark.parametrize("layout", [(None, None), (((None, "x"), ("x", None)))])
def test_matmul_of_every_element_type(run, values, same, dtype, layout):
    lhs, rhs = values.small((9, 11), dtype), values.small((11, 6), dtype)
    result = run(MATMUL, lhs, rhs, mesh={"x": 8}, in_specs=layout)
    same(result, exact(lhs, rhs, dtype))


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("strategy", ["gspmd", "psum", "psum_scatter"])
def test_matmul_of_every_element_type_by_every_strategy(run, values, same, dtype, mesh, strategy):
    lhs, rhs = values.small((9, 11), dtype), values.small((11, 6), dtype)
    how = {"mesh": mesh, "in_specs": [(None, "x"), ("x", None)], "strategy": strategy}
    same(run(MATMUL, lhs, rhs, **how), exact(lhs, rhs, dtype))


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float64"])
def test_narrow_products_are_summed_up_in_float32(run, values, name):
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    lhs, rhs = values.normal((8, 300), dtype) / dtype.type(8), values.normal((300, 4), dtype) / dtype.type(8)
    how = {"mesh": {"x": 8}, "in_specs": [(None, "x"), ("x", None)]}
    assert_near(run(MATMUL, lhs, rhs, **how), lhs, rhs)


@pytest.mark.parametrize(
    ("sizes", "strategy"),
    pairs_of([(0, 5, 3), (5, 0, 3), (5, 3, 0), (1, 1, 1), (0, 0, 0)], ["gspmd", "psum", "psum_scatter"]),
)
def test_empty_and_tiny_products(run, values, sizes, strategy):
    m, k, n = sizes
    lhs, rhs = values.normal((m, k)), values.normal((k, n))
    how = {"mesh": {"x": 8}, "in_specs": [(None, "x"), ("x", None)]}
    assert_near(run(MATMUL, lhs, rhs, strategy=strategy, **how), lhs, rhs)
    axis_name = {"mesh": {"x": 8}, "axis_name": "x"}
    for other in BY_ROWS + BY_COLUMNS if strategy == "gspmd" else ():
        assert_near(run(COLLECTIVE, lhs, rhs, strategy=other, **axis_name), lhs, rhs)


@pytest.mark.parametrize(("mesh", "strategy"), pairs_of(MESHES, BY_ROWS + BY_COLUMNS), ids=str)
@pytest.mark.parametrize("size", [pytest.param(SIZES[0], marks=pytest.mark.long), *SIZES[1:]])
def test_collective_matmul_on_every_mesh(run, values, size, mesh, strategy):
    m, k, n = size
    lhs, rhs = values.normal((m, k)), values.normal((k, n))
    result = run(COLLECTIVE, lhs, rhs, padding=np.nan, mesh=mesh, axis_name="x", strategy=strategy)
    assert_near(result, lhs, rhs)


@pytest.mark.parametrize(("block", "strategy"), pairs_of([1, 3, 5, 7], BY_ROWS + BY_COLUMNS))
def test_odd_blocks(run, values, block, strategy):
    lhs, rhs = values.normal((4 * block, 8)), values.normal((8, 3))
    result = run(COLLECTIVE, lhs, rhs, mesh={"x": 4}, axis_name="x", strategy=strategy)
    assert_near(result, lhs, rhs)


@pytest.mark.parametrize("strategy", BY_ROWS + BY_COLUMNS)
def test_long_rings_are_a_loop(run, values, monkeypatch, strategy):
    monkeypatch.setattr(rings, "MAX_UNROLLED", 1)
    lhs, rhs = values.normal((27, 21)), values.normal((21, 2))
    how = {"mesh": {"x": 7}, "axis_name": "x", "strategy": strategy}
    assert_near(run(COLLECTIVE, lhs, rhs, **how), lhs, rhs)
    if "ring" in strategy:
        assert " while(" in run.program(COLLECTIVE, lhs, rhs, **how).compiled.as_text()


def test_collective_matmul_of_every_element_type(run, values, same, dtype):
    """The ring that accumulates sums; the rings that pass operands on are in the complete table."""
    lhs, rhs = values.small((9, 11), dtype), values.small((11, 6), dtype)
    result = run(COLLECTIVE, lhs, rhs, mesh={"x": 3}, axis_name="x", strategy="psum_scatter_ring")
    same(result, exact(lhs, rhs, dtype))


@pytest.mark.parametrize("strategy", BY_ROWS + BY_COLUMNS)
@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_collective_matmul_of_every_element_type_on_every_mesh(run, values, same, dtype, mesh, strategy):
    lhs, rhs = values.small((9, 11), dtype), values.small((11, 6), dtype)
    result = run(COLLECTIVE, lhs, rhs, mesh=mesh, axis_name="x", strategy=strategy)
    same(result, exact(lhs, rhs, dtype))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_product_does_not_depend_on_the_mesh(run, same, data):
    run.programs.clear()
    mesh = data.draw(st.sampled_from(MESHES))
    m, k, n = (data.draw(st.integers(0, 20)) for _ in range(3))
    random = np.random.default_rng(0)
    lhs, rhs = random.integers(-9, 9, (m, k)).astype(float), random.integers(-9, 9, (k, n)).astype(float)
    specs = st.none() | st.permutations([*mesh]).flatmap(
        lambda names: st.integers(0, len(names)).map(lambda cut: (tuple(names[:cut]), tuple(names[cut:])))
    )
    how = {"mesh": mesh, "in_specs": [data.draw(specs), data.draw(specs)], "out_specs": [data.draw(specs)]}
    same(run(MATMUL, lhs, rhs, padding=np.nan, **how), lhs @ rhs)


@pytest.mark.parametrize(("m", "k", "n"), [(8, 4099, 5), (1, 13, 4097), (3, 0, 4), (0, 9, 7)])
@pytest.mark.parametrize("in_specs", [[("x",), ("x",)], [("x",), (None, "x")], [(), ("x",)], [("x", "y"), ("x", "y")]])
def test_operands_that_are_sharded_unlike_are_moved(run, values, same, m, k, n, in_specs):
    lhs, rhs = values.small((m, k), np.dtype(np.float64)), values.small((k, n), np.dtype(np.float64))
    how = {"mesh": {"x": 4, "y": 2}, "in_specs": in_specs}
    chosen = run.resolve(MATMUL, lhs, rhs, **how).strategy.name
    for strategy in sorted({"reshard", chosen}):
        same(run(MATMUL, lhs, rhs, padding=np.nan, strategy=strategy, **how), lhs @ rhs + 0.0)
