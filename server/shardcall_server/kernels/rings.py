"""The bodies of `collective_matmul`: products of blocks that travel along one mesh axis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardcall_server.kernels import element_types, products
from shardcall_server.kernels.blocks import fit, rows

MAX_UNROLLED = 8
"""The most devices for which a ring's steps are written out; above it they are a loop, and compile in one piece."""

_State = tuple[jax.Array, ...]


@dataclass(frozen=True)
class Ring:
    """The devices along one mesh axis, and the result's element type.

    Attributes:
        axis_name: the mesh axis.
        devices: its size D.
        dtype: of the result.
    """

    axis_name: str
    devices: int
    dtype: np.dtype

    def index(self, offset: int | jax.Array = 0) -> jax.Array:
        """The device ``offset`` places on, counted round the ring."""
        index: jax.Array = (lax.axis_index(self.axis_name) + offset) % self.devices
        return index

    def send(self, array: jax.Array, by: int = 1) -> jax.Array:
        """What the device ``by`` places before sent; every device sends."""
        pairs = [(i, (i + by) % self.devices) for i in range(self.devices)]
        received = lax.ppermute(element_types.as_bits(array), self.axis_name, pairs)
        return element_types.from_bits(received, array.dtype)

    def steps(self, step: Callable[[int | jax.Array, _State], _State], state: _State) -> _State:
        """Runs ``step`` with 0, 1, …, D - 2: as often as there are neighbours to hear of."""
        if self.devices > MAX_UNROLLED:
            looped: _State = lax.fori_loop(0, self.devices - 1, step, state)
            return looped
        for i in range(self.devices - 1):
            state = step(i, state)
        return state

    def multiply(self, lhs: jax.Array, rhs: jax.Array) -> jax.Array:
        """The product in its sum type."""
        return products.multiply(lhs, rhs, self.dtype)

    def finish(self, total: jax.Array) -> jax.Array:
        """A product in the result's type, as bits that can be moved."""
        return element_types.as_bits(products.finish(total, self.dtype))

    def empty(self, shape: tuple[int, ...]) -> jax.Array:
        """What finished products are written into."""
        return element_types.as_bits(jnp.zeros(shape, self.dtype))


Body = Callable[[jax.Array, jax.Array, Ring], jax.Array]
"""A device's part: its blocks of lhs and rhs → its block of the result, as bits."""


# lhs by rows, [B, K] and [K, N] → [D · B, N]: every device ends with the whole product.


def all_gather(lhs: jax.Array, rhs: jax.Array, ring: Ring) -> jax.Array:
    """Multiplies, then gathers the products: of gathered lhs every device would do all multiplications."""
    gathered: jax.Array = lax.all_gather(ring.finish(ring.multiply(lhs, rhs)), ring.axis_name, tiled=True)
    return gathered


def ring_of_lhs(lhs: jax.Array, rhs: jax.Array, ring: Ring) -> jax.Array:
    """Passes the blocks of lhs on and multiplies each as it comes."""
    block = lhs.shape[0]

    def place(i: int | jax.Array, travelling: jax.Array, result: jax.Array) -> jax.Array:
        product = ring.finish(ring.multiply(travelling, rhs))
        return lax.dynamic_update_slice_in_dim(result, product, ring.index(-i) * block, 0)

    def step(i: int | jax.Array, state: _State) -> _State:
        travelling, result = state
        following = ring.send(travelling)  # before the product, which can then hide it
        return following, place(i, travelling, result)

    state = lhs, ring.empty((ring.devices * block, rhs.shape[1]))
    return place(ring.devices - 1, *ring.steps(step, state))


def bidirectional_ring_of_lhs(lhs: jax.Array, rhs: jax.Array, ring: Ring) -> jax.Array:
    """As `ring_of_lhs`, with the upper half of each block sent one way and the rest the other.

    Of an odd block the upper half has one row more; of a block of one row there is no rest.
    """
    block = lhs.shape[0]
    upper = (block + 1) // 2

    def place(i: int | jax.Array, onward: jax.Array, back: jax.Array, result: jax.Array) -> jax.Array:
        product = ring.finish(ring.multiply(jnp.concatenate([onward, back]), rhs))
        result = lax.dynamic_update_slice_in_dim(result, product[:upper], ring.index(-i) * block, 0)
        if block == upper:
            return result
        return lax.dynamic_update_slice_in_dim(result, product[upper:], ring.index(i) * block + upper, 0)

    def step(i: int | jax.Array, state: _State) -> _State:
        onward, back, result = state
        following = ring.send(onward), ring.send(back, -1) if block > upper else back
        return *following, place(i, onward, back, result)

    state = lhs[:upper], lhs[upper:], ring.empty((ring.devices * block, rhs.shape[1]))
    return place(ring.devices - 1, *ring.steps(step, state))


# lhs by columns, [M, B] and [B, N] → [ceil(M / D), N]: each device ends with its rows of the sum.


def psum_scatter(lhs: jax.Array, rhs: jax.Array, ring: Ring) -> jax.Array:
    """Multiplies, then sums the parts and scatters them by rows."""
    part = ring.multiply(lhs, rhs)
    return ring.finish(products.scatter_sum(part, 0, (ring.axis_name,), ring.devices))


def ring_of_sums(lhs: jax.Array, rhs: jax.Array, ring: Ring) -> jax.Array:
    """Passes the sums on; every device adds its own part just in time."""
    block = -(-lhs.shape[0] // ring.devices)
    lhs = fit(lhs, (ring.devices * block, lhs.shape[1]))

    def own_part(i: int | jax.Array) -> jax.Array:
        # The sum that is here in step i goes D - 1 - i places further, and ends with the device whose rows it is of.
        return ring.multiply(rows(lhs, ring.index(-1 - i) * block, block, 0), rhs)

    def step(i: int | jax.Array, state: _State) -> _State:
        (total,) = state
        received = ring.send(total)  # before the product, which can then hide it
        return (received + own_part(i + 1),)

    (total,) = ring.steps(step, (own_part(0),))
    return ring.finish(total)
