"""NumPy's rules for Fourier transforms."""

from __future__ import annotations

import numpy as np

from shardcall_core.call_error import Reason
from shardcall_core.element_types import DType
from shardcall_core.functions import checks
from shardcall_core.functions.checks import invalid
from shardcall_core.functions.shape_rules import Parameters, Shape, Shapes, present
from shardcall_core.functions.type_rules import DTypes

NORMS = ("backward", "ortho", "forward")
"""The directions that a transform scales: its inverse, both or itself."""


def spectrum(dtypes: DTypes, _: Parameters) -> DType:
    """Returns the complex type of a transform: complex64 for 32 bits and less of floating-point numbers."""
    return np.dtype(np.complex64 if _numbers(dtypes).name in ("float16", "float32", "complex64") else np.complex128)


def spectrum_of_reals(dtypes: DTypes, parameters: Parameters) -> DType:
    """Returns the complex type of a transform of real numbers."""
    if _numbers(dtypes).kind == "c":
        message = f"x is of {_numbers(dtypes).name}; give real numbers, or call fft"
        raise checks.operand("x", message, Reason.UNSUPPORTED_ELEMENT_TYPE)
    return spectrum(dtypes, parameters)


def signal(dtypes: DTypes, parameters: Parameters) -> DType:
    """Returns the real type of an inverse transform."""
    if _numbers(dtypes) == np.float16:
        return np.dtype(np.float16)
    return np.empty(0, spectrum(dtypes, parameters)).real.dtype


def fft(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of x with n points along the axis."""
    return (_with_points(shapes, parameters, points(shapes, parameters)),)


def rfft(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of x with the n // 2 + 1 frequencies along the axis that are not negative."""
    return (_with_points(shapes, parameters, points(shapes, parameters) // 2 + 1),)


def irfft(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of x with n points along the axis, by default those of an even number."""
    return (_with_points(shapes, parameters, points(shapes, parameters, inverse=True)),)


def points(shapes: Shapes, parameters: Parameters, *, inverse: bool = False) -> int:
    """Returns the number of points of a transform."""
    (x,) = present(shapes)
    along = checks.axis(parameters, "axis", len(x))
    checks.one_of(parameters, "norm", NORMS)
    default = 2 * (x[along] - 1) if inverse else x[along]
    count = default if parameters["n"] is None else checks.integer(parameters, "n")
    if count < 1:
        raise invalid("n", parameters["n"], f"x is of shape {x}, of which that makes {count} points; give 1 or more")
    return count


def _with_points(shapes: Shapes, parameters: Parameters, count: int) -> Shape:
    (x,) = present(shapes)
    along = parameters["axis"] % len(x)
    return (*x[:along], count, *x[along + 1 :])


def _numbers(dtypes: DTypes) -> DType:
    dtype = dtypes[0]
    assert dtype is not None
    if dtype.kind not in "biufc":
        message = f"x is of {dtype.name}, which NumPy does not transform; convert it to float32"
        raise checks.operand("x", message, Reason.UNSUPPORTED_ELEMENT_TYPE)
    return dtype
