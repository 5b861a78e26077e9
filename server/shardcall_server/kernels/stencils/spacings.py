"""Distances between the elements of an array: one step along an axis, or a coordinate for each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.layouts.layout import ArrayType
from shardcall_core.layouts.signature import ParameterValues
from shardcall_server.kernels.core import element_types
from shardcall_server.kernels.core.axes import axes

_INEXACT = "fc"


def inexact_type(dtype: np.dtype) -> np.dtype:
    """Returns the type of a derivative, as `np.gradient`: inexact types stay, others become float64."""
    stays = dtype.kind in _INEXACT or element_types.is_narrow_float(dtype)
    return dtype if stays else np.dtype(np.float64)


def named_axes(parameters: ParameterValues, name: str, x: ArrayType) -> tuple[int, ...]:
    """Returns the axes of x that a parameter names; all for None.

    Raises:
        CallError: if there is none, or as `shardcall_server.kernels.core.axes.axes`.
    """
    named = axes(parameters, name, x.ndim)
    if not x.ndim:
        raise CallError(Reason.INVALID_OPERAND, f"x is {x}, a scalar; give an array of one axis or more", field="x")
    if not named:
        raise CallError(Reason.INVALID_PARAMETER, f"{name}=() names no axis; name one or more", field=name)
    return named


def check_spacing(
    spacing: Sequence[ArrayType], x: ArrayType, named: Sequence[int], *, may_be_coordinates: bool
) -> None:
    """Checks that there is no spacing, one scalar for all axes, or one scalar or row of coordinates for each.

    Raises:
        CallError: if the spacing has another form.
    """
    one_for_all = len(spacing) == 1 and not spacing[0].ndim
    if spacing and len(spacing) != len(named) and not one_for_all:
        raise CallError(
            Reason.OPERAND_COUNT,
            f"{len(spacing)} spacing{'s' if len(spacing) > 1 else ''} for {len(named)} axes; give none, "
            "one scalar, or one for each axis",
            field="spacing",
        )
    for i, (step, axis) in enumerate(zip(spacing, named, strict=False)):
        field, size = f"spacing[{i}]", x.shape[axis]
        if step.dtype.kind == "c" or step.dtype == np.bool_:
            raise CallError(
                Reason.UNSUPPORTED_ELEMENT_TYPE, f"{field} is {step}; a spacing is of real numbers", field=field
            )
        if step.ndim and (step.shape != (size,) or not may_be_coordinates):
            allowed = f"a scalar or the {size} coordinates along axis {axis}" if may_be_coordinates else "a scalar"
            raise CallError(
                Reason.INVALID_OPERAND, f"{field} has shape {shorten(str(step.shape))}; give {allowed}", field=field
            )


@dataclass(frozen=True)
class Weights:
    """The weights of the rows of a derivative, for edge order e.

    Row i is ``inner[0, i] x[i - 1] + inner[1, i] x[i] + inner[2, i] x[i + 1]``. For e = 2 the first one is the sum of
    ``first[j] x[j]`` and the last one that of ``last[j] x[R - 1 - e + j]``, j from 0 to e; for e = 1 they are the
    differences of the two outermost rows, divided by the step between them.

    Attributes:
        inner: [3, R] for coordinates.
        first: [3] for e = 2, [1] the first step for e = 1.
        last: [3] for e = 2, [1] the last step for e = 1.
        even: bool [], True if all steps are equal, so that x[i] must not be part of an inner row: if it were infinite,
            its weight of 0 would give NaN.
    """

    inner: jax.Array
    first: jax.Array
    last: jax.Array
    even: jax.Array

    @staticmethod
    def of(coordinates: jax.Array, edge_order: int) -> Weights:
        """Returns the weights of `np.gradient` for coordinates [R], in float64."""
        steps = jnp.diff(coordinates.astype(np.float64))
        before, after = steps[:-1], steps[1:]
        inner = jnp.stack(
            [
                -after / (before * (before + after)),
                (after - before) / (before * after),
                before / (after * (before + after)),
            ]
        )
        if edge_order == 1:
            first, last = steps[:1], steps[-1:]
        else:
            first = _three_points(steps[0], steps[1])
            last = -_three_points(steps[-1], steps[-2])[::-1]
        return Weights(jnp.pad(inner, ((0, 0), (1, 1))), first, last, (steps == steps[0]).all())


def _three_points(near: jax.Array, far: jax.Array) -> jax.Array:
    # The weights of the derivative at an end, from the end inwards, for the two steps next to it.
    both = near + far
    return jnp.stack([-(2 * near + far) / (near * both), both / (near * far), -near / (far * both)])


def even_edges(step: jax.Array, edge_order: int) -> tuple[jax.Array, jax.Array]:
    """Returns the weights of the first and the last row for even steps, as in `Weights`, in the step's type."""
    if edge_order == 1:
        return step[None], step[None]
    first = jnp.asarray([-1.5, 2.0, -0.5], step.dtype)
    return first / step, -first[::-1] / step
