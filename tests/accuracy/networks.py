"""Cases of the multilayer perceptrons: two layers, their loss, its gradient and a step, in extended precision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from accuracy.elementwise import Case

if TYPE_CHECKING:
    from accuracy.arrays import Values

_BATCH, _HIDDEN, _OUTPUTS = 9, 3, 2
_RATE = 0.125


def network_cases(values: Values, n: int, devices: int) -> Iterator[Case]:
    """One case for each kernel of a network with n inputs."""
    x, targets = values.normal(_BATCH, n), values.normal(_BATCH, _OUTPUTS)
    layers = (
        values.normal(n, _HIDDEN),
        values.normal(_HIDDEN),
        values.normal(_HIDDEN, _OUTPUTS),
        values.normal(_OUTPUTS),
    )
    wide = [array.astype(np.float64).astype(np.longdouble) for array in (x, targets, *layers)]
    active = wide[0] @ wide[2] + wide[3] > 0
    prediction, loss, gradient = _network(wide, active)
    sizes = [abs(array) for array in wide]
    sizes[1] = -sizes[1]  # so that differences from the targets become sums of sizes
    largest, of_loss, of_gradient = _network(sizes, active)
    rate = np.asarray(_RATE, x.dtype)
    stepped = [layer - _RATE * slope for layer, slope in zip(wide[2:], gradient, strict=True)]
    of_step = [layer + _RATE * slope for layer, slope in zip(sizes[2:], of_gradient, strict=True)]
    for kernel, operands, references, scales in (
        ("mlp_predict", (x, *layers), [prediction], [largest]),
        ("mlp_loss", (x, targets, *layers), [loss], [of_loss]),
        ("mlp_gradient", (x, targets, *layers), gradient, of_gradient),
        ("mlp_sgd_step", (x, targets, rate, *layers), [*stepped, loss], [*of_step, of_loss]),
    ):
        yield Case(kernel, x.dtype.name, kernel, operands, tuple(references), tuple(scales), devices=devices)


def _network(wide: list[np.ndarray], active: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """The prediction, the loss and its gradient by W and b of both layers."""
    x, targets, first, first_bias, second, second_bias = wide
    hidden = np.where(active, x @ first + first_bias, 0)
    prediction = hidden @ second + second_bias
    apart = prediction - targets
    slope = 2 * apart / len(x)
    inner = np.where(active, slope @ second.T, 0)
    gradient = [x.T @ inner, inner.sum(0), hidden.T @ slope, slope.sum(0)]
    return prediction, np.asarray((apart**2).sum(-1).mean()), gradient
