"""Reductions over axes, one kernel for each of `reduction_bodies.REDUCTIONS`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding

from shardcall_core.functions.reductions import ReduceParameters, VarParameters, operands_of
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.layouts.layout import (
    ArrayType,
    MeshAxes,
    OperandTypes,
    Spec,
    Specs,
    block_shape,
    format_spec,
    padded_shape,
    required,
)
from shardcall_server.kernels.core.blocks import fit, partition_spec
from shardcall_server.kernels.core.differentiation import is_differentiated
from shardcall_server.kernels.core.element_types import narrow, widen
from shardcall_server.kernels.core.exactness import is_relaxed
from shardcall_server.kernels.core.kernel import FunctionKernel, Problem, Program, Strategy
from shardcall_server.kernels.core.reproducibility import Reproducibility
from shardcall_server.kernels.elementwise.reduction_bodies import REDUCTIONS, ReducedAxis, Reducer, Reduction
from shardcall_server.kernels.numerics.ordering import is_negative_zero, truth


class ReduceKernel(FunctionKernel[ReduceParameters]):
    """A reduction over some or all axes, as NumPy's function of that name, with its element type.

    Elements that ``where`` excludes are left out; ``initial`` is combined with the reduction of the others. Without it,
    a call of ``max`` or ``min`` is refused if ``where`` leaves no element.

    ``sum``, ``prod``, ``mean``, ``var`` and ``std`` of floats of 16 bits and less are accumulated in float32 and
    rounded once. NaN, of complex numbers the first, is the ``max`` and ``min`` of all that holds one; ``argmax`` and
    ``argmin`` return the index of the first NaN, else of the first of equals.

    Sharding: every layout is served. Over axes that are not sharded nothing moves. Over axes that are,
    ``all_reduce`` has every device reduce its block, and one all-reduce of a device's part of the result finishes it: a
    psum or pmax (``prod``: an all-gather of the parts; ``var`` and ``argmax``: two all-reduces; of complex numbers
    three for ``argmax`` and five for ``max``). ``gspmd`` leaves the partitioning to the compiler. ``gathered``, for
    ``argmax`` and ``argmin`` of small arrays, gathers x along those axes and takes the compiler's own function.

    Source: the NumPy reference, Mathematical functions and Statistics; the JAX notebook shard_map, section "psum".
    """

    reduction: ClassVar[Reduction]
    version = 10

    def default_in_specs(
        self, operands: OperandTypes, parameters: ReduceParameters, in_specs: Specs, mesh: MeshAxes, strategy: str
    ) -> Specs:
        """Fills in unset specs: x by rows over all mesh axes, ``where`` as x, ``initial`` on every device."""
        x, (spec,) = required(operands[0]), super().default_in_specs(operands[:1], parameters, in_specs[:1], mesh, "")
        unset = (None if o is None else _beside(o, x, required(spec)) for o in operands[1:])
        others = zip(operands[1:], in_specs[1:], unset, strict=True)
        return (
            spec,
            *(None if o is None else requested if requested is not None else other for o, requested, other in others),
        )

    def default_out_specs(self, problem: Problem[ReduceParameters], strategy: str) -> Specs:
        """Shards the result as x, without the axes that are reduced."""
        return (problem.out_specs[0] or _reduced_spec(problem),)

    def choose(self, problem: Problem[ReduceParameters]) -> tuple[str, str]:
        """Returns ``gathered`` for an index in a small x, ``all_reduce`` if sharded axes are reduced, or ``gspmd``."""
        if problem.is_small and self.reduction.in_line and _gathered_refusal(problem) is None:
            return "gathered", "x is small, and this program is compiled in the least time"
        names = _names(problem)
        if problem.mesh.size(names) == 1:
            return "gspmd", "no axis that is reduced is sharded, so nothing moves"
        if why := _all_reduce_refusal(problem):
            return "gspmd", f"all_reduce cannot: {why}"
        return "all_reduce", f"a reduced axis is sharded over {', '.join(names)}; only the devices' parts move"


def _beside(operand: ArrayType, x: ArrayType, spec: Spec) -> Spec:
    """Returns the spec of an operand that is broadcast to x: sharded as x along the axes of x's size."""
    behind = x.ndim - operand.ndim
    return tuple(spec[behind + i] if n == x.shape[behind + i] else () for i, n in enumerate(operand.shape))


def _axes(problem: Problem[ReduceParameters]) -> tuple[int, ...]:
    return problem.parameters.axis


def _names(problem: Problem[ReduceParameters]) -> tuple[str, ...]:
    spec = required(problem.in_specs[0])
    return tuple(name for i in _axes(problem) for name in spec[i])


