"""Functions that move an array: copy, reshard, transpose."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shardcall_core.functions import checks
from shardcall_core.functions.function import Function
from shardcall_core.functions.signature import Method, OperandInfo, ParameterInfo, ParameterValues, Signature
from shardcall_core.layouts.layout import ArrayType, OperandTypes, required


@dataclass(frozen=True)
class TransposeParameters:
    """The parameters of `transpose`."""

    axes: tuple[int, ...]


def rows() -> Iterator[Function]:
    """Yields the functions."""
    x = (OperandInfo("x", "The array, of any rank and element type.", spec="spec"),)
    example = "np.arange(6).reshape(2, 3)"
    summary = "The array with another sharding, as jax.lax.with_sharding_constraint."
    yield Function("reshard", x, (), _unchanged, "that of ``x``", summary=summary, method=Method("x"), example=example)
    summary = "A copy of the array, as numpy.copy."
    yield Function("copy", x, (), _unchanged, "that of ``x``", summary=summary, method=Method("x"), example=example)
    axes = ParameterInfo("axes", "For each axis of the result, the axis of x; None reverses them.", None, "Axes | None")
    summary = "The array with its axes in another order, as numpy.transpose."
    spec, method = "that of ``x``, axis by axis", Method("x, axes")
    yield Function("transpose", x, (axes,), _transpose, spec, summary=summary, method=method, example=example)


def _unchanged(operands: OperandTypes, _: ParameterValues) -> Signature[None]:
    return Signature(None, (required(operands[0]),))


def _transpose(operands: OperandTypes, parameters: ParameterValues) -> Signature[TransposeParameters]:
    x = required(operands[0])
    permutation = checks.axes(parameters, "axes", x.ndim)
    if parameters["axes"] is None:
        permutation = permutation[::-1]
    if len(permutation) != x.ndim:
        raise checks.invalid(
            "axes", parameters["axes"], f"it names {len(permutation)} of {x.ndim} axes; name each once"
        )
    shape = tuple(x.shape[i] for i in permutation)
    return Signature(TransposeParameters(permutation), (ArrayType(shape, x.dtype),))
