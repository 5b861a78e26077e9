"""Rows of the table for functions of mathematical physics, and for the parts of floating-point numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from shardcall_core.layouts.layout import required
from shardcall_server.kernels.array_functions.elements import broadcast_axes
from shardcall_server.kernels.array_functions.row import ResultBlock, Row
from shardcall_server.kernels.core.element_types import convert, narrow, widen, working_type
from shardcall_server.kernels.core.reproducibility import Reproducibility
from shardcall_server.kernels.numerics import special
from shardcall_server.kernels.numerics.ordering import to_double


def _in_float64(
    function: Callable[[jax.Array], jax.Array],
) -> Callable[[ResultBlock, Sequence[jax.Array | None]], jax.Array]:
    def body(block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
        x = required(operands[0])
        if working_type(np.dtype(x.dtype)) == np.float32:
            wide = to_double(widen(x, np.dtype(x.dtype)))
        else:
            wide = convert(x, np.dtype(np.float64))
        return function(wide).astype(block.dtype)

    return body


def _frexp(block: ResultBlock, operands: Sequence[jax.Array | None]) -> tuple[jax.Array, jax.Array]:
    x = convert(required(operands[0]), block.dtype)
    mantissa, exponent = special.frexp(widen(x, block.dtype))
    return narrow(mantissa, block.dtype), exponent


def _ldexp(block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    x, power = (required(operand) for operand in operands)
    power = jnp.broadcast_to(convert(power, np.dtype(np.int64)), block.shape)
    x = jnp.broadcast_to(convert(x, block.dtype), block.shape)
    return narrow(special.ldexp(widen(x, block.dtype), power), block.dtype)


def _physics(name: str, function: Callable[[jax.Array], jax.Array]) -> Row:
    return Row(name, _in_float64(function), aligned=broadcast_axes, reproducibility=Reproducibility.NOT_PROMISED)


def rows() -> tuple[Row, ...]:
    """Returns the rows."""
    return (
        Row("ldexp", _ldexp, aligned=broadcast_axes),
        Row("frexp", _frexp, aligned=broadcast_axes),
        _physics("erf", special.erf),
        _physics("gammaln", special.gammaln),
    )
