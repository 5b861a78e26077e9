"""Reductions over axes, one kernel for each of `reduction_bodies.REDUCTIONS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, cast

import jax
import jax.numpy as jnp

from shardcall_server.errors import CallError, Reason, shorten
from shardcall_server.kernels.axes import axes
from shardcall_server.kernels.blocks import fit, partition_spec
from shardcall_server.kernels.element_types import narrow
from shardcall_server.kernels.kernel import (
    Kernel,
    OperandInfo,
    ParameterInfo,
    ParameterValue,
    Problem,
    Program,
    Signature,
    Strategy,
)
from shardcall_server.kernels.layout import ArrayType, Spec, block_shape, format_spec, padded_shape
from shardcall_server.kernels.parameters import boolean, element_type, integer
from shardcall_server.kernels.reduction_bodies import REDUCTIONS, Over, Reduction, Size


class Reduce(Kernel):
    """A reduction over some or all axes, as NumPy's function of that name, with its element type.

    ``sum``, ``prod``, ``mean``, ``var`` and ``std`` of floats of 16 bits and less are accumulated in float32 and
    rounded once. NaN is the ``max`` and the ``min`` of all that holds one; ``argmax`` and ``argmin`` tell the first
    NaN, else the first of equals.

    Sharding: every layout is served. Over axes that are not split nothing moves. Over axes that are,
    ``all_reduce`` has every device reduce its block, and one all-reduce of a device's part of the result finishes it: a
    psum or pmax (``prod``: an all-gather of the parts; ``var`` and ``argmax``: two all-reduces; three for a complex
    ``argmax``). ``gspmd`` is what the compiler makes of the whole.

    Source: the NumPy reference, Mathematical functions and Statistics; the JAX notebook shard_map, section "psum".
    """

    reduction: ClassVar[Reduction]
    version = 4
    operands = (OperandInfo("x", "The array, of any rank and element type."),)

    def validate(self, operands: Sequence[ArrayType | None], parameters: Mapping[str, ParameterValue]) -> Signature:
        """Checks a call and tells the result's type.

        Raises:
            CallError: for an axis out of range or named twice, an element type that cannot be reduced so, and where
                there is nothing to choose from: the largest of no elements.
        """
        x, row = cast(ArrayType, operands[0]), self.reduction
        if row.index and isinstance(parameters["axis"], tuple):
            raise CallError(
                Reason.PARAMETER_TYPE,
                f"axis={shorten(parameters['axis'])} is a tuple; {row.name} takes one axis, or None for all",
                field="axis",
            )
        over = axes(parameters, "axis", x.ndim)
        keepdims = boolean(parameters, "keepdims")
        dtype = None if parameters.get("dtype") is None else element_type(parameters, "dtype")
        result = row.result_type(x.dtype, dtype)
        shape = tuple(1 if i in over else n for i, n in enumerate(x.shape) if keepdims or i not in over)
        if row.of_none is None and 0 in [x.shape[i] for i in over] and (row.index or 0 not in shape):
            raise CallError(
                Reason.INVALID_OPERAND,
                f"x has shape {shorten(str(x.shape))}, and there is no {row.name} of no elements; "
                "reduce over axes whose sizes are not 0",
                field="x",
            )
        normal: dict[str, ParameterValue] = {"axis": over, "keepdims": keepdims}
        if "ddof" in parameters:
            normal["ddof"] = integer(parameters, "ddof")
        if "dtype" in parameters:
            normal["dtype"] = result.name
        return Signature(normal, (ArrayType(shape, result),))

    def default_out_specs(self, problem: Problem, strategy: str) -> tuple[Spec | None, ...]:
        """Splits the result as x is, without the axes that are reduced."""
        return (problem.out_specs[0] or _reduced_spec(problem),)

    def choose(self, problem: Problem) -> tuple[str, str]:
        """``all_reduce`` where an axis that is reduced is split, else ``gspmd``."""
        names = _names(problem)
        if problem.mesh.size(names) == 1:
            return "gspmd", "no axis that is reduced is split, so nothing moves"
        if why := _all_reduce_refusal(problem):
            return "gspmd", f"all_reduce cannot: {why}"
        return "all_reduce", f"what is reduced is split over {', '.join(names)}; only the devices' parts move"


def _axes(problem: Problem) -> tuple[int, ...]:
    return cast(tuple[int, ...], problem.parameters["axis"])


def _names(problem: Problem) -> tuple[str, ...]:
    spec = cast(Spec, problem.in_specs[0])
    return tuple(name for i in _axes(problem) for name in spec[i])


def _reduced_spec(problem: Problem) -> Spec:
    over, spec = _axes(problem), cast(Spec, problem.in_specs[0])
    keepdims = problem.parameters["keepdims"]
    return tuple(() if i in over else names for i, names in enumerate(spec) if keepdims or i not in over)


def _reduce(row: Reduction, problem: Problem, x: jax.Array, over: Over) -> jax.Array:
    """What `over` covers of x, reduced; the axes stay, of size 1, if the call keeps them."""
    (result,) = problem.results
    reduced = row.body(x, over, result.dtype, cast(int, problem.parameters.get("ddof", 0)))
    if not problem.parameters["keepdims"]:
        reduced = jnp.squeeze(reduced, over.axes)
    return narrow(reduced, result.dtype)


def _gspmd(row: Reduction, problem: Problem) -> Program:
    x, (result,), padded = cast(ArrayType, problem.operands[0]), problem.results, problem.padded_result()
    if 0 in x.shape:
        return lambda _: (jnp.full(padded, cast(float, row.of_none), result.dtype),)

    def program(array: jax.Array) -> tuple[jax.Array]:
        sizes = tuple(Size(i, x.shape[i], array.shape[i], (), array.shape[i] > x.shape[i]) for i in _axes(problem))
        return (fit(_reduce(row, problem, array, Over(sizes)), padded),)

    return program


def _all_reduce(row: Reduction, problem: Problem, mesh: jax.sharding.Mesh) -> Program:
    x, spec = cast(ArrayType, problem.operands[0]), cast(Spec, problem.in_specs[0])
    block = block_shape(x.shape, spec, problem.mesh)
    padded = padded_shape(x.shape, spec, problem.mesh)
    over = Over(tuple(Size(i, x.shape[i], block[i], spec[i], padded[i] > x.shape[i]) for i in _axes(problem)))
    body: Callable[[jax.Array], jax.Array] = jax.shard_map(
        lambda array: _reduce(row, problem, array, over),
        mesh=mesh,
        in_specs=(partition_spec(spec),),
        out_specs=partition_spec(_reduced_spec(problem)),
        check_vma=False,  # what an all-gather makes, as for prod, is not known to be alike on all devices
    )
    return lambda array: (body(array),)


def _all_reduce_refusal(problem: Problem) -> str | None:
    if 0 in cast(ArrayType, problem.operands[0]).shape:
        return "x has no elements"
    served, asked = _reduced_spec(problem), problem.out_specs[0]
    if asked is not None and asked != served:
        return f"the result is to be split as {format_spec(asked)}, and of this x it makes {format_spec(served)}"
    return None


_PARAMETERS = {
    "axis": ParameterInfo("axis", "Over which axis or axes; None for all. Negative ones count from the last.", None),
    "keepdims": ParameterInfo("keepdims", "Whether reduced axes stay, of size 1.", False),
    "dtype": ParameterInfo("dtype", "The element type of the sum and the result; None for NumPy's.", None),
    "ddof": ParameterInfo("ddof", "What is taken off the number of elements to divide by.", 0),
}


def _kernel(row: Reduction) -> Reduce:

    class Named(Reduce):
        __doc__ = Reduce.__doc__
        name = row.name
        summary = f"{row.documentation}, as numpy.{row.name}."
        parameters = tuple(_PARAMETERS[name] for name in ("axis", "keepdims", *row.parameters))
        reduction = row
        strategies = (
            Strategy(
                "gspmd",
                "The reduction of the whole array, partitioned by the compiler. Serves every layout.",
                lambda _: None,
                lambda problem, _: _gspmd(row, problem),
            ),
            Strategy(
                "all_reduce",
                "Every device reduces its block, and the parts are reduced over the devices. Serves a result split as "
                "x is, without the reduced axes.",
                _all_reduce_refusal,
                lambda problem, mesh: _all_reduce(row, problem, mesh),
            ),
        )

    return Named()


def reductions() -> tuple[Reduce, ...]:
    """One kernel for each reduction."""
    return tuple(map(_kernel, REDUCTIONS))
