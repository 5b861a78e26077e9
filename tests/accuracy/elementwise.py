"""Cases of elementwise functions: operands and references by function and element type."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from accuracy import points, references

from shardcall_core.element_types import NAMED
from shardcall_core.functions import type_rules
from shardcall_core.functions.table import FUNCTIONS
from shardcall_server.kernels.core.element_types import working_type

FLOATS = ("float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "float32", "float64", "complex64", "complex128")
INTEGERS = tuple(name for name in NAMED if name not in FLOATS)

_LOGARITHMS = ("logaddexp", "logaddexp2")
_ALIKE = ("int4", "uint4", "uint8", "uint16", "int32", "uint32", "uint64")
"""Types of integers that NumPy converts to the type of floating-point numbers that it converts others to."""


@dataclass(frozen=True)
class Case:
    """A call, its reference results, and the size of the terms of its sums.

    Attributes:
        row: the table's row that it belongs to.
        column: the table's column: an element type.
        kernel: its name.
        operands: of the call; None for one left out.
        references: of each result, in extended precision or as integers.
        scales: for each result the sizes of its largest terms; None where its own size counts.
        parameters: of the call.
        elements: the operands broadcast to the result's shape, where each result is of elements of its own.
        devices: of the mesh, over which the first axis is sharded.
        aligned: what makes results comparable that are unique up to their order and a factor.
    """

    row: str
    column: str
    kernel: str
    operands: tuple[np.ndarray | None, ...]
    references: tuple[np.ndarray, ...]
    scales: tuple[np.ndarray | None, ...] = (None,)
    parameters: dict[str, Any] = field(default_factory=dict)
    elements: tuple[np.ndarray, ...] = ()
    devices: int = 1
    aligned: Callable[[tuple[np.ndarray, ...]], tuple[np.ndarray, ...]] = tuple


def cases(name: str, dtype: np.dtype, sizes: Sequence[int], devices: int = 1) -> Iterator[Case]:
    """The cases of one function and type: one a size, one over several devices; none where NumPy refuses it."""
    dtypes = [dtype] * len(FUNCTIONS[name].operands)
    try:
        loop = type_rules.loop(name, *dtypes)
    except TypeError:
        return
    if dtype.name in _ALIKE and points.is_inexact(working_type(loop.operands[-1] or dtype)):
        return
    pool = points.operands(name, dtypes)
    if name == "power" and not points.is_inexact(dtype):
        pool[1] = np.abs(pool[1].astype(np.int64) % 8).astype(dtype)
    if name == "reciprocal" and not points.is_inexact(dtype):
        pool[0] = np.where(pool[0] == 0, np.ones((), dtype), pool[0])
    if name in ("remainder", "mod") and points.is_inexact(dtype):
        # The remainder of a smaller divisor may be subnormal, and zero before the divisor is added.
        threshold = np.ldexp(
            np.float64(points.finfo(np.dtype(np.float64 if dtype.itemsize == 8 else np.float32)).tiny), 24
        )
        size = abs(pool[1].astype(np.float64))
        pool[1] = np.where((size > 0) & (size < threshold), np.ones((), dtype), pool[1])
    converted = [converted_to(x, to) for x, to in zip(pool, loop.operands, strict=True) if to is not None]
    expected = references.reference(name, converted, loop.result)
    scale = np.maximum(*(abs(references.widened(x)) for x in converted)) if name in _LOGARITHMS else None
    # Narrower types are computed in float32: over several devices too, then.
    several = [(max(sizes[-1], points.COUNT) + 1, devices)] if devices > 1 and dtype.itemsize >= 4 else []
    for size, among in [*((size, 1) for size in sizes), *several]:
        which = points.positions(len(pool[0]), size)
        taken = tuple(x[which] for x in pool)
        yield Case(
            name,
            dtype.name,
            name,
            taken,
            (expected[which],),
            (None if scale is None else scale[which],),
            elements=taken,
            devices=among,
        )


def converted_to(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The operand as a loop's type has it."""
    with np.errstate(all="ignore"):
        if dtype == np.bool_ and x.dtype != np.bool_:
            return np.asarray(references.widened(x) != 0)
        return x.astype(dtype)
