"""Programs of arrays, as functions of an array namespace, and their arguments.

A program is one function of `numpy`, `jax.numpy` or `client.xp` and its arguments. An array that is called large has at
least the bytes that the caller of the benchmark names. A program that runs in steps returns its arguments after one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Arguments = tuple[Any, ...]

DEVICES = 8
_RATE, _VOLATILITY = 0.02, 0.3
_CDF = (0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429)
"""Coefficients of the normal distribution function: Abramowitz and Stegun, 26.2.17."""
_MANDELBROT_ITERATIONS = 10
_SOFTENING = 0.01
_STEP = 0.01
_LEAPFROG_STEPS = 10
_BINS = 100


@dataclass(frozen=True)
class Case:
    """A program and its arguments.

    Attributes:
        title: the program in a few words.
        program: the function of an array namespace and of the arguments.
        arguments: returns the arguments, by the bytes of a large array.
        complete: the indices of the arguments that all devices have completely; of others they have rows.
        margin: the rows beside its own that a device needs on either side, of a program of which a version by hand
            exists; otherwise 0.
        steps: how often the program runs, with its results in place of its arguments; 0 for one call.
        is_writing: whether the program writes to its arguments, which are copied for every run.
    """

    title: str
    program: Callable[..., Any]
    arguments: Callable[[int], Arguments]
    complete: frozenset[int] = frozenset()
    margin: int = 0
    steps: int = 0
    is_writing: bool = False


def assigned(xp: Any, a: Any, key: Any, values: Any) -> Any:
    """Returns an array with other values at some indices; it is the same object unless `jax.numpy` computes."""
    if getattr(xp, "__name__", "") == "jax.numpy":
        return a.at[key].set(values)
    a[key] = values
    return a


def chain(xp: Any, x: Any, y: Any) -> Any:
    """Returns a chain of elementwise functions."""
    return xp.sqrt(xp.exp(-x * x) + y * y) * 0.5 + xp.sin(x) * xp.cos(y) - xp.abs(x - y) / (1.0 + y * y)


def stencil_2d(_xp: Any, a: Any) -> Any:
    """Returns the means of five points, of inner points alone."""
    return 0.2 * (a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1])


def stencil_3d(_xp: Any, a: Any) -> Any:
    """Returns a step of the heat equation in three dimensions, of inner points alone."""
    center = a[1:-1, 1:-1, 1:-1]
    return (
        center
        + 0.125 * (a[2:, 1:-1, 1:-1] - 2.0 * center + a[:-2, 1:-1, 1:-1])
        + 0.125 * (a[1:-1, 2:, 1:-1] - 2.0 * center + a[1:-1, :-2, 1:-1])
        + 0.125 * (a[1:-1, 1:-1, 2:] - 2.0 * center + a[1:-1, 1:-1, :-2])
    )


def stencil_2d_write(xp: Any, a: Any) -> Any:
    """Returns the array with the inner points smoothed and the boundary as it was."""
    result = xp.copy(a)
    inner = a[1:-1, 1:-1]
    smoothed = inner + 0.1 * (a[2:, 1:-1] + a[:-2, 1:-1] + a[1:-1, 2:] + a[1:-1, :-2] - 4.0 * inner)
    return assigned(xp, result, (slice(1, -1), slice(1, -1)), smoothed)


def hdiff(xp: Any, field: Any, coefficient: Any) -> Any:
    """Returns a field after horizontal diffusion of fourth degree, whose fluxes are limited.

    Args:
        field: [rows + 4, columns + 4, levels].
        coefficient: [rows, columns, levels].
    """
    laplacian = 4.0 * field[1:-1, 1:-1] - (field[2:, 1:-1] + field[:-2, 1:-1] + field[1:-1, 2:] + field[1:-1, :-2])
    flux = laplacian[1:, 1:-1] - laplacian[:-1, 1:-1]
    flux_x = xp.where(flux * (field[2:-1, 2:-2] - field[1:-2, 2:-2]) > 0.0, 0.0, flux)
    flux = laplacian[1:-1, 1:] - laplacian[1:-1, :-1]
    flux_y = xp.where(flux * (field[2:-2, 2:-1] - field[2:-2, 1:-2]) > 0.0, 0.0, flux)
    return field[2:-2, 2:-2] - coefficient * (flux_x[1:] - flux_x[:-1] + flux_y[:, 1:] - flux_y[:, :-1])


def softmax(xp: Any, x: Any) -> Any:
    """Returns the softmax of every row."""
    powers = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return powers / xp.sum(powers, axis=-1, keepdims=True)


def _distribution(xp: Any, x: Any) -> Any:
    """Returns the normal distribution function, within 7.5e-8."""
    t = 1.0 / (1.0 + 0.2316419 * xp.abs(x))
    tail = 0.0
    for coefficient in reversed(_CDF):
        tail = (tail + coefficient) * t
    tail = tail * xp.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
    return xp.where(x > 0.0, 1.0 - tail, tail)


def black_scholes(xp: Any, price: Any, strike: Any, years: Any) -> Any:
    """Returns the values of European calls and puts."""
    spread = _VOLATILITY * xp.sqrt(years)
    d1 = (xp.log(price / strike) + (_RATE + 0.5 * _VOLATILITY * _VOLATILITY) * years) / spread
    n1, n2 = _distribution(xp, d1), _distribution(xp, d1 - spread)
    discounted = strike * xp.exp(-_RATE * years)
    return price * n1 - discounted * n2, discounted * (1.0 - n2) - price * (1.0 - n1)


def gesummv(_xp: Any, alpha: Any, beta: Any, a: Any, b: Any, x: Any) -> Any:
    """Returns the sum of two products of matrices and a vector."""
    return alpha * (a @ x) + beta * (b @ x)


def mlp(xp: Any, x: Any, *parameters: Any) -> Any:
    """Returns the softmax of a network of three layers.

    Args:
        x: [batch, features].
        parameters: the weights and the biases, by layers.
    """
    w1, b1, w2, b2, w3, b3 = parameters
    hidden = xp.maximum(x @ w1 + b1, 0.0)
    hidden = xp.maximum(hidden @ w2 + b2, 0.0)
    return softmax(xp, hidden @ w3 + b3)


def mandelbrot(xp: Any, c: Any) -> Any:
    """Returns after how many iterations points have left the circle of radius 2."""
    z, count = xp.zeros_like(c), xp.zeros(c.shape, dtype=np.int64)
    for _ in range(_MANDELBROT_ITERATIONS):
        is_inside = xp.abs(z) < 2.0
        count = count + is_inside
        z = xp.where(is_inside, z * z + c, z)
    return count


def correlation(xp: Any, data: Any) -> Any:
    """Returns the correlations of the columns."""
    rows = data.shape[0]
    centered = data - xp.mean(data, axis=0)
    scaled = centered / (math.sqrt(rows) * xp.std(data, axis=0))
    return scaled.T @ scaled


def n_body(xp: Any, positions: Any, masses: Any) -> Any:
    """Returns the accelerations of bodies by each other's gravity.

    Args:
        positions: [bodies, 3].
        masses: [bodies].
    """
    dx, dy, dz = (positions[None, :, i] - positions[:, None, i] for i in range(3))
    squares = dx * dx + dy * dy + dz * dz + _SOFTENING
    weights = masses / (squares * xp.sqrt(squares))
    return xp.stack([xp.sum(d * weights, axis=1) for d in (dx, dy, dz)], axis=1)


def histogram(xp: Any, a: Any) -> Any:
    """Returns how many numbers are in each of the bins from the smallest to the largest number."""
    return xp.histogram(a, bins=_BINS)[0]


def matrix_vector(_xp: Any, a: Any, x: Any) -> Any:
    """Returns the product of a matrix, its transpose and a vector."""
    return a.T @ (a @ x)


def sea_water(xp: Any, s: Any, t: Any, p: Any) -> Any:
    """Returns the density of sea water, in kg/m³, by the international equation of state of 1980.

    Args:
        s: the practical salinity.
        t: the temperature, °C.
        p: the pressure above that of the atmosphere, bar.

    Source:
        Fofonoff and Millard (1983), UNESCO technical papers in marine science 44.
    """
    root = s * xp.sqrt(s)
    water = 999.842594 + t * (
        6.793952e-2 + t * (-9.095290e-3 + t * (1.001685e-4 + t * (-1.120083e-6 + t * 6.536332e-9)))
    )
    surface = (
        water
        + s * (0.824493 + t * (-4.0899e-3 + t * (7.6438e-5 + t * (-8.2467e-7 + t * 5.3875e-9))))
        + root * (-5.72466e-3 + t * (1.0227e-4 - t * 1.6546e-6))
        + 4.8314e-4 * s * s
    )
    bulk = (
        19652.21
        + t * (148.4206 + t * (-2.327105 + t * (1.360477e-2 - t * 5.155288e-5)))
        + s * (54.6746 + t * (-0.603459 + t * (1.09987e-2 - t * 6.1670e-5)))
        + root * (7.944e-2 + t * (1.6483e-2 - t * 5.3009e-4))
    )
    linear = (
        3.239908
        + t * (1.43713e-3 + t * (1.16092e-4 - t * 5.77905e-7))
        + s * (2.2838e-3 + t * (-1.0981e-5 - t * 1.6078e-6))
        + 1.91075e-4 * root
    )
    square = 8.50935e-5 + t * (-6.12293e-6 + t * 5.2787e-8) + s * (-9.9348e-7 + t * (2.0816e-8 + t * 9.1697e-10))
    return surface / (1.0 - p / (bulk + p * (linear + p * square)))


def heat(xp: Any, u: Any) -> Any:
    """Returns the array after a step of the heat equation."""
    return (u + 0.1 * (xp.roll(u, 1, 0) + xp.roll(u, -1, 0) + xp.roll(u, 1, 1) + xp.roll(u, -1, 1) - 4.0 * u),)


def jacobi_1d(xp: Any, a: Any, b: Any) -> Any:
    """Returns two arrays after a step of smoothing, which writes the inner points of one and then of the other."""
    inner = slice(1, -1)
    b = assigned(xp, b, inner, 0.33333 * (a[:-2] + a[1:-1] + a[2:]))
    a = assigned(xp, a, inner, 0.33333 * (b[:-2] + b[1:-1] + b[2:]))
    return a, b


def jacobi_2d(xp: Any, a: Any, b: Any) -> Any:
    """Returns two arrays after a step of smoothing, which writes the inner points of one and then of the other."""
    inner = slice(1, -1), slice(1, -1)
    b = assigned(xp, b, inner, stencil_2d(xp, a))
    a = assigned(xp, a, inner, stencil_2d(xp, b))
    return a, b


def leapfrog(xp: Any, positions: Any, velocities: Any, masses: Any) -> Any:
    """Returns positions and velocities of bodies after some steps, and their kinetic energy."""
    acceleration = n_body(xp, positions, masses)
    for _ in range(_LEAPFROG_STEPS):
        velocities = velocities + 0.5 * _STEP * acceleration
        positions = positions + _STEP * velocities
        acceleration = n_body(xp, positions, masses)
        velocities = velocities + 0.5 * _STEP * acceleration
    return positions, velocities, 0.5 * xp.sum(masses[:, None] * velocities * velocities)


def fft_by_stages(xp: Any, x: Any) -> Any:
    """Returns the Fourier transform of a vector whose size is a power of two, by Stockham's method."""
    y = xp.reshape(x, (x.shape[0], 1))
    while y.shape[0] > 1:
        half = y.shape[0] // 2
        upper, lower = y[:half], y[half:]
        factors = xp.exp(-1j * math.pi / half * xp.arange(half))[:, None]
        y = xp.concatenate([upper + lower, (upper - lower) * factors], axis=1)
    return y[0]


