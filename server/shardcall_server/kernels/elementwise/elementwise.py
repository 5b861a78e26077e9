"""Functions that act element by element, one kernel for each of `ufuncs.UFUNCS`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

import jax
import numpy as np
from jax import lax

from shardcall_core.functions.elementwise import broadcast_shape, loop_of
from shardcall_core.functions.signature import ParameterValues, Signature
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.functions.type_rules import Loop
from shardcall_core.layouts.layout import (
    ArrayType,
    MeshAxes,
    OperandTypes,
    Spec,
    Specs,
    padded_shape,
    required,
    sharded,
)
from shardcall_server.kernels.core.all_gather_plan import AllGatherPlan
from shardcall_server.kernels.core.bits import moved
from shardcall_server.kernels.core.blocks import fit
from shardcall_server.kernels.core.blockwise import AlignedAxis, Blockwise
from shardcall_server.kernels.core.element_types import narrow, widen, working_type
from shardcall_server.kernels.core.kernel import FunctionKernel, Problem, Program, Strategy
from shardcall_server.kernels.core.reproducibility import Reproducibility, all_real
from shardcall_server.kernels.core.value_checks import any_element
from shardcall_server.kernels.elementwise.ufuncs import UFUNCS, Refusal, Ufunc
from shardcall_server.kernels.numerics.ordering import to_double, truth


class ElementwiseKernel(FunctionKernel[None]):
    """A function of one, two or three operands, element by element, as NumPy's ufunc of that name.

    ``r[i, …] = f(x[i, …], y[i, …])`` with NumPy's broadcasting and NumPy's element types. Real arithmetic,
    comparisons and all other exact functions are NumPy's bit for bit, except for subnormal numbers; types narrower than
    float32 are computed in float32 and rounded once. On CPU, arithmetic treats subnormal numbers as zero; comparisons,
    ``where``, ``clip``, ``sign``, ``maximum`` and the like, logic, rounding, ``sqrt`` and logarithms do not. Real
    powers, roots, exponentials, logarithms and trigonometric functions are within a few units in the last place;
    docs/accuracy.md lists the errors, and those of complex functions, some of which lose all digits near the limits of
    the type. Infinities, NaN and zeros' signs of complex numbers, which choose the side of a branch cut, are NumPy's.

    Sharding: any axis of any operand may be sharded. Nothing moves where the specs agree; where they do not, operands
    are brought to that of the largest operand, the first of equals, and the result goes from there, every bit of it.

    Source: the NumPy reference, Universal functions.
    """

    ufunc: ClassVar[Ufunc]
    version = 10
    reproducibility = Reproducibility.PER_CALL

    def validate(self, operands: OperandTypes, parameters: ParameterValues) -> Signature[None]:
        """Checks a call and determines the result's type.

        Raises:
            CallError: for shapes that do not broadcast and element types that NumPy refuses.
        """
        signature = super().validate(operands, parameters)
        refusals = _refusals(self.ufunc, loop_of(self.name, operands))
        return replace(signature, checks=tuple(refusal.check for refusal in refusals))

    def computed_type(self, operands: OperandTypes) -> np.dtype:
        """Returns the type in which the function is computed.

        Raises:
            CallError: NumPy does not accept operands of these types.
        """
        types = [dtype for dtype in loop_of(self.name, operands).operands if dtype is not None]
        return types[-1]  # the first of `where` is a condition

    def default_in_specs(
        self, operands: OperandTypes, parameters: None, in_specs: Specs, mesh: MeshAxes, strategy: str
    ) -> Specs:
        """Fills in unset specs: as those that are set, axis by axis; else the result's rows over all mesh axes."""
        shape = broadcast_shape(self.function.named_operands, operands)
        if any(spec is not None for spec in in_specs):
            guide = _result_spec(shape, operands, in_specs)
        else:
            guide = sharded(len(shape), 0, mesh.names)
        return tuple(
            spec if spec is not None or operand is None else _followed(operand, shape, guide)
            for operand, spec in zip(operands, in_specs, strict=True)
        )

    def is_reproducible(self, problem: Problem) -> bool:
        """Returns True if no operand or result is complex."""
        return all_real((*problem.operands, *problem.results))

    def blockwise(self, problem: Problem) -> Blockwise | None:
        """Returns a call as one of a region, if no value of it may be refused."""
        loop, (result,) = loop_of(self.name, problem.operands), problem.results
        spec = required(problem.out_specs[0])
        if problem.checks:
            return None
        present = [(o, required(t)) for o, t in zip(problem.operands, loop.operands, strict=True) if o is not None]
        in_specs = tuple(_followed(operand, result.shape, spec) for operand, _ in present)
        aligned = tuple(
            tuple(
                AlignedAxis(i, 0) if names else None
                for i, names in enumerate(of_operand, result.ndim - len(of_operand))
            )
            for of_operand in in_specs
        )

        def body(shape: tuple[int, ...], _: Sequence[int | jax.Array], arrays: Sequence[jax.Array]) -> jax.Array:
            blocks = iter(arrays)
            wide = [
                None if dtype is None else _in_type_of(self.ufunc, next(blocks), dtype, shape)
                for dtype in loop.operands
            ]
            return narrow(self.ufunc.body(*wide), result.dtype)

        return Blockwise(in_specs, aligned, body, takes_offsets=False)

    def default_out_specs(self, problem: Problem, strategy: str) -> Specs:
        """Shards the result as its largest operand, the first of equals."""
        shape = problem.results[0].shape
        return (problem.out_specs[0] or _result_spec(shape, problem.operands, problem.in_specs),)


