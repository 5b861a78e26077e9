"""Moves of elements, bit for bit.

The compiler computes with floating-point numbers where it should only move them: XLA:CPU converts narrow ones to
float32 and back, and a gather that is partitioned into a select and a sum turns -0 into 0 and, on CPU, subnormals into
0 too. Integers are not changed, so elements are moved as integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding

from shardcall_core.layouts.layout import MeshAxes, Spec, block_shape
from shardcall_server.kernels.core.blocks import partition_spec
from shardcall_server.kernels.core.differentiation import differentiation, is_differentiated, with_derivative
from shardcall_server.kernels.core.element_types import narrow, widen

_NIBBLES = ("int4", "uint4")


def as_integers(array: jax.Array) -> jax.Array:
    """Returns a real array as integers of a byte or more: floating-point numbers as their bits, bool unchanged.

    In programs that are differentiated, floating-point numbers are not converted.
    """
    dtype = np.dtype(array.dtype)
    if jnp.issubdtype(dtype, jnp.floating):
        if is_differentiated():
            return array
        return lax.bitcast_convert_type(array, np.dtype(f"uint{dtype.itemsize * 8}"))
    return widen(array, dtype) if dtype.name in _NIBBLES else array


def moved_in_block(move: Callable[..., jax.Array], *arrays: jax.Array) -> jax.Array:
    """Applies ``move`` to arrays of which no element is sent or added, such as a block of a device.

    Elements of 4 bytes and more are moved as they are; narrow floating-point numbers as integers, as by `moved`.
    """
    return move(*arrays) if _is_wide(np.dtype(arrays[0].dtype)) else moved(move, *arrays)


def _is_wide(dtype: np.dtype) -> bool:
    """Returns True if the compiler moves the elements of a block without computing with them."""
    return dtype.kind in "fc" and dtype.itemsize >= 4


def from_integers(array: jax.Array, dtype: np.dtype) -> jax.Array:
    """Reverses `as_integers` for an array of type ``dtype``."""
    if dtype.name in _NIBBLES:
        return narrow(array, dtype)
    return array if array.dtype == dtype else lax.bitcast_convert_type(array, dtype)


def moved(
    move: Callable[..., jax.Array],
    *arrays: jax.Array,
    mesh: jax.sharding.Mesh | None = None,
    specs: tuple[Spec | None, Spec | None] = (None, None),
) -> jax.Array:
    """Applies ``move`` to arrays as integers; to real and imaginary parts of complex ones separately.

    Args:
        move: moves elements to other positions, and fills others with zeros only.
        arrays: of one element type, any.
        mesh: the mesh of the specs.
        specs: of the first array and of the result; None leaves the sharding to the compiler.
    """
    dtype = np.dtype(arrays[0].dtype)
    if mesh is not None and mesh.size == 1 and _is_wide(dtype):
        return move(*arrays)  # nothing is partitioned
    if dtype.kind == "c":
        parts = (map(part, arrays) for part in (lax.real, lax.imag))
        return lax.complex(*(moved(move, *of_part, mesh=mesh, specs=specs) for of_part in parts))
    if is_differentiated() and jnp.issubdtype(dtype, jnp.floating):
        with differentiation(on=False):
            value = moved(move, *map(lax.stop_gradient, arrays), mesh=mesh, specs=specs)
        first, *others = arrays
        return with_derivative(
            value, _with_sharding(move(_with_sharding(first, mesh, specs[0]), *others), mesh, specs[1])
        )
    first, *others = map(as_integers, arrays)
    # With these constraints the compiler sends the integers, not the arrays before or after the bitcast.
    return from_integers(_with_sharding(move(_with_sharding(first, mesh, specs[0]), *others), mesh, specs[1]), dtype)


def _with_sharding(array: jax.Array, mesh: jax.sharding.Mesh | None, spec: Spec | None) -> jax.Array:
    if mesh is None or spec is None:
        return array
    constrained: jax.Array = lax.with_sharding_constraint(array, NamedSharding(mesh, partition_spec(spec)))
    return constrained


def parts_of(array: jax.Array) -> tuple[jax.Array, ...]:
    """Returns an array as integers: one array, or those of the real and imaginary parts of a complex one."""
    if array.dtype.kind == "c":
        return as_integers(lax.real(array)), as_integers(lax.imag(array))
    integers = as_integers(array)
    return (integers.astype(np.uint8) if integers.dtype == np.bool_ else integers,)


def from_parts(parts: Sequence[jax.Array], dtype: np.dtype) -> jax.Array:
    """Reverses `parts_of` for an array of type ``dtype``."""
    if dtype.kind == "c":
        real, imaginary = (from_integers(part, np.empty(0, dtype).real.dtype) for part in parts)
        return lax.complex(real, imaginary)
    return parts[0] != 0 if dtype == np.bool_ else from_integers(parts[0], dtype)


def sum_of_parts(part: jax.Array, spec: Spec, mesh: MeshAxes) -> jax.Array:
    """Returns the running device's block of the sum of all devices' integers, in a `jax.shard_map`.

    Where one device has an element and the others have zero, the sum is that element, bit for bit.

    Args:
        part: of a shape that the spec divides.
        spec: the sharding of the sum.
        mesh: the mesh.
    """
    if not part.size:  # XLA refuses to scatter nothing
        return jnp.zeros(block_shape(part.shape, spec, mesh), part.dtype)
    for axis, names in enumerate(spec):
        if names:
            part = lax.psum_scatter(part, names, scatter_dimension=axis, tiled=True)
    others = [name for name in mesh.names if not any(name in names for names in spec)]
    summed: jax.Array = lax.psum(part, tuple(others)) if others else part
    return summed