def floyd(xp: Any, distances: Any) -> Any:
    """Returns the lengths of the shortest paths between all nodes of a graph, by the lengths of its edges."""
    for k in range(distances.shape[0]):
        distances = xp.minimum(distances, distances[:, k, None] + distances[None, k])
    return distances


def mandelbrot_masks(xp: Any, c: Any) -> Any:
    """Returns as `mandelbrot` after how many iterations points have left the circle, and computes only the others."""
    z, count = xp.zeros_like(c), xp.zeros(c.shape, dtype=np.int64)
    for n in range(1, 2 * _MANDELBROT_ITERATIONS + 1):
        is_inside = xp.abs(z) < 2.0
        count = assigned(xp, count, is_inside, n)
        z = assigned(xp, z, is_inside, z[is_inside] ** 2 + c[is_inside])
    return count


def _random() -> np.random.Generator:
    return np.random.default_rng(0)


def _rows(count: float) -> int:
    """Returns a number of rows that the devices divide, for each at least twice the largest margin."""
    return max(4 * DEVICES, DEVICES * math.ceil(count / DEVICES))


def _square(nbytes: int) -> int:
    return _rows(math.sqrt(nbytes / 8))


def _points(nbytes: int) -> tuple[int, int]:
    """Returns the shape of a large array of float64."""
    return _rows(nbytes / 8 / 1024), 1024


