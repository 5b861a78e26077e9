"""Random arrays: every device generates its own blocks, and the values do not depend on the mesh.

They are `jax.random`'s for the key of a seed, bit for bit: the counter-based generator Threefry-2x32 takes an
element's index in the array as its counter (``jax_threefry_partitionable``), so nothing has to be sent.

Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011; JAX's tutorial on
distributed arrays, section "Generating random numbers".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from shardcall_core.functions.random import DrawParameters, PermutationParameters
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.layouts.layout import MeshAxes, OperandTypes, Specs, required, row_sharding
from shardcall_server.kernels.core.bits import moved
from shardcall_server.kernels.core.blocks import fit
from shardcall_server.kernels.core.kernel import FunctionKernel, Problem, Program, Strategy
from shardcall_server.kernels.core.reproducibility import Reproducibility, all_real


def key_of(seed: jax.Array) -> jax.Array:
    """Returns the key of a seed; equal seeds of any integer type have one key."""
    return jax.random.key(seed.astype(np.int64))


class _DistributionKernel(FunctionKernel[DrawParameters]):
    """Independent values of one distribution."""

    version = 1
    reproducibility = Reproducibility.ALWAYS

    def default_in_specs(
        self, operands: OperandTypes, parameters: DrawParameters, in_specs: Specs, mesh: MeshAxes, strategy: str
    ) -> Specs:
        """Replicates all operands, which are scalars."""
        return tuple(None if operand is None else () for operand in operands)

    def default_out_specs(self, problem: Problem, strategy: str) -> Specs:
        """Shards the result by rows over all mesh axes."""
        (spec,), (result,) = problem.out_specs, problem.results
        return (row_sharding(result.ndim, problem.mesh) if spec is None else spec,)


_Draw = Callable[[jax.Array, tuple[int, ...], np.dtype, list[jax.Array]], jax.Array]
"""Values of a distribution from a key, their shape and type, and the distribution's two scalars."""


def _device_local(draw: _Draw) -> tuple[Strategy, ...]:
    return (
        Strategy(
            "gspmd", "Every device computes its own blocks; nothing is sent.", lambda _: None, partial(_build, draw)
        ),
    )


def _build(draw: _Draw, problem: Problem, mesh: jax.sharding.Mesh) -> Program:
    del mesh
    (result,), padded = problem.results, problem.padded_result()
    # Rows appended to the array change no element's index; columns would.
    sizes = (*padded[:1], *result.shape[1:])
    present = [operand is not None for operand in problem.operands[1:]]

    def program(seed: jax.Array, *others: jax.Array) -> tuple[jax.Array]:
        arrays = iter(others)
        scalars = [next(arrays) if there else jnp.int64(i) for i, there in enumerate(present)]
        return (fit(draw(key_of(seed), sizes, result.dtype, scalars), padded),)

    return program


def _uniform(key: jax.Array, sizes: tuple[int, ...], dtype: np.dtype, scalars: list[jax.Array]) -> jax.Array:
    low, high = (scalar.astype(dtype) for scalar in scalars)
    return jax.random.uniform(key, sizes, dtype, low, high)


def _normal(key: jax.Array, sizes: tuple[int, ...], dtype: np.dtype, scalars: list[jax.Array]) -> jax.Array:
    loc, scale = (scalar.astype(dtype) for scalar in scalars)
    return loc + scale * jax.random.normal(key, sizes, dtype)


def _randint(key: jax.Array, sizes: tuple[int, ...], dtype: np.dtype, scalars: list[jax.Array]) -> jax.Array:
    low, high = scalars
    return jax.random.randint(key, sizes, low, high, dtype)


class Uniform(_DistributionKernel):
    """Values uniform in [low, high), as ``numpy.random.Generator.uniform``.

    ``r = low + (high - low) · u`` with u of `jax.random.uniform` for the key of the seed: 23 random bits of a float32,
    52 of a float64. Rounded to the type, values just below high may be high, as `jax.random`'s are.

    Sharding: any; nothing moves.
    """

    function = FUNCTIONS["uniform"]
    strategies = _device_local(_uniform)


class Normal(_DistributionKernel):
    """Normal values of mean loc and standard deviation scale, as ``numpy.random.Generator.normal``.

    ``r = loc + scale · z`` with z of `jax.random.normal` for the key of the seed. Of a complex type real and imaginary
    part have half the variance each.

    Sharding: any; nothing moves.
    """

    function = FUNCTIONS["normal"]
    strategies = _device_local(_normal)
    reproducibility = Reproducibility.PER_CALL

    def is_reproducible(self, problem: Problem) -> bool:
        """Returns True if no operand or result is complex."""
        return all_real((*problem.operands, *problem.results))


class RandInt(_DistributionKernel):
    """Integers uniform in [low, high), as ``numpy.random.Generator.integers``.

    `jax.random.randint` for the key of the seed, with b = 64 bits for types of 64 and 32 for others: of n ≤ 2^(b/2)
    values a remainder of 2b bits, so that frequencies differ by less than 2⁻ᵇ; of more values one of b bits, so that
    the lowest 2ᵇ mod n come up more often, by 1 part in ⌊2ᵇ/n⌋. If high is not above low, all values are low. A bound
    beyond the type becomes the nearest valid one: a value of the type or, for high, 1 more than the greatest.

    Sharding: any; nothing moves.
    """

    function = FUNCTIONS["randint"]
    strategies = _device_local(_randint)


def _permuted(problem: Problem[PermutationParameters], mesh: jax.sharding.Mesh) -> Program:
    x, padded = required(problem.operands[1]), problem.padded_result()
    axis = problem.parameters.axis
    specs = problem.in_specs[1], problem.out_specs[0]

    def program(seed: jax.Array, array: jax.Array) -> tuple[jax.Array]:
        permutation = jax.random.permutation(key_of(seed), x.shape[axis])

        def permuted(rows: jax.Array) -> jax.Array:
            return fit(jnp.take(fit(rows, x.shape), permutation, axis=axis, unique_indices=True), padded)

        return (moved(permuted, array, mesh=mesh, specs=specs),)

    return program


class Permutation(FunctionKernel[PermutationParameters]):
    """The rows of an array in random order, as ``numpy.random.Generator.permutation``.

    ``r[i] = x[p[i]]`` along the axis, with p of `jax.random.permutation` for the key of the seed.

    Sharding: any; along a sharded axis rows go between devices as the compiler arranges it.
    """

    function = FUNCTIONS["permutation"]
    version = 2
    reproducibility = Reproducibility.ALWAYS
    strategies = (
        Strategy("gspmd", "A gather of the unsharded array, partitioned by the compiler.", lambda _: None, _permuted),
    )

    def default_in_specs(
        self, operands: OperandTypes, parameters: PermutationParameters, in_specs: Specs, mesh: MeshAxes, strategy: str
    ) -> Specs:
        """Replicates the seed and shards x by rows over all mesh axes."""
        x = required(operands[1])
        return (), row_sharding(x.ndim, mesh) if in_specs[1] is None else in_specs[1]

    def default_out_specs(self, problem: Problem, strategy: str) -> Specs:
        """Shards the result as x."""
        return (problem.in_specs[1] if problem.out_specs[0] is None else problem.out_specs[0],)
