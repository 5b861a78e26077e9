"""Methods of clients beside NumPy's functions: their results, layouts, plans and refusals."""

import ml_dtypes
import numpy as np
import pytest

import shardcall as sc
from shardcall import P

MESH = sc.Mesh(a=4, b=2)
SHARDED = {"mesh": MESH, "spec": P("a", "b")}
GRID = np.arange(54.0).reshape(9, 6)


def integers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(float)


def test_elementwise_calls_have_numpys_signatures(client):
    x = np.linspace(-3, 3, 61 * 3, dtype=np.float32).reshape(61, 3)
    np.testing.assert_allclose(client.sin(x, **SHARDED).array, np.sin(x), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(client.where(x > 0, x, 0, **SHARDED).array, np.where(x > 0, x, 0))
    np.testing.assert_array_equal(client.clip(x, -1, max=1, **SHARDED).array, np.clip(x, -1, 1))
    held = client.put(x, mesh=MESH, spec=P("b", None))
    np.testing.assert_array_equal(client.call("add", held, x[0]).array, x + x[0])
    np.testing.assert_array_equal(client.argmax(held, axis=0).array, np.argmax(x, 0))
    assert client.mean(held, axis=1, dtype="float64").array.dtype == np.float64
    moved = client.reshard(held, out_spec=P(None, ("a", "b")), keep=True).array
    assert moved.spec == P(None, ("a", "b"))
    np.testing.assert_array_equal(client.transpose(moved).array, x.T)


def test_a_padded_move_keeps_the_smallest_numbers(client):
    x = np.array([1, 0x8001, 0x7F, 0x3F80, 2], np.uint16).view(ml_dtypes.bfloat16)  # subnormals, but one
    for strategy in ("auto", "gspmd"):
        moved = client.reshard(x, mesh=sc.Mesh(x=3), spec=P(None), out_spec=P("x"), strategy=strategy).array
        np.testing.assert_array_equal(moved.view(np.uint16), x.view(np.uint16))


def test_python_numbers_take_the_arrays_type(client):
    small, half = np.array([1, 2, 200], np.uint8), np.ones(3, np.float32)
    for result, expected in [
        (client.add(half, 1.5), np.add(half, 1.5)),
        (client.multiply(3, half), np.multiply(3, half)),
        (client.add(small, 1), np.add(small, 1)),
        (client.less(small, 300), np.less(small, 300)),
        (client.where(small > 1, half, 0), np.where(small > 1, half, 0)),
    ]:
        np.testing.assert_array_equal(result.array, expected, strict=True)
    with pytest.raises(sc.InvalidOperandError, match="300 beside an array of uint8"):
        client.add(small, 300)
    with pytest.raises(sc.OperandTypeError, match=r"numpy\.subtract does not take bool"):
        client.subtract(small > 1, small > 2)


def test_a_copy_is_independent_of_its_source(client):
    held = client.put(GRID, mesh=MESH)
    copy = client.copy(held, keep=True).array
    client.delete(held)
    np.testing.assert_array_equal(np.asarray(copy), GRID)


def test_running_sums_and_convolutions_are_numpys_and_operands(client):
    x, v, mesh = np.arange(27, dtype=np.int32).reshape(9, 3), np.array([1, 2, 3]), sc.Mesh(x=8)
    np.testing.assert_array_equal(client.cumsum(x, mesh=mesh).array, np.cumsum(x), strict=True)
    rows = client.cumsum(x, axis=0, dtype=np.int8, mesh=mesh, spec=P("x", None))
    np.testing.assert_array_equal(rows.array, np.cumsum(x, 0, np.int8), strict=True)
    smooth = client.convolve(x[:, 0], v, "same", mesh=mesh, spec=P("x"))
    np.testing.assert_array_equal(smooth.array, np.convolve(x[:, 0], v, "same"), strict=True)
    sums = client.cumsum(x.astype(int), mesh=mesh, keep=True).array
    np.testing.assert_array_equal(client.diff(sums, prepend=0).array, x.ravel())


def test_rolls_beyond_64_bits_go_round(client):
    x = GRID
    for shift, axis in ((2**100, None), (-(2**63) - 1, 1), (np.uint64(2**63 + 2), -2)):
        np.testing.assert_array_equal(client.roll(x, shift, axis, **SHARDED).array, np.roll(x, shift, axis))
    for shift in ((2**70, 3), [-(10**30), np.int8(-1)]):
        np.testing.assert_array_equal(client.roll(x, shift, (0, 1), **SHARDED).array, np.roll(x, shift, (0, 1)))
    with pytest.raises(sc.AxisError, match="axis=5"):
        client.roll(x, 2**70, 5)
    with pytest.raises(sc.InvalidParameterError, match="shift"):
        client.roll(x, "3")


def test_one_axis_of_a_list_is_an_axis(client):
    np.testing.assert_allclose(client.gradient(GRID**2, axis=[0], **SHARDED).array, np.gradient(GRID**2, axis=0))


@pytest.mark.parametrize("dtype", ["datetime64[ns]", "timedelta64[s]"])
def test_dates_say_how_they_can_travel(client, dtype):
    x = np.arange(8).astype(dtype)
    with pytest.raises(sc.OperandTypeError, match=r"give its integers, \.view\('int64'\)"):
        client.diff(x)
    differences = client.diff(x.view("int64")).array
    np.testing.assert_array_equal(differences.view(dtype.replace("datetime", "timedelta")), np.diff(x))


def test_arrays_are_joined_and_taken_from(client):
    joined = client.concatenate([GRID, GRID[:2]], mesh=MESH)
    np.testing.assert_array_equal(joined.array, np.concatenate([GRID, GRID[:2]]))
    stacked = client.stack([GRID, GRID], axis=-1, mesh=MESH)
    np.testing.assert_array_equal(stacked.array, np.stack([GRID, GRID], axis=-1))
    with pytest.raises(sc.InvalidOperandError, match=r"arrays\[1\] is of shape \(6, 9\)"):
        client.concatenate([GRID, GRID.T], mesh=MESH)
    with pytest.raises(sc.InvalidOperandError, match="give indices from -9 to 8"):
        client.take(GRID, [9], axis=0, mesh=MESH)


def test_stacks_of_matrices_are_multiplied_transposed(client):
    lhs, rhs = integers(0, 3, 11, 13), integers(1, 5, 13)
    result = client.matmul(lhs, rhs, transpose_rhs=True, mesh=MESH, lhs_spec=P(None, "a", "b"), rhs_spec=P(None, "b"))
    np.testing.assert_array_equal(result.array, lhs @ rhs.T)
    assert {collective.opcode for collective in result.plan.collectives} == {"reduce-scatter"}
    assert "reduce-scatter completes the partial sums" in result.plan.strategy_reason


def test_narrow_factors_may_give_a_wide_product(client):
    lhs = integers(4, 8, 300).astype(ml_dtypes.bfloat16)
    result = client.matmul(lhs, lhs, transpose_rhs=True, preferred_element_type=np.float32, mesh=MESH).array
    np.testing.assert_array_equal(result, lhs.astype(np.float32) @ lhs.T.astype(np.float32), strict=True)


def test_einsum_of_one_and_of_two_arrays(client):
    lhs, rhs = integers(5, 9, 7), integers(6, 7, 9)
    np.testing.assert_array_equal(client.einsum("ij,ji", lhs, rhs, mesh=MESH).array, np.einsum("ij,ji", lhs, rhs))
    np.testing.assert_array_equal(client.einsum("ij->j", lhs, mesh=MESH).array, lhs.sum(0))
    with pytest.raises(sc.InvalidParameterError, match="has 2 terms and 1 operand came"):
        client.einsum("ij,jk", np.ones((2, 2)))


def test_a_refused_product_names_the_shapes_of_the_views(client):
    on_mesh = client.put(integers(12, 6, 4))
    with pytest.raises(ValueError, match=r"float64\[4,6\]|\(4, 6\)|4, 6"):
        on_mesh.T @ np.ones(4)