def _chain_arguments(nbytes: int) -> Arguments:
    x, y = _random().normal(size=(2, *_points(nbytes)))
    return x, y


def _square_arguments(nbytes: int) -> Arguments:
    return (_random().normal(size=[_square(nbytes)] * 2),)


def _cube_arguments(nbytes: int) -> Arguments:
    return (_random().normal(size=[_rows((nbytes / 8) ** (1 / 3))] * 3),)


def _hdiff_arguments(nbytes: int, levels: int = 80) -> Arguments:
    size = _rows(math.sqrt(nbytes / 8 / levels) + 4)  # of which 4 rows and columns are the boundary: both are large
    return _random().normal(size=(size, size, levels)), _random().uniform(size=(size - 4, size - 4, levels))


def _hdiff_128_arguments(_nbytes: int) -> Arguments:
    return _random().normal(size=(132, 132, 80)), _random().uniform(size=(128, 128, 80))


def _softmax_arguments(nbytes: int) -> Arguments:
    return (_random().normal(size=(_rows(nbytes / 4 / 1024), 1024)).astype(np.float32),)


def _black_scholes_arguments(nbytes: int) -> Arguments:
    random, shape = _random(), _points(nbytes)
    return random.uniform(10, 50, shape), random.uniform(10, 50, shape), random.uniform(0.5, 2, shape)