def _reduced_spec(problem: Problem[ReduceParameters]) -> Spec:
    axis, spec = _axes(problem), required(problem.in_specs[0])
    keepdims = problem.parameters.keepdims
    return tuple(() if i in axis else names for i, names in enumerate(spec) if keepdims or i not in axis)


def _reduce(
    row: Reduction, problem: Problem[ReduceParameters], reducer: Reducer, x: jax.Array, *others: jax.Array
) -> tuple[jax.Array, ...]:
    """Reduces x over axes, which stay with size 1 if the call keeps them.

    Returns behind the result, for a call that checks it, where there is an element that ``where`` leaves.

    Args:
        reducer: the axes, and the mesh axes they are sharded over.
        x: the array, or a block of it.
        others: ``where``, which broadcasts to x, and ``initial``, those that are present.
    """
    (result,), (_, where, initial) = problem.results, operands_of(problem.operands)
    rest = iter(others)
    if where is not None:
        reducer = replace(reducer, where=jnp.broadcast_to(truth(next(rest)), x.shape))
    ddof = problem.parameters.ddof if isinstance(problem.parameters, VarParameters) else 0
    reduced = row.body(x, reducer, result.dtype, ddof)
    if initial is not None:
        start = _initial(next(rest), result.dtype)
        reduced = _begun(row, reducer, reduced, start)
        if row.name == "sum" and not is_relaxed() and not is_differentiated():
            reduced = _signed_zero(widen(x, result.dtype), reducer, reduced, start)
    exist = [reducer.any(required(reducer.where))] if problem.checks else []
    if not problem.parameters.keepdims:
        reduced, *exist = (jnp.squeeze(array, reducer.axes) for array in (reduced, *exist))
    return narrow(reduced, result.dtype), *exist


def _begun(row: Reduction, reducer: Reducer, reduced: jax.Array, initial: jax.Array) -> jax.Array:
    """Combines a result and the initial value."""
    assert row.combine is not None
    initial = jnp.broadcast_to(initial, reduced.shape)
    combined = row.combine(reduced, initial)
    if reducer.where is None or row.of_none is not None:
        return combined
    return jnp.where(reducer.any(reducer.where), combined, initial)


def _signed_zero(x: jax.Array, reducer: Reducer, total: jax.Array, initial: jax.Array) -> jax.Array:
    """Returns a sum that is -0.0 where it begins with -0.0 and all elements are -0.0, as NumPy's."""
    if x.dtype.kind == "c":
        parts = [_signed_zero(part(x), reducer, part(total), part(initial)) for part in (lax.real, lax.imag)]
        return lax.complex(*parts)
    if x.dtype.kind != "f":
        return total
    is_negative = is_negative_zero(initial) & ~reducer.any(~is_negative_zero(x))
    return jnp.where(is_negative, initial, total)


def _initial(value: jax.Array, dtype: np.dtype) -> jax.Array:
    return widen(value.astype(dtype), dtype)


def _gspmd(row: Reduction, problem: Problem[ReduceParameters]) -> Program:
    (x, where, initial), (result,) = operands_of(problem.operands), problem.results
    padded = problem.padded_result()
    if 0 in x.shape:

        def of_none(*arrays: jax.Array) -> tuple[jax.Array, ...]:
            if initial is None:
                fill = row.of_none or 0  # if it is undefined, the result has no elements
                is_complex_nan = result.dtype.kind == "c" and np.isnan(fill)
                value = jnp.full((), complex(fill, fill) if is_complex_nan else fill, result.dtype)
            else:
                value = arrays[-1]
            return jnp.broadcast_to(value.astype(result.dtype), padded), *[jnp.zeros((), bool)] * len(problem.checks)

        return of_none

    def program(array: jax.Array, *others: jax.Array) -> tuple[jax.Array, ...]:
        sizes = tuple(
            ReducedAxis(i, x.shape[i], array.shape[i], (), array.shape[i] > x.shape[i]) for i in _axes(problem)
        )
        if where is not None:
            here = zip(where.shape, array.shape[x.ndim - where.ndim :], strict=True)
            mask = fit(fit(others[0], where.shape), [n if n == 1 else m for n, m in here])
            others = (mask, *others[1:])
        reducer = Reducer(sizes, is_partitioned=problem.mesh.size(_names(problem)) > 1)
        reduced, *exist = _reduce(row, problem, reducer, array, *others)
        return fit(reduced, padded), *_flags(problem, exist)

    return program


