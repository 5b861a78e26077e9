"""Elementwise functions in extended precision: 64 bits of mantissa and 15 of exponent, or integers of any size.

glibc's functions of `long double` err by a few units of it at most, of which 2,048 make one of a float64. NumPy calls
them. Where it does not, or where its own formula for complex numbers loses digits, mpmath computes the values.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import numpy as np
from accuracy.points import is_inexact
from accuracy.ulps import extended

_DIGITS = mpmath.mp.clone()
_DIGITS.prec = 200
_Function = Callable[..., Any]

_BY_MPMATH: dict[str, _Function] = {
    "log1p": _DIGITS.log1p,
    "expm1": _DIGITS.expm1,
    "exp2": lambda z: _DIGITS.power(2, z),
    "power": _DIGITS.power,
    "float_power": _DIGITS.power,
}
"""Functions of complex numbers that NumPy has by formulas of its own."""


def widened(array: np.ndarray) -> np.ndarray:
    """The array in extended precision, or as integers of any size."""
    if is_inexact(array.dtype):
        return extended(array)
    if array.dtype == np.bool_:
        return array
    return (array.astype(np.int64) if array.dtype.itemsize == 1 else array).astype(object)


def wrapped(integers: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Converts integers of any size to a type of integers, modulo 2 to the power of its bits."""
    if dtype == np.bool_:
        return np.asarray(integers != 0)
    bits = 4 if dtype.name.endswith("int4") else 8 * dtype.itemsize
    low = 0 if dtype.name.startswith("u") else -(2 ** (bits - 1))
    return np.array((integers - low) % 2**bits + low, np.uint64 if not low else np.int64).astype(dtype)


def reference(name: str, operands: Sequence[np.ndarray], result: np.dtype) -> np.ndarray:
    """The result of a function of operands that have the types that it computes with.

    Args:
        name: NumPy's.
        operands: of one shape.
        result: the type of its result; integers wrap.
    """
    with np.errstate(all="ignore"):
        if all(operand.dtype.kind in "biu" or "int" in operand.dtype.name for operand in operands):
            return _of_integers(name, operands, result)
        values = np.asarray(getattr(np, name)(*map(widened, operands)))
        if operands[0].dtype.kind == "c" and name in _BY_MPMATH:
            return _by_mpmath(_BY_MPMATH[name], operands, values)
        return values


def _by_mpmath(function: _Function, operands: Sequence[np.ndarray], limits: np.ndarray) -> np.ndarray:
    """The function's values; those of NumPy where an operand is infinite, NaN or zero, or there is no value."""
    result = limits.copy()
    ordinary = np.logical_and.reduce([np.isfinite(operand) & (operand != 0) for operand in operands])
    for i in np.flatnonzero(ordinary):
        value = function(*(_DIGITS.mpc(complex(operand[i])) for operand in operands))
        result[i] = np.array([_extended(value.real), _extended(value.imag)], np.longdouble).view(np.clongdouble)[0]
    return result


def of_physics(name: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The error function or the logarithm of the size of the gamma function, and the sizes of its terms.

    Args:
        name: ``erf`` or ``gammaln``; the latter has terms that cancel at negative numbers.
        x: [n] real numbers.
    """
    wide = extended(x) if is_inexact(x.dtype) else x.astype(np.longdouble)
    different, inverse = np.unique(wide, return_inverse=True)
    pairs = np.array([_of_number(name, number) for number in different], np.longdouble)
    values, scales = pairs[inverse].T
    return (np.where(wide == 0, wide, values) if name == "erf" else values), scales


def _of_number(name: str, number: np.longdouble) -> tuple[Any, Any]:
    """The value at a number, and the size of its terms."""
    if not np.isfinite(number):
        return (np.sign(number) if name == "erf" else number, number)
    x = _DIGITS.mpf(float(number))
    if name == "erf":
        return (_extended(_DIGITS.erf(x)),) * 2
    if x <= 0 and x == _DIGITS.floor(x):
        return (np.inf,) * 2
    value, mirrored = _DIGITS.loggamma(x).real, _DIGITS.loggamma(abs(x)).real
    return _extended(value), _extended(max(abs(value + mirrored), abs(mirrored)) if x < 0 else value)


def _extended(x: Any) -> np.longdouble:
    if not _DIGITS.isfinite(x) or x == 0:
        return np.longdouble(float(x))
    mantissa, exponent = _DIGITS.frexp(x)
    # Beyond the exponents of extended precision it is infinite or zero in any case.
    exponent = max(-20_000, min(20_000, int(exponent)))
    return np.ldexp(np.longdouble(int(_DIGITS.nint(mantissa * 2**64))), exponent - 64)


def _of_integers(name: str, operands: Sequence[np.ndarray], result: np.dtype) -> np.ndarray:
    if name in _INTEGER:
        bits = 8 * operands[0].dtype.itemsize
        rule = _INTEGER[name]
        values = [rule(bits, *map(int, items)) for items in zip(*operands, strict=True)]
        return wrapped(np.array(values, object), result)
    if result == np.bool_ or all(operand.dtype == np.bool_ for operand in operands) or name in ("where", "clip"):
        return np.asarray(getattr(np, name)(*operands))
    return wrapped(np.asarray(getattr(np, name)(*map(widened, operands))), result)


def _shifted(bits: int, x: int, y: int) -> int:
    return x << y if 0 <= y < bits else 0


def _power(bits: int, x: int, y: int) -> int:
    return pow(x, y, 2**bits)


_INTEGER: dict[str, Callable[..., int]] = {
    "floor_divide": lambda _, x, y: x // y if y else 0,
    "remainder": lambda _, x, y: x % y if y else 0,
    "mod": lambda _, x, y: x % y if y else 0,
    "fmod": lambda _, x, y: (abs(x) % abs(y)) * (1 if x > 0 else -1) if y else 0,
    "power": _power,
    "square": lambda _, x: x * x,
    "reciprocal": lambda _, x: x if abs(x) == 1 else 0,
    "left_shift": _shifted,
    "right_shift": lambda bits, x, y: x >> (y if 0 <= y < bits else bits),
    "sign": lambda _, x: (x > 0) - (x < 0),
    "gcd": lambda _, x, y: math.gcd(x, y),
    "lcm": lambda _, x, y: math.lcm(x, y),  # NumPy's of Python integers divides by zero
    **dict.fromkeys(("absolute", "abs"), lambda _, x: abs(x)),
    **dict.fromkeys(("floor", "ceil", "trunc", "rint", "positive", "conjugate", "real"), lambda _, x: x),
    "imag": lambda _, _x: 0,
    "signbit": lambda _, x: x < 0,
    **dict.fromkeys(("isnan", "isinf"), lambda _, _x: False),
    "isfinite": lambda _, _x: True,
}
"""Functions of integers that Python's and NumPy's operators lack; the first argument is the type's bits."""