def _gesummv_arguments(nbytes: int) -> Arguments:
    size = _square(nbytes)
    a, b = _random().normal(size=(2, size, size))
    return 1.5, 1.2, a, b, _random().normal(size=size)


def _mlp_arguments(nbytes: int) -> Arguments:
    random, features = _random(), (256, 256, 256, 64)
    arrays = [random.normal(size=(_rows(nbytes / 4 / features[0]), features[0]))]
    for before, after in itertools.pairwise(features):
        arrays += [random.normal(size=(before, after)) / math.sqrt(before), random.normal(size=after)]
    return tuple(a.astype(np.float32) for a in arrays)


def _mandelbrot_arguments(nbytes: int) -> Arguments:
    rows, columns = _rows(nbytes / 16 / 1024), 1024
    return (np.linspace(-2.25, 0.75, rows)[:, None] + 1j * np.linspace(-1.25, 1.25, columns),)


def _correlation_arguments(nbytes: int) -> Arguments:
    return (_random().normal(size=(_rows(nbytes / 8 / 512), 512)),)


def _n_body_arguments(nbytes: int) -> Arguments:
    size = _square(nbytes)  # of the distances of all pairs
    return _random().normal(size=(size, 3)), _random().uniform(1, 2, size)


def _matrix_vector_arguments(nbytes: int) -> Arguments:
    size = _square(nbytes)
    return _random().normal(size=(size, size)), _random().normal(size=size)


def _sea_water_arguments(nbytes: int) -> Arguments:
    random, shape = _random(), _points(nbytes)
    return random.uniform(30, 40, shape), random.uniform(-2, 30, shape), random.uniform(0, 1000, shape)


def _heat_arguments(_nbytes: int) -> Arguments:
    return (_random().normal(size=(1024, 1024)),)


