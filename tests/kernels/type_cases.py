"""Calls of arrays of one element type: those that move elements, and those that compute with them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from kernels.conftest import KERNELS
from kernels.stencil_cases import expected, laplacian, shifted

from shardcall_core.functions.indexing import basic_index

Case = tuple[Any, np.ndarray]
"""A call, and its result."""


def index(x: np.ndarray, key: Any) -> tuple[np.ndarray, dict[str, Any]]:
    """The operands and parameters of a call of getitem, by NumPy's own rules."""
    starts, sizes, steps, dropped, inserted = basic_index(x.shape, key)
    return np.array(starts, np.int64), {"sizes": sizes, "steps": steps, "dropped": dropped, "inserted": inserted}


def with_values(x: np.ndarray, key: Any, values: np.ndarray) -> np.ndarray:
    """A copy with some elements replaced."""
    changed = x.copy()
    changed[key] = values
    return changed


def wide(x: np.ndarray) -> np.ndarray:
    """The numbers in a type that has all of them."""
    return x.astype(complex if x.dtype.kind == "c" else float)


def moving_calls(run: Any, values: Any, dtype: np.dtype, mesh: dict[str, int]) -> Iterator[Case]:
    """Calls whose results have the bits of their operands."""

    def call(name: str, *operands: np.ndarray, **how: Any) -> Any:
        return run.call(KERNELS[name], *operands, mesh=mesh, **how)

    x, fill = values.any((13, 4), dtype), values.any((1,), dtype).reshape(())
    rows = {"in_specs": [("x", None)]}
    yield call("shift", x, fill, shift=2, axis=0, **rows), shifted(x, fill, 2, 0)
    for key in (np.s_[1:-1], np.s_[5:7], np.s_[6:1:-1]):
        starts, parameters = index(x, key)
        yield call("getitem", x, starts.astype(np.int32), **parameters, **rows), x[key]
    starts, parameters = index(x, np.s_[2:11])
    new = values.any((9, 4), dtype)
    specs = {"in_specs": [("x", None), ("x", None), None]}
    yield call("setitem", x, new, starts, **parameters, **specs), with_values(x, np.s_[2:11], new)
    indices, some = np.array([3, -1, 0, 12]), values.any((4, 4), dtype)
    yield call("take", x, indices, axis=0), x[indices]
    yield call("put_at", x, some, indices, axes=(0,)), with_values(x, indices, some)
    along = values.random.integers(0, 13, (2, 4))
    put = x.copy()
    np.put_along_axis(put, along, some[:2], 0)
    yield call("put_along_axis", x, some[:2], along, axis=0), put
    yield call("concatenate", x, new, axis=0), np.concatenate([x, new])
    exchanged = {} if mesh["x"] == 1 else {"strategy": "exchange"}
    yield call("take", x, indices, axis=0, **exchanged), x[indices]
    yield call("flip", x, axis=0, **exchanged), x[::-1]
    yield call("repeat", x, repeats=2, axis=0, **exchanged), np.repeat(x, 2, 0)
    yield call("reshape", x, shape=(52,), **exchanged), x.ravel()
    yield call("full", fill, shape=(7, 5)), np.full((7, 5), fill)
    yield call("full_like", np.zeros((7, 5), np.int8), fill), np.full((7, 5), fill)
    yield call("diff", x, n=0), x


def computing_calls(run: Any, values: Any, dtype: np.dtype) -> Iterator[Case]:
    """Calls of small integers, whose results are exact."""

    def call(name: str, *operands: np.ndarray, **how: Any) -> Any:
        return run.call(KERNELS[name], *operands, **{"mesh": {"x": 8}} | how)

    yield from differences(run, values, dtype, [{"n": 2}])
    column, three = values.small((24, 3), dtype), {"mesh": {"x": 3}}
    is_narrow = "float" in dtype.name and dtype.itemsize < 4  # NumPy rounds at every step
    for mesh in ({"x": 1}, {"x": 8}):
        series, window = values.small((20,), dtype), values.small((3,), dtype)
        yield call("convolve", series, window, mesh=mesh, mode="same"), np.convolve(series, window, "same")
        x = column if dtype.kind in "fc" or is_narrow else values.any((24, 3), dtype)
        sums = np.cumsum(x, 0, dtype=np.float32).astype(dtype) if is_narrow else np.cumsum(x, 0)
        yield call("cumsum", x, mesh=mesh, axis=0), sums
    if dtype != np.bool_:
        slope = np.gradient(wide(column), axis=0, edge_order=2)
        stays = dtype.kind in "fc" or "float" in dtype.name
        yield call("gradient", column, axis=0, edge_order=2), slope.astype(dtype if stays else np.float64)
        curvature = laplacian(wide(column))
        integer = dtype.name.startswith(("int", "uint"))
        yield call("laplacian", column), (curvature.astype(np.int64) if integer else curvature).astype(dtype)
    factors = values.small((4, 4), dtype)
    product = np.cumprod(factors.astype(np.float32) if is_narrow else factors, 0)
    yield call("cumprod", factors, axis=0, **three), product.astype(np.cumprod(factors).dtype)
    few, many = values.small((7, 4), dtype), values.small((3, 40), dtype)
    order = np.argsort(wide(few), 0, stable=True)
    yield call("argsort", few, axis=0, **three), order
    yield call("sort", few, axis=0, **three), np.take_along_axis(few, order, 0)
    yield call("lexsort", many, **three), np.lexsort(wide(many))
    numbers = np.sort(wide(values.small((40,), dtype)))
    yield call("searchsorted", numbers.astype(dtype), many, **three), np.searchsorted(numbers, wide(many))
    square = values.small((7, 7), dtype)
    trace = np.trace(square.astype(np.float32) if dtype.name.startswith("float8") else square)
    for spec in (("x", None), (None, "x")):
        yield call("trace", square, in_specs=[spec], **three), trace.astype(np.trace(square).dtype)
    for mode, function in (("add", np.add), ("multiply", np.multiply)):
        x, new, indices = values.small((7,), dtype), values.small((3,), dtype), np.array([2, 5, -1])
        updated = x.copy() if dtype == np.bool_ else wide(x)
        updated[indices] = function(updated[indices], new.astype(updated.dtype))
        updated = updated.astype(int) if dtype.kind in "iu" else updated
        yield call("put_at", x, new, indices, mesh={"x": 2}, axes=(0,), mode=mode), updated.astype(dtype)
    ends = np.array([0, 1], dtype)
    yield call("arange", *ends, size=2, **three), ends


def differences(run: Any, values: Any, dtype: np.dtype, hows: list[dict[str, Any]]) -> Iterator[Case]:
    """Calls of `diff` of numbers of every kind."""
    x, last = values.any((48, 5), dtype), values.any((1, 5), dtype)
    for how in hows:
        call = run.call(KERNELS["diff"], x, None, last, **{"mesh": {"x": 8}, "axis": 0} | how)
        yield call, expected("diff", (x, None, last), {"n": how["n"], "axis": 0})
