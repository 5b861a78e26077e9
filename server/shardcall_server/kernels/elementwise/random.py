"""Random arrays: every device generates its own blocks, and the values do not depend on the mesh.

They are `jax.random`'s for the key of a seed, bit for bit: the counter-based generator Threefry-2x32 takes an
element's index in the array as its counter (``jax_threefry_partitionable``), so nothing has to be sent.

Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011; JAX's tutorial on
distributed arrays, section "Generating random numbers".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.functions.element_types import NAMED
from shardcall_core.functions.function import REQUIRED
from shardcall_core.layouts.layout import ArrayType, MeshAxes, OperandTypes, Specs, row_sharding
from shardcall_core.layouts.signature import OperandInfo, ParameterInfo, ParameterValues, Signature
from shardcall_server.kernels.core.axes import axis_of
from shardcall_server.kernels.core.bits import moved
from shardcall_server.kernels.core.blocks import fit
from shardcall_server.kernels.core.kernel import Kernel, Problem, Program, Strategy, required
from shardcall_server.kernels.core.parameters import integer, shape, text
from shardcall_server.kernels.core.reproducibility import Reproducibility, all_real

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_COMPLEX = ("complex64", "complex128")
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_SEED = OperandInfo("seed", "An integer; equal seeds give equal values, on every mesh.")


def key_of(seed: jax.Array) -> jax.Array:
    """Returns the key of a seed; equal seeds of any integer type have one key."""
    return jax.random.key(seed.astype(np.int64))


def check_seed(seed: ArrayType) -> None:
    """Refuses a seed that is no integer.

    Raises:
        CallError: it is an array, or of another type.
    """
    _check_scalar("seed", seed, "iu", "an integer")


def _check_scalar(name: str, operand: ArrayType, kinds: str, allowed: str) -> None:
    if operand.ndim or operand.dtype.kind not in kinds:
        raise CallError(
            Reason.INVALID_OPERAND,
            f"{name} is {shorten(str(operand))}; give {allowed}, as a scalar",
            field=name,
        )


@dataclass(frozen=True)
class DrawParameters:
    """The parameters of a distribution's kernel: the result's shape and the name of its element type."""

    shape: tuple[int, ...]
    dtype: str


class _Drawn(Kernel[DrawParameters]):
    """Independent values of one distribution."""

    version = 1
    reproducibility = Reproducibility.ALWAYS
    element_types: ClassVar[tuple[str, ...]]
    scalar_kinds: ClassVar[tuple[str, str]]

    def validate(self, operands: OperandTypes, parameters: ParameterValues) -> Signature[DrawParameters]:
        """Checks a call and determines the result's type.

        Raises:
            CallError: for operands that are no scalars, a shape that is none, and an element type that the
                distribution does not have.
        """
        check_seed(required(operands[0]))
        kinds, allowed = self.scalar_kinds
        for info, operand in zip(self.operands[1:], operands[1:], strict=True):
            if operand is not None:
                _check_scalar(info.name, operand, kinds, allowed)
        sizes, name = shape(parameters, "shape"), text(parameters, "dtype")
        if name not in self.element_types:
            raise CallError(
                Reason.UNSUPPORTED_ELEMENT_TYPE,
                f"dtype={shorten(name)!r} is no element type of {self.name}; give one of: "
                + ", ".join(self.element_types),
                field="dtype",
            )
        dtype = NAMED[name]
        return Signature(DrawParameters(sizes, name), (ArrayType(sizes, dtype),))

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
        Strategy("gspmd", "Every device makes its own blocks; nothing is sent.", lambda _: None, partial(_build, draw)),
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


def _parameters(dtype: str) -> tuple[ParameterInfo, ...]:
    return (
        ParameterInfo("shape", "The result's shape: an integer or several.", REQUIRED),
        ParameterInfo("dtype", "The result's element type, by name.", dtype),
    )


def _uniform(key: jax.Array, sizes: tuple[int, ...], dtype: np.dtype, scalars: list[jax.Array]) -> jax.Array:
    low, high = (scalar.astype(dtype) for scalar in scalars)
    return jax.random.uniform(key, sizes, dtype, low, high)


def _normal(key: jax.Array, sizes: tuple[int, ...], dtype: np.dtype, scalars: list[jax.Array]) -> jax.Array:
    loc, scale = (scalar.astype(dtype) for scalar in scalars)
    return loc + scale * jax.random.normal(key, sizes, dtype)


def _randint(key: jax.Array, sizes: tuple[int, ...], dtype: np.dtype, scalars: list[jax.Array]) -> jax.Array:
    low, high = scalars
    return jax.random.randint(key, sizes, low, high, dtype)


class Uniform(_Drawn):
    """Values uniform in [low, high), as ``numpy.random.Generator.uniform``.

    ``r = low + (high - low) · u`` with u of `jax.random.uniform` for the key of the seed: 23 random bits of a float32,
    52 of a float64. Rounded to the type, values just below high may be high, as `jax.random`'s are.

    Sharding: any; nothing moves.
    """

    name = "uniform"
    summary = "Random values uniform in [low, high), the same on every mesh."
    operands = (
        _SEED,
        OperandInfo("low", "The least value; 0 if left out.", optional=True),
        OperandInfo("high", "What all values are below, but for their rounding; 1 if left out.", optional=True),
    )
    parameters = _parameters("float64")
    element_types = _FLOATS
    scalar_kinds = ("biuf", "a real number")
    strategies = _device_local(_uniform)


class Normal(_Drawn):
    """Normal values of mean loc and standard deviation scale, as ``numpy.random.Generator.normal``.

    ``r = loc + scale · z`` with z of `jax.random.normal` for the key of the seed. Of a complex type real and imaginary
    part have half the variance each.

    Sharding: any; nothing moves.
    """

    name = "normal"
    summary = "Normal random values, the same on every mesh."
    operands = (
        _SEED,
        OperandInfo("loc", "The mean; 0 if left out.", optional=True),
        OperandInfo("scale", "The standard deviation; 1 if left out.", optional=True),
    )
    parameters = _parameters("float64")
    element_types = (*_FLOATS, *_COMPLEX)
    scalar_kinds = ("biuf", "a real number")
    strategies = _device_local(_normal)
    reproducibility = Reproducibility.PER_CALL

    def is_reproducible(self, problem: Problem) -> bool:
        """Returns True if no operand or result is complex."""
        return all_real((*problem.operands, *problem.results))


class RandInt(_Drawn):
    """Integers uniform in [low, high), as ``numpy.random.Generator.integers``.

    `jax.random.randint` for the key of the seed: a remainder of twice as many bits as the type has, so that the values'
    frequencies differ by less than 2⁻ᵇ for a type of b bits. Where high is not above low all are low. A bound beyond
    the type is taken for the nearest that it may be: one of the type's values or, of high, 1 more than the greatest.

    Sharding: any; nothing moves.
    """

    name = "randint"
    summary = "Random integers uniform in [low, high), the same on every mesh."
    operands = (
        _SEED,
        OperandInfo("low", "The least value."),
        OperandInfo("high", "What all values are below."),
    )
    parameters = _parameters("int64")
    element_types = _INTEGERS
    scalar_kinds = ("iu", "an integer")
    strategies = _device_local(_randint)


@dataclass(frozen=True)
class PermutationParameters:
    """The parameters of `Permutation`."""

    axis: int


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


class Permutation(Kernel[PermutationParameters]):
    """The rows of an array in random order, as ``numpy.random.Generator.permutation``.

    ``r[i] = x[p[i]]`` along the axis, with p of `jax.random.permutation` for the key of the seed.

    Sharding: any; along a sharded axis rows go between devices as the compiler arranges it.
    """

    name = "permutation"
    version = 2
    reproducibility = Reproducibility.ALWAYS
    summary = "The rows of an array in random order, the same order on every mesh."
    operands = (_SEED, OperandInfo("x", "The array, of rank 1 or more and any element type."))
    parameters = (ParameterInfo("axis", "Along which axis; negative ones count from the last.", 0),)
    strategies = (
        Strategy("gspmd", "A gather of the unsharded array, partitioned by the compiler.", lambda _: None, _permuted),
    )

    def validate(self, operands: OperandTypes, parameters: ParameterValues) -> Signature[PermutationParameters]:
        """Checks a call and determines the result's type.

        Raises:
            CallError: for a seed that is no integer, a scalar x, and an axis that it does not have.
        """
        seed, x = map(required, operands)
        check_seed(seed)
        axis = axis_of(x, integer(parameters, "axis"), "permutation")
        return Signature(PermutationParameters(axis), (x,))

    def default_in_specs(
        self, operands: OperandTypes, parameters: PermutationParameters, in_specs: Specs, mesh: MeshAxes, strategy: str
    ) -> Specs:
        """Replicates the seed and shards x by rows over all mesh axes."""
        x = required(operands[1])
        return (), row_sharding(x.ndim, mesh) if in_specs[1] is None else in_specs[1]

    def default_out_specs(self, problem: Problem, strategy: str) -> Specs:
        """Shards the result as x."""
        return (problem.in_specs[1] if problem.out_specs[0] is None else problem.out_specs[0],)
