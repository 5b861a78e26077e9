"""Which element types elementwise functions compute with, asked of NumPy itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from shardcall_server.kernels.element_types import NAMED


@dataclass(frozen=True)
class Loop:
    """The types of one inner loop, as NumPy would choose it.

    Attributes:
        operands: what each operand is converted to; None for one left out.
        result: what comes of it.
    """

    operands: tuple[np.dtype | None, ...]
    result: np.dtype


def _loop(*dtypes: np.dtype) -> Loop:
    *operands, result = map(_ours, dtypes)
    return Loop(tuple(operands), result)


def _ours(dtype: np.dtype) -> np.dtype:
    for own in NAMED.values():
        if own == dtype:  # NumPy has two types of one name, long and longlong
            return own
    raise TypeError(f"the loop is one of {dtype}, which no array here is of")


def of_ufunc(name: str) -> Callable[..., Loop]:
    """The loops of NumPy's ufunc of a name."""
    ufunc: np.ufunc = getattr(np, name)

    def loop(*dtypes: np.dtype) -> Loop:
        return _loop(*ufunc.resolve_dtypes((*dtypes, None)))

    return loop


def part(x: np.dtype) -> Loop:
    """`numpy.real` and `numpy.imag`."""
    return _loop(x, np.empty((), x).real.dtype)


def angle(x: np.dtype) -> Loop:
    """`numpy.angle`."""
    result = np.angle(np.empty(0, x)).dtype
    return _loop(np.result_type(x, result), result)


def where(_condition: np.dtype, x: np.dtype, y: np.dtype) -> Loop:
    """`numpy.where`."""
    dtype = np.result_type(x, y)
    return _loop(np.dtype(bool), dtype, dtype, dtype)


def clip(x: np.dtype, low: np.dtype | None, high: np.dtype | None) -> Loop:
    """`numpy.clip`."""
    if low is None and high is None:
        return Loop((x, None, None), x)
    arrays = [None if dtype is None else np.empty(0, dtype) for dtype in (x, low, high)]
    dtype = cast(Any, np.clip)(*arrays).dtype
    return Loop(tuple(None if bound is None else dtype for bound in arrays), dtype)
