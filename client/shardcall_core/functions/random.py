"""Random arrays, and rows in random order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.element_types import NAMED
from shardcall_core.functions import checks
from shardcall_core.functions.function import Check, Function
from shardcall_core.functions.signature import REQUIRED, Method, OperandInfo, ParameterInfo, ParameterValues, Signature
from shardcall_core.layouts.layout import ArrayType, OperandTypes, required

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_COMPLEX = ("complex64", "complex128")
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_REAL, _INTEGER = ("biuf", "a real number"), ("iu", "an integer")  # the type codes of scalars, and their name
_SEED = OperandInfo("seed", "An integer; equal seeds give equal values, on every mesh.")
_NOTE = (
    "Values are those of ``jax.random`` for the key of the seed. Without ``mesh`` and ``out_spec`` one device draws "
    "them."
)
_BIAS = (
    " As of JAX, values of a range of n > 2**16 of int32 and uint32, and of n > 2**32 of int64 and uint64, are random "
    "bits modulo n: those below ``low + 2**bits % n`` come up more often than others, by 1 part in ``2**bits//n``. "
    "Draw ranges of more than 2**16 as int64."
)


@dataclass(frozen=True)
class DrawParameters:
    """The parameters of a distribution: the result's shape and the name of its element type."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class PermutationParameters:
    """The parameters of `permutation`."""

    axis: int


def rows() -> Iterator[Function]:
    """Yields the functions."""
    low = OperandInfo("low", "The least value; 0 if left out.", optional=True)
    high = OperandInfo("high", "The bound that all values are below, before rounding; 1 if left out.", optional=True)
    summary = "Random values uniform in [low, high), the same on every mesh."
    errors = "InvalidOperandError: for high below low. Bounds on the mesh are not checked: values are between the two."
    yield _distribution("uniform", low, high, _REAL, _FLOATS, "float64", summary, (errors,))
    loc = OperandInfo("loc", "The mean; 0 if left out.", optional=True)
    scale = OperandInfo("scale", "The standard deviation; 1 if left out.", optional=True)
    summary = "Normal random values, the same on every mesh."
    yield _distribution("normal", loc, scale, _REAL, (*_FLOATS, *_COMPLEX), "float64", summary)
    low, high = OperandInfo("low", "The least value."), OperandInfo("high", "The bound that all values are below.")
    summary = "Random integers uniform in [low, high), the same on every mesh."
    errors = (
        "InvalidOperandError: for a bound beyond the type, or high not above low. A bound on the mesh is replaced by "
        "the nearest allowed one; where no value is left, all are ``low``."
    )
    yield _distribution("randint", low, high, _INTEGER, _INTEGERS, "int64", summary, (errors,))
    yield Function(
        "permutation",
        (_SEED, OperandInfo("x", "The array, of rank 1 or more and any element type.", spec="spec")),
        (ParameterInfo("axis", "Along which axis; negative ones count from the last.", 0, "Axis"),),
        _permutation,
        "that of ``x``",
        summary="The rows of an array in random order, the same order on every mesh.",
        method=Method("seed, x, axis"),
        example="7, np.arange(6)",
    )


def _distribution(
    name: str,
    first: OperandInfo,
    second: OperandInfo,
    scalars: tuple[str, str],
    types: tuple[str, ...],
    dtype: str,
    summary: str,
    errors: tuple[str, ...] = (),
) -> Function:
    parameters = (
        ParameterInfo("shape", "The result's shape: an integer or several.", REQUIRED, "Axes"),
        ParameterInfo("dtype", "The result's element type.", dtype, "npt.DTypeLike"),
    )
    check = _drawn(name, (first.name, second.name), scalars, types)
    spec = "its first axis, over all mesh axes"
    method = Method(f"seed, shape, {first.name}, {second.name}, dtype", _NOTE + _BIAS * (name == "randint"), errors)
    example = f"7, (2, 3){', 0, 10' * (name == 'randint')}"
    return Function(
        name, (_SEED, first, second), parameters, check, spec, summary=summary, method=method, example=example
    )


def _drawn(function: str, names: tuple[str, str], scalars: tuple[str, str], types: tuple[str, ...]) -> Check:
    def check(operands: OperandTypes, parameters: ParameterValues) -> Signature[DrawParameters]:
        _check_scalar("seed", required(operands[0]), *_INTEGER)
        for name, operand in zip(names, operands[1:], strict=True):
            if operand is not None:
                _check_scalar(name, operand, *scalars)
        sizes, dtype = checks.sizes(parameters, "shape"), checks.text(parameters, "dtype")
        if dtype not in types:
            message = f"dtype={shorten(dtype)!r} is no element type of {function}; give one of: {', '.join(types)}"
            raise CallError(Reason.UNSUPPORTED_ELEMENT_TYPE, message, field="dtype")
        return Signature(DrawParameters(sizes, dtype), (ArrayType(sizes, NAMED[dtype]),))

    return check


def _permutation(operands: OperandTypes, parameters: ParameterValues) -> Signature[PermutationParameters]:
    seed, x = map(required, operands)
    _check_scalar("seed", seed, *_INTEGER)
    axis = checks.axis_of(x, checks.integer(parameters, "axis"), "permutation")
    return Signature(PermutationParameters(axis), (x,))


def _check_scalar(name: str, operand: ArrayType, type_codes: str, allowed: str) -> None:
    if operand.ndim or operand.dtype.kind not in type_codes:
        raise checks.operand(name, f"{name} is {shorten(str(operand))}; give {allowed}, as a scalar")