def _leapfrog_arguments(_nbytes: int) -> Arguments:
    positions, velocities = _random().normal(size=(2, 104, 3))
    return positions, velocities, _random().uniform(1, 2, 104)


def _fft_arguments(_nbytes: int) -> Arguments:
    real, imaginary = _random().normal(size=(2, 1024))
    return (real + 1j * imaginary,)


def _small_sea_water_arguments(_nbytes: int) -> Arguments:
    return tuple(a[:400, :10] for a in _sea_water_arguments(400 * 1024 * 8))


def _floyd_arguments(_nbytes: int) -> Arguments:
    return (_random().uniform(1, 100, (104, 104)),)


def _small_mandelbrot_arguments(_nbytes: int) -> Arguments:
    return (np.linspace(-2.25, 0.75, 120)[:, None] + 1j * np.linspace(-1.25, 1.25, 100),)


def _jacobi_arguments(shape: tuple[int, ...]) -> Callable[[int], Arguments]:
    return lambda _nbytes: tuple(_random().normal(size=(2, *shape)))


CASES: Mapping[str, Case] = {
    "chain": Case("elementwise chain", chain, _chain_arguments),
    "stencil_2d": Case("5-point stencil", stencil_2d, _square_arguments, margin=1),
    "stencil_3d": Case("7-point stencil", stencil_3d, _cube_arguments, margin=1),
    "stencil_2d_write": Case("5-point stencil, a[1:-1, 1:-1] = …", stencil_2d_write, _square_arguments, margin=1),
    "hdiff": Case("horizontal diffusion, 80 levels", hdiff, _hdiff_arguments, margin=2),
    "softmax": Case("softmax, float32", softmax, _softmax_arguments),
    "black_scholes": Case("Black-Scholes", black_scholes, _black_scholes_arguments),
    "gesummv": Case("αAx + βBx", gesummv, _gesummv_arguments, complete=frozenset({4})),
    "mlp": Case("network of 3 layers, float32", mlp, _mlp_arguments, complete=frozenset(range(1, 7))),
    "mandelbrot": Case("Mandelbrot, 10 iterations", mandelbrot, _mandelbrot_arguments),
    "correlation": Case("correlation of 512 columns", correlation, _correlation_arguments),
    "n_body": Case("forces of n bodies", n_body, _n_body_arguments),
    "histogram": Case("histogram, 100 bins", histogram, lambda nbytes: _chain_arguments(nbytes)[:1]),
    "matrix_vector": Case("Aᵀ(Ax)", matrix_vector, _matrix_vector_arguments, complete=frozenset({1})),
    "sea_water": Case("equation of state of sea water", sea_water, _sea_water_arguments),
}
"""The programs of large arrays, by name."""

SMALL_CASES: Mapping[str, Case] = {
    "hdiff_128": Case("horizontal diffusion, 128 × 128 × 80", hdiff, _hdiff_128_arguments, margin=2),
    "heat_100": Case("heat equation, 1024², 100 steps", heat, _heat_arguments, steps=100),
    "jacobi_1d": Case("jacobi_1d, 3,200, 800 steps", jacobi_1d, _jacobi_arguments((3200,)), steps=800, is_writing=True),
    "jacobi_2d": Case("jacobi_2d, 150², 50 steps", jacobi_2d, _jacobi_arguments((150, 150)), steps=50, is_writing=True),
}
"""The programs whose sizes are fixed, by name."""

EAGER_CASES: Mapping[str, Case] = {
    "leapfrog": Case("104 bodies, 10 steps", leapfrog, _leapfrog_arguments),
    "fft_by_stages": Case("Fourier transform of 1,024 points by stages", fft_by_stages, _fft_arguments),
    "sea_water_400": Case("equation of state of sea water, 400 × 10", sea_water, _small_sea_water_arguments),
    "floyd": Case("shortest paths of 104 nodes", floyd, _floyd_arguments),
    "mandelbrot_masks": Case("Mandelbrot by masks, 20 iterations", mandelbrot_masks, _small_mandelbrot_arguments),
}
"""The programs of small arrays that are run call by call, by name."""
