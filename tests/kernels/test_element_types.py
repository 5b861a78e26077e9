"""Results of every element type are NumPy's: every bit of what is moved, arithmetic rounding for rounding."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from kernels.conftest import assert_same_bits
from kernels.type_cases import computing_calls, moving_calls

from shardcall_server.kernels.core.element_types import as_bits, convert, from_bits, held_type, narrow, subtract, widen

FLOAT8 = [np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)]


def every_value(dtype):
    return np.arange(256, dtype=np.uint8).view(dtype)


@pytest.mark.parametrize("small", FLOAT8, ids=str)
def test_float8_differences_are_numpys_for_every_pair_of_values(small, same):
    lhs, rhs = (a.ravel() for a in np.meshgrid(every_value(small), every_value(small)))
    with np.errstate(invalid="ignore", over="ignore"):
        expected = lhs - rhs

    @jax.jit
    def difference(a, b):
        wide = widen(a, small), widen(b, small)
        return narrow(subtract(*wide, small), small)

    same(np.asarray(difference(lhs, rhs)), expected)


@pytest.mark.parametrize("small", [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)], ids=str)
def test_both_subtractions_are_rounded(small, values, same):
    a, b, c = (values.any((200_000,), small) for _ in range(3))
    with np.errstate(invalid="ignore", over="ignore"):
        expected = (a - b) - c

    @jax.jit
    def difference(*operands):
        a, b, c = (widen(o, small) for o in operands)
        return narrow(subtract(subtract(a, b, small), c, small), small)

    same(np.asarray(difference(a, b, c)), expected)


@pytest.mark.parametrize(
    ("small", "held"), [(np.dtype(ml_dtypes.int4), np.int8), (np.dtype(ml_dtypes.uint4), np.uint8)], ids=str
)
def test_four_bit_integers_wrap(small, held, same):
    values = np.arange(256).astype(np.uint8).view(held)
    same(np.asarray(jax.jit(lambda a: narrow(a, small).astype(held))(values)), values.astype(small).astype(held))


def test_bits_of_float8_come_back(dtype, values):
    array = values.any((64,), dtype)
    if dtype.name in ("int4", "uint4"):
        array = array.astype(held_type(dtype))
    assert np.asarray(from_bits(as_bits(jnp.asarray(array)), array.dtype)).tobytes() == array.tobytes()


def test_integers_convert_to_float8_as_numpy_does(same):
    @partial(jax.jit, static_argnums=1)
    def converted(integers, small):
        return convert(integers, small)

    for source, small in itertools.product(["uint8", "int8", "bool"], FLOAT8):
        integers = np.arange(2 if source == "bool" else 256).astype(np.uint8).view(source)
        same(np.asarray(converted(integers, small)), integers.astype(small))


@pytest.mark.parametrize("devices", [3])
def test_every_bit_is_moved(run, values, dtype, devices):
    run.check_together(moving_calls(run, values, dtype, {"x": devices}), partial(assert_same_bits, any_nan=devices > 1))


def test_what_is_computed_of_small_numbers_is_exact(run, values, dtype):
    run.check_together(computing_calls(run, values, dtype))
