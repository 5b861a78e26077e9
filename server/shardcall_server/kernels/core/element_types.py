"""Promotion of element types, and the types in which arithmetic is done.

A narrow type is computed in a wider *working* type and brought back: float16, bfloat16 and the float8 types
in float32, int4 and uint4 in int8 and uint8. XLA may drop the roundings between two operations on a narrow
type (``xla_allow_excess_precision``), NumPy never does; so every rounding that counts is made explicitly.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from shardcall_server.kernels.core.differentiation import is_differentiated

_INT4, _UINT4 = np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.uint4)
_NARROW_FLOATS = frozenset(
    np.dtype(t) for t in (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
)
_WORKING_TYPE = {_INT4: np.dtype(np.int8), _UINT4: np.dtype(np.uint8)} | {
    narrow: np.dtype(np.float32) for narrow in _NARROW_FLOATS
}


def held_type(dtype: np.dtype) -> np.dtype:
    """Returns the type that an array has on the devices: int8 and uint8 for the four-bit types, else its own.

    A byte per value, as on the wire. A program compiled ahead of time cannot take arrays of the four-bit types
    themselves: jax 0.10.1 compares the layout it compiled for (4 bits an element) with the one that arrays
    report (0, "as the type has it") and refuses.
    """
    return _WORKING_TYPE[dtype] if dtype in (_INT4, _UINT4) else dtype


def is_narrow_float(dtype: np.dtype) -> bool:
    """Returns True if arithmetic on a type is done in float32."""
    return dtype in _NARROW_FLOATS


def working_type(dtype: np.dtype) -> np.dtype:
    """Returns the type in which arithmetic on a type is done."""
    return _WORKING_TYPE.get(dtype, dtype)


def widen(array: jax.Array, dtype: np.dtype) -> jax.Array:
    """Returns the array as ``dtype`` has it, in the working type of ``dtype``.

    The set bits of a bool are counted: XLA turns a product with a converted bool into a select, in which False times
    NaN is 0.
    """
    if array.dtype == np.bool_ and dtype != np.bool_:
        array = lax.population_count(array.astype(np.uint8))
    if dtype == np.float16 and array.dtype == np.float64:
        # NumPy rounds once; ml_dtypes converts to its own types through float32.
        array = lax.reduce_precision(array, exponent_bits=11, mantissa_bits=10)
    wide = array.astype(working_type(dtype))
    return round_to(wide, dtype) if is_narrow_float(dtype) and array.dtype != dtype else wide


def narrow(array: jax.Array, dtype: np.dtype) -> jax.Array:
    """Converts an array of working type to ``dtype``: integers wrap, floats are rounded once."""
    if dtype == _INT4:
        array = lax.shift_right_arithmetic(lax.shift_left(array, np.int8(4)), np.int8(4))
    elif dtype == _UINT4:
        array = array & np.uint8(15)
    return array.astype(dtype)


def convert(array: jax.Array, dtype: np.dtype) -> jax.Array:
    """Returns the array as ``dtype`` has it."""
    return array if array.dtype == dtype else narrow(widen(array, dtype), dtype)


def as_bits(array: jax.Array) -> jax.Array:
    """Returns a float8 array as uint8, any other unchanged: XLA:CPU converts float8 to float16 and back to move it."""
    bits = array.dtype in _NARROW_FLOATS and array.dtype.itemsize == 1 and not is_differentiated()
    return lax.bitcast_convert_type(array, np.uint8) if bits else array


def from_bits(array: jax.Array, dtype: np.dtype) -> jax.Array:
    """Reverses `as_bits`."""
    return array if array.dtype == dtype else lax.bitcast_convert_type(array, dtype)


def subtract(lhs: jax.Array, rhs: jax.Array, dtype: np.dtype) -> jax.Array:
    """Returns ``lhs - rhs`` in the working type, rounded as ``dtype`` rounds; ``lhs != rhs`` for bool, as `np.diff`."""
    if dtype == np.bool_:
        return lhs != rhs
    difference = lhs - rhs
    return round_to(difference, dtype) if is_narrow_float(dtype) else difference


def round_to(array: jax.Array, dtype: np.dtype) -> jax.Array:
    """Rounds float32 to the values of a narrow float, ties to even, as ml_dtypes and NumPy do.

    Exact for integers and for sums and differences of two values of ``dtype``: those are multiples of its
    smallest subnormal, so below its normal range there is nothing to round, and the exponent can keep
    float32's eight bits (`lax.reduce_precision` would flush the subnormals of a narrower one). What remains
    is the overflow, to infinity or, where a type has none, to NaN.
    """
    info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    rounded = lax.reduce_precision(array, exponent_bits=8, mantissa_bits=info.nmant)
    if info.nexp == 8:
        return rounded
    overflow = jnp.nan if dtype.name.endswith("fn") else lax.sign(rounded) * jnp.inf
    return jnp.where(jnp.abs(rounded) > np.float32(info.max), overflow, rounded)