def _followed(operand: ArrayType, shape: tuple[int, ...], guide: Spec) -> Spec:
    """Returns the guide's entries where the operand has the result's size, none where it is broadcast."""
    behind = len(shape) - operand.ndim
    return tuple(guide[behind + i] if n == shape[behind + i] else () for i, n in enumerate(operand.shape))


def _result_spec(shape: tuple[int, ...], operands: OperandTypes, in_specs: Sequence[Spec | None]) -> Spec:
    """Returns the spec of the largest operand, the first of equals; of axes that it does not have, that of the next."""
    pairs = [(o, s) for o, s in zip(operands, in_specs, strict=True) if o is not None and s is not None]
    result, used = dict[int, tuple[str, ...]](), set[str]()
    for operand, spec in sorted(pairs, key=lambda pair: -math.prod(pair[0].shape)):
        behind = len(shape) - operand.ndim
        for i, (n, names) in enumerate(zip(operand.shape, spec, strict=True), behind):
            if n == shape[i] and i not in result and used.isdisjoint(names):
                result[i] = names
                used.update(names)
    return tuple(result.get(i, ()) for i in range(len(shape)))


def _refusals(function: Ufunc, loop: Loop) -> list[Refusal]:
    return [refusal for refusal in function.refusals if refusal.applies(loop)]


def _flags(function: Ufunc, loop: Loop, problem: Problem, mesh: jax.sharding.Mesh) -> Callable[..., list[jax.Array]]:
    """Returns the function that computes, from the present operands, a flag for each refusal that applies."""
    names = [info.name for info in FUNCTIONS[function.name].operands]
    present = [i for i, operand in enumerate(problem.operands) if operand is not None]

    def flags(*arrays: jax.Array) -> list[jax.Array]:
        computed = []
        for refusal in _refusals(function, loop):
            i = names.index(refusal.check.operand)
            operand_type, spec, array = problem.operands[i], problem.in_specs[i], arrays[present.index(i)]
            assert operand_type is not None
            assert spec is not None
            wide = widen(array, array.dtype)
            computed.append(any_element(refusal.refused, wide, operand_type.shape, mesh, spec))
        return computed

    return flags


def _widened(array: jax.Array, dtype: np.dtype) -> jax.Array:
    """`widen` for subnormal numbers too, which are normal numbers of the wider type."""
    part, wide = (np.empty(0, of).real.dtype for of in (array.dtype, dtype))
    if working_type(part) != np.float32 or wide != np.float64:
        return widen(array, dtype)
    if array.dtype.kind == "c":
        return lax.complex(to_double(lax.real(array)), to_double(lax.imag(array)))
    return widen(to_double(widen(array, array.dtype)), dtype)


def _in_type_of(function: Ufunc, array: jax.Array, dtype: np.dtype, shape: tuple[int, ...]) -> jax.Array:
    """Returns an operand in the type in which a function is computed, and in the shape of its result."""
    wide = truth(array) if dtype == np.bool_ else _widened(array, dtype)
    if function.keeps_scalars and not array.ndim:
        return wide
    return lax.broadcast_in_dim(wide, shape, range(len(shape) - array.ndim, len(shape)))


def _program(function: Ufunc, problem: Problem, mesh: jax.sharding.Mesh) -> Program:
    loop, (result,) = loop_of(function.name, problem.operands), problem.results
    operand_spec = _result_spec(result.shape, problem.operands, problem.in_specs)
    out_spec = required(problem.out_specs[0])
    plan = AllGatherPlan.of(result.shape, operand_spec, out_spec, problem.mesh)
    # If no gather is needed, the operands are sliced first, so that less is computed.
    here = operand_spec if plan.gathers else out_spec
    padded = padded_shape(result.shape, here, problem.mesh)

    def resharded(array: jax.Array, shape: Sequence[int], has: Spec, needs: Spec) -> jax.Array:
        """Returns the array with another padding and sharding; the compiler moves it bit for bit."""
        if has == needs:
            return fit(array, shape)
        return moved(lambda bits: fit(bits, shape), array, mesh=mesh, specs=(has, needs))

    def operand(array: jax.Array, array_type: ArrayType, spec: Spec, dtype: np.dtype) -> jax.Array:
        behind = len(padded) - array_type.ndim
        sizes = [padded[behind + i] if n == result.shape[behind + i] else n for i, n in enumerate(array_type.shape)]
        array = resharded(array, sizes, spec, _followed(array_type, result.shape, here))
        return _in_type_of(function, array, dtype, padded)

    flags = _flags(function, loop, problem, mesh)

    def program(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        present = iter(arrays)
        wide = [
            None if array_type is None or spec is None else operand(next(present), array_type, spec, required(dtype))
            for array_type, spec, dtype in zip(problem.operands, problem.in_specs, loop.operands, strict=True)
        ]
        computed = narrow(function.body(*wide), result.dtype)
        if plan.only_gathers:
            return (plan.of_arrays(mesh)(computed), *flags(*arrays))
        return (resharded(computed, problem.padded_result(), here, out_spec), *flags(*arrays))

    return program


def _kernel(row: Ufunc) -> ElementwiseKernel:

    class NamedFunction(ElementwiseKernel):
        __doc__ = ElementwiseKernel.__doc__
        function = FUNCTIONS[row.name]
        ufunc = row
        strategies = (
            Strategy(
                "gspmd",
                "Every device computes its own elements. Serves every layout; the compiler moves what is sharded "
                "otherwise than the result, and a result sharded over fewer mesh axes is gathered.",
                lambda _: None,
                lambda problem, mesh: _program(row, problem, mesh),
            ),
        )

    return NamedFunction()


def elementwise() -> tuple[ElementwiseKernel, ...]:
    """Returns one kernel for each function."""
    return tuple(map(_kernel, UFUNCS.values()))