def _flags(problem: Problem[ReduceParameters], exist: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
    """Returns the flag of a result without an element that ``where`` leaves, of a call that checks it."""
    return tuple(~jnp.all(fit(array, problem.results[0].shape)) for array in exist)


def _all_reduce(row: Reduction, problem: Problem[ReduceParameters], mesh: jax.sharding.Mesh) -> Program:
    x, spec = required(problem.operands[0]), required(problem.in_specs[0])
    block = block_shape(x.shape, spec, problem.mesh)
    padded = padded_shape(x.shape, spec, problem.mesh)
    reducer = Reducer(
        tuple(ReducedAxis(i, x.shape[i], block[i], spec[i], padded[i] > x.shape[i]) for i in _axes(problem))
    )
    out_spec = partition_spec(_reduced_spec(problem))
    body: Callable[..., tuple[jax.Array, ...]] = jax.shard_map(
        lambda *arrays: _reduce(row, problem, reducer, *arrays),
        mesh=mesh,
        in_specs=tuple(partition_spec(operand_spec) for operand_spec in problem.in_specs if operand_spec is not None),
        out_specs=(out_spec,) * (1 + len(problem.checks)),
        check_vma=False,  # JAX cannot infer that gathered arrays, as of prod, are equal on all devices
    )

    def program(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        reduced, *exist = body(*arrays)
        return reduced, *_flags(problem, exist)

    return program


def _gathered(row: Reduction, problem: Problem[ReduceParameters], mesh: jax.sharding.Mesh) -> Program:
    x, axes, padded = required(problem.operands[0]), _axes(problem), problem.padded_result()
    rest = [i for i in range(len(x.shape)) if i not in axes]
    spec = tuple(() if i in axes else names for i, names in enumerate(required(problem.in_specs[0])))

    def program(array: jax.Array) -> tuple[jax.Array, ...]:
        assert row.in_line is not None
        gathered = lax.with_sharding_constraint(array, NamedSharding(mesh, partition_spec(spec)))
        complete = fit(gathered, [x.shape[i] if i in axes else n for i, n in enumerate(array.shape)])
        lines = complete.transpose(*rest, *axes).reshape(*(array.shape[i] for i in rest), -1)
        reduced = row.in_line(widen(lines, x.dtype))
        return (fit(jnp.expand_dims(reduced, axes) if problem.parameters.keepdims else reduced, padded),)

    return program


def _gathered_refusal(problem: Problem[ReduceParameters]) -> str | None:
    x = required(problem.operands[0])
    return "x is complex or has no elements" if x.dtype.kind == "c" or 0 in x.shape else None


def _all_reduce_refusal(problem: Problem[ReduceParameters]) -> str | None:
    x, spec = required(problem.operands[0]), required(problem.in_specs[0])
    if 0 in x.shape:
        return "x has no elements"
    for operand, operand_spec in zip(problem.operands[1:], problem.in_specs[1:], strict=True):
        if operand is not None and operand_spec != (needed := _beside(operand, x, spec)):
            present = format_spec(operand_spec or ())
            return f"where is sharded as {present}, and with this x it serves {format_spec(needed)}"
    served, asked = _reduced_spec(problem), problem.out_specs[0]
    if asked is not None and asked != served:
        return f"the result is to be {format_spec(asked)}, and of this x it makes {format_spec(served)}"
    return None


def _kernel(row: Reduction) -> ReduceKernel:

    class NamedReduction(ReduceKernel):
        __doc__ = ReduceKernel.__doc__
        function = FUNCTIONS[row.name]
        reduction = row
        reproducibility = Reproducibility.NOT_PROMISED if row.averages else row.reproducibility
        strategies = (
            Strategy(
                "gspmd",
                "The reduction of the unsharded array, partitioned by the compiler. Serves every layout.",
                lambda _: None,
                lambda problem, _: _gspmd(row, problem),
            ),
            Strategy(
                "all_reduce",
                "Every device reduces its block, and the parts are reduced over the devices. Serves a result "
                "sharded as x, without the reduced axes.",
                _all_reduce_refusal,
                lambda problem, mesh: _all_reduce(row, problem, mesh),
            ),
            *_gathered_strategies(row),
        )

    return NamedReduction()


def _gathered_strategies(row: Reduction) -> tuple[Strategy, ...]:
    if row.in_line is None:
        return ()
    return (
        Strategy(
            "gathered",
            "x is gathered along the axes that are reduced, and reduced by the compiler's own function. Serves "
            "every layout of real numbers.",
            _gathered_refusal,
            lambda problem, mesh: _gathered(row, problem, mesh),
        ),
    )


def reductions() -> tuple[ReduceKernel, ...]:
    """Returns one kernel for each reduction."""
    return tuple(map(_kernel, REDUCTIONS))
