"""NumPy's rules for decompositions, inverses and determinants of matrices: the last two axes of an array."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shardcall_core.call_error import Reason
from shardcall_core.element_types import DType
from shardcall_core.functions import checks
from shardcall_core.functions.shape_rules import Parameters, Shape, ShapeRule, Shapes, broadcast, present
from shardcall_core.functions.type_rules import DTypes

TRIANGLES = ("L", "U")
"""The triangle of a matrix that is read."""

TRANSPOSES = ("N", "T", "C")
"""The matrix of the equations: the operand, its transpose, or its conjugate transpose."""

_NAMES = ("float32", "float64", "complex64", "complex128")


def numbers(dtypes: DTypes, _: Parameters) -> DType:
    """Returns the type in which all matrices are computed; float64 for integers and bool."""
    return np.result_type(*(_number(dtype) for dtype in dtypes if dtype is not None))


def reals(dtypes: DTypes, parameters: Parameters) -> DType:
    """Returns the type of the parts of `numbers`."""
    return np.empty(0, numbers(dtypes, parameters)).real.dtype


def complexes(dtypes: DTypes, parameters: Parameters) -> DType:
    """Returns the complex type of which `numbers` are, or are the parts."""
    return np.result_type(numbers(dtypes, parameters), np.complex64)


def types_by_result(
    *rules: Callable[[DTypes, Parameters], DType],
) -> Callable[[DTypes, Parameters], tuple[DType, ...]]:
    """Returns the types of several results."""
    return lambda dtypes, parameters: tuple(rule(dtypes, parameters) for rule in rules)


def square(shapes: Shapes, _: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of x, of square matrices."""
    x = _matrices("x", present(shapes)[0])
    if x[-1] != x[-2]:
        raise checks.operand("x", f"x is of shape {x}; give square matrices")
    return (x,)


def cholesky(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of x."""
    checks.flag(parameters, "upper")
    return square(shapes, parameters)


def batch(count: int) -> ShapeRule:
    """Returns the rule of functions with so many results of a number for each matrix."""
    return lambda shapes, parameters: (square(shapes, parameters)[0][:-2],) * count


def eigvalsh(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of the eigenvalues."""
    checks.one_of(parameters, "UPLO", TRIANGLES)
    return (square(shapes, parameters)[0][:-1],)


def eigh(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shapes of the eigenvalues and of the eigenvectors."""
    return (*eigvalsh(shapes, parameters), *square(shapes, parameters))


def eigvals(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of the eigenvalues."""
    return (square(shapes, parameters)[0][:-1],)


def eig(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shapes of the eigenvalues and of the eigenvectors."""
    return (*eigvals(shapes, parameters), *square(shapes, parameters))


def svdvals(shapes: Shapes, _: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of the singular values."""
    x = _matrices("x", present(shapes)[0])
    return ((*x[:-2], min(x[-2:])),)


def svd(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shapes of U, of the singular values and of Vh."""
    (*leading, rows, columns), (values,) = present(shapes)[0], svdvals(shapes, parameters)
    is_full, min_size = checks.flag(parameters, "full_matrices"), values[-1]
    left, right = (rows, columns) if is_full else (min_size, min_size)
    return (*leading, rows, left), values, (*leading, right, columns)


def qr(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shapes of Q and R."""
    *leading, rows, columns = _matrices("x", present(shapes)[0])
    mode = checks.one_of(parameters, "mode", ("reduced", "complete"))
    inner = rows if mode == "complete" else min(rows, columns)
    return (*leading, rows, inner), (*leading, inner, columns)


def solve(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of b, whose batch is broadcast with that of a."""
    (a,), (_, b) = square(shapes, parameters), present(shapes)
    if not b:
        raise checks.operand("b", "b is a scalar; give an array of one axis or more")
    rows = b[-1] if len(b) == 1 else b[-2]
    if rows != a[-1]:
        raise checks.operand("b", f"b is of shape {b} and the matrices of {a[-2:]}; give {a[-1]} rows")
    if len(b) == 1:
        return (a[:-1],)
    try:
        (leading,) = broadcast((a[:-2], b[:-2]), {})
    except ValueError:
        raise checks.operand("b", f"b is of shape {b} and x of {a}; their batches do not broadcast") from None
    return ((*checks.ranked("b", leading), *b[-2:]),)


def solve_triangular(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of b, whose batch is broadcast with that of a."""
    checks.flag(parameters, "lower")
    checks.flag(parameters, "unit_diagonal")
    checks.one_of(parameters, "trans", TRANSPOSES)
    return solve(shapes, parameters)


def _matrices(name: str, shape: Shape) -> Shape:
    if len(shape) < 2:
        raise checks.operand(name, f"{name} is of shape {shape}; give an array of two axes or more")
    return shape


def _number(dtype: DType) -> DType:
    if dtype.kind in "biu":
        return np.dtype(np.float64)
    if dtype.name not in _NAMES:
        message = f"x is of {dtype.name}; convert it to float32"
        raise checks.operand("x", message, Reason.UNSUPPORTED_ELEMENT_TYPE)
    return dtype
