"""Distances between the elements of an array: one step along an axis, or a coordinate for each row."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np


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
