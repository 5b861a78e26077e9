"""Rows of the table for Fourier transforms along an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from shardcall_core.layouts.layout import required
from shardcall_server.kernels.array_functions.row import AlignedAxes, CallShapes, ResultBlock, Row
from shardcall_server.kernels.core.element_types import convert, working_type
from shardcall_server.kernels.core.reproducibility import Reproducibility

Transform = Callable[..., jax.Array]
"""A function of jax.numpy.fft, of an array, a number of points, an axis and a norm."""


def _but_axis(call: CallShapes) -> AlignedAxes:
    axis = call["axis"] % len(call.x)
    return (tuple(None if i == axis else i for i in range(len(call.x))),)


def _origins(call: CallShapes) -> tuple[int | None, ...]:
    return tuple(range(len(call.x)))


def _computed_in(result: np.dtype, *, is_real: bool) -> np.dtype:
    """Returns the type that a transform takes: complex, or real, of as many bits as the result has."""
    wide = np.empty(0, working_type(result)).real.dtype
    return wide if is_real else np.result_type(wide, np.complex64)


def _row(name: str, transform: Transform, *, of_reals: bool = False) -> Row:
    def body(block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
        x = required(operands[0])
        if 0 in block.shape:
            return jnp.zeros(block.shape, block.dtype)
        axis = block["axis"]
        points = block.call.shape[axis] if not of_reals else block["n"] or block.call.x[axis]
        wide = convert(x, _computed_in(block.dtype, is_real=of_reals))
        return convert(transform(wide, n=points, axis=axis, norm=block["norm"]), block.dtype)

    return Row(
        name,
        body,
        aligned=_but_axis,
        origins=_origins,
        needs_complete_axes=True,
        reproducibility=Reproducibility.NOT_PROMISED,
    )


def rows() -> tuple[Row, ...]:
    """Returns the rows."""
    return (
        _row("fft", jnp.fft.fft),
        _row("ifft", jnp.fft.ifft),
        _row("rfft", jnp.fft.rfft, of_reals=True),
        _row("irfft", jnp.fft.irfft),
    )
