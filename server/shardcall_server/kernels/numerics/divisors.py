"""Greatest common divisors and least common multiples of integers, with NumPy's results."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def gcd(x: jax.Array, y: jax.Array) -> jax.Array:
    """`numpy.gcd`: the greatest common divisor of the magnitudes; for 0, the magnitude of the other."""
    return _divisor(_size(x), _size(y)).astype(x.dtype)


def lcm(x: jax.Array, y: jax.Array) -> jax.Array:
    """`numpy.lcm`: the least common multiple of the magnitudes, wrapped; 0 for 0."""
    first, second = _size(x), _size(y)
    divisor = _divisor(first, second)
    quotient = lax.div(first, jnp.where(divisor == 0, 1, divisor).astype(first.dtype))
    return (quotient * second).astype(x.dtype)


def _size(x: jax.Array) -> jax.Array:
    """Returns magnitudes as unsigned integers, which can hold that of the lowest signed one."""
    unsigned = np.dtype(f"uint{8 * x.dtype.itemsize}")
    return jnp.where(x < 0, -x, x).astype(unsigned)


def _divisor(x: jax.Array, y: jax.Array) -> jax.Array:
    """Returns greatest common divisors by Euclid's algorithm.

    The number of steps is fixed, so that the devices need not agree on the last one. Consecutive Fibonacci numbers need
    the most steps: 1.44 for each bit (Lamé).
    """
    steps = 8 * x.dtype.itemsize * 3 // 2 + 1

    def step(_: int, pair: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        greater, less = pair
        is_done = less == 0
        rest = lax.rem(greater, jnp.where(is_done, 1, less).astype(less.dtype))
        return jnp.where(is_done, greater, less), jnp.where(is_done, less, rest)

    divisor: jax.Array = lax.fori_loop(0, steps, step, (x, y))[0]
    return divisor
