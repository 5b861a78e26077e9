"""Operands on which kernels are measured: every value of a narrow type, chosen and random ones of the others."""

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

COUNT = 4096
"""Elements of an operand whose type has too many values to take them all."""

# Where a function does most: the interval that half of its random operands are from.
_INTERVALS = {
    **dict.fromkeys(("sin", "cos", "tan"), (-100.0, 100.0)),
    **dict.fromkeys(("arcsin", "arccos", "arctanh"), (-1.0, 1.0)),
    **dict.fromkeys(("sinh", "cosh", "exp", "exp2", "expm1"), (-90.0, 90.0)),
    **dict.fromkeys(("log", "log2", "log10", "arccosh"), (0.5, 2.0)),
    **dict.fromkeys(("tanh", "arcsinh", "arctan", "log1p"), (-1.5, 1.5)),
    "erf": (-6.0, 6.0),
    "gammaln": (-30.0, 30.0),
}
# Beyond this size of a part, errors of these functions of complex numbers are those of their operands' products with a
# logarithm, and no digit of the angle is left.
COMPLEX_LIMIT = {"exp2": 128.0, "power": 16.0, "float_power": 16.0}
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0)
_LANDMARKS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 10.0, 88.5, 104.0, 128.0, 709.5, 745.0, 1024.0, 1e5, np.pi / 2, np.pi)


def finfo(dtype: np.dtype) -> Any:
    """The limits of a floating-point type, or of a complex one's parts."""
    return ml_dtypes.finfo(np.empty(0, dtype).real.dtype)


def is_inexact(dtype: np.dtype) -> bool:
    """True for types of floating-point or complex numbers."""
    return dtype.kind in "fc" or "float" in dtype.name


def special(dtype: np.dtype) -> np.ndarray:
    """NaN, infinities, zeros, the limits of a type, and numbers beside which functions change their form."""
    info = finfo(dtype)
    smallest, normal, largest, eps = (
        np.longdouble(x) for x in (info.smallest_subnormal, info.tiny, info.max, info.eps)
    )
    sizes = [smallest, 3 * smallest, normal / 2, normal - smallest, normal, 2 * normal, largest, largest / 2]
    sizes += [1 - eps / 2, 1 + eps, eps, *(np.longdouble(x) for x in _LANDMARKS if x < largest)]
    return np.array([*SPECIAL, *sizes, *(-x for x in sizes)], np.longdouble).astype(info.dtype)


def extremes(dtype: np.dtype) -> tuple[float, float, float]:
    """The largest number of a type, its smallest normal one, and three quarters of that: a subnormal one."""
    info = finfo(dtype)
    return float(info.max), float(info.tiny), 0.75 * float(info.tiny)


def operands(name: str, dtypes: Sequence[np.dtype]) -> list[np.ndarray]:
    """Operands of an elementwise function, of one size and the same in every run.

    Args:
        name: the function's.
        dtypes: of the operands.
    """
    if len(dtypes) == 1 and (every := every_value(dtypes[0])) is not None:
        return [every]
    random = np.random.default_rng(sum(name.encode()))
    pools = [_chosen(dtype) for dtype in dtypes]
    if np.prod([len(pool) for pool in pools]) <= COUNT // 2:
        heads = [grid.ravel() for grid in np.meshgrid(*pools, indexing="ij")]
    else:
        heads = [pool[random.integers(0, len(pool), COUNT // 4)] for pool in pools]
    count = max(COUNT, 2 * len(heads[0]))
    rest = [_random(name, dtype, count - len(head), random) for dtype, head in zip(dtypes, heads, strict=True)]
    return [_limited(name, np.concatenate(parts)) for parts in zip(heads, rest, strict=True)]


def positions(count: int, size: int) -> np.ndarray:
    """The positions of a number of an operand's elements: all again and again, or some from everywhere if fewer fit."""
    return np.resize(np.arange(count), size) if count <= size else np.arange(size) * count // size


def every_value(dtype: np.dtype) -> np.ndarray | None:
    """Every value of a type of two bytes or less; None of the others."""
    if dtype == np.bool_:
        return np.array([False, True])
    if dtype.name in ("int4", "uint4"):
        return np.arange(16, dtype=np.uint8).astype(np.int8 if dtype.name == "int4" else np.uint8).astype(dtype)
    if dtype.itemsize > 2:
        return None
    return np.arange(256**dtype.itemsize, dtype=f"u{dtype.itemsize}").view(dtype)


def _chosen(dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "c":
        parts = special(dtype)
        parts = np.concatenate([parts[: len(SPECIAL)], parts[len(SPECIAL) :: 2]])
        real, imaginary = (part.ravel() for part in np.meshgrid(parts, parts))
        result = np.empty(real.shape, dtype)
        result.real, result.imag = real, imaginary
        return result
    if is_inexact(dtype):
        return special(dtype)
    if dtype.itemsize == 1:
        return every_value(dtype)
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return np.array([x for x in (low, low + 1, -2, -1, 0, 1, 2, 3, 7, 8, high - 1, high) if x >= low], dtype)


def _random(name: str, dtype: np.dtype, count: int, random: np.random.Generator) -> np.ndarray:
    if dtype == np.bool_:
        return random.integers(0, 2, count).astype(bool)
    if is_inexact(dtype):
        parts = _floats(name, np.empty(0, dtype).real.dtype, count * (2 if dtype.kind == "c" else 1), random)
        return parts.view(dtype)
    all_bits = np.frombuffer(random.bytes(count * dtype.itemsize), f"u{dtype.itemsize}")
    mixed = np.where(random.integers(0, 2, count) > 0, all_bits, random.integers(0, 40, count).astype(all_bits.dtype))
    return mixed.astype(dtype) if dtype.name in ("int4", "uint4") else mixed.view(dtype)


def _floats(name: str, dtype: np.dtype, count: int, random: np.random.Generator) -> np.ndarray:
    info, half = finfo(dtype), count // 2
    everywhere = random.uniform(float(np.log2(np.float64(info.tiny))) - 3, info.maxexp, half // 2)
    near_one = random.uniform(-6.0, 6.0, half - half // 2)
    sizes = np.exp2(np.concatenate([everywhere, near_one]).astype(np.longdouble))
    inside = random.uniform(*_INTERVALS.get(name, (-4.0, 4.0)), count - half).astype(np.longdouble)
    signed = np.where(random.integers(0, 2, half) > 0, sizes, -sizes)
    with np.errstate(over="ignore"):
        return random.permutation(np.concatenate([signed, inside]).astype(dtype))


def _limited(name: str, array: np.ndarray) -> np.ndarray:
    if array.dtype.kind != "c" or name not in COMPLEX_LIMIT:
        return array
    parts, limit = array.view(array.real.dtype), COMPLEX_LIMIT[name]
    return np.where(np.isfinite(parts), np.clip(parts, -limit, limit), parts).view(array.dtype)
