"""Calls of differences, shifts, sums and windows along axes of matrices, and NumPy's results for them."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from kernels.conftest import KERNELS

from shardcall_core.functions.stencils import CONVOLVE_MODES

Layout = tuple[dict[str, int], tuple[Any, ...]]
"""A mesh and the spec of a matrix."""
LAYOUTS: list[Layout] = [
    ({"x": 8}, ("x", None)),
    ({"x": 1}, ("x", None)),
    ({"x": 8}, (None, "x")),
    ({"a": 4, "b": 2}, ("a", "b")),
    ({"a": 2, "b": 4}, (("b", "a"), None)),
    ({"a": 2, "b": 2, "c": 2}, (("a", "c"), "b")),
]
MODES = {"periodic": "wrap", "zero": "constant", "edge": "edge"}
"""The boundaries of a Laplacian, and what `np.pad` calls them."""
Stencil = tuple[str, tuple[Any, ...], dict[str, Any]]
"""The name of a kernel, the shapes of its operands (None for one left out), and the parameters."""


def _shapes_of_edges(shape: tuple[int, ...], edges: Iterable[int | None]) -> list[tuple[int, ...] | None]:
    return [None if rows is None else (rows, shape[1]) if rows else () for rows in edges]


def _spacings(shape: tuple[int, int], form: str) -> tuple[Any, ...]:
    return {"none": (), "one": ((),), "each": ((), ()), "coordinates": ((shape[0],), (shape[1],))}[form]


EDGES = [(None, None), (0, None), (None, 0), (0, 0), (1, None), (2, None), (None, 3), (3, 1), (1, 2)]
"""Rows before and after those whose differences are taken; 0 for a scalar."""
ROLLS = [
    *(((1, -2), (0, 1)), (3, (0, 1)), ((1, 2, -30), (1, 0, 1)), ((1, 2), 0), (1, ()), ((), 0), (5, 1)),
    *((7, None), ((-3, 1000), None), (-1, -2)),
]
CALLS: list[Stencil] = [
    *(
        ("diff", (shape, *_shapes_of_edges(shape, edges)), {"n": n, "axis": 0})
        for shape in ((64, 6), (61, 9), (4095, 2), (1, 3), (16, 3))
        for edges in EDGES
        for n in range(6)
    ),
    *(  # within a neighbour, beyond it, beyond all
        ("shift", (shape, () if mode == "fill" else None), {"shift": shift, "axis": axis, "mode": mode})
        for shape in ((64, 6), (61, 9), (9, 3), (1, 3))
        for shift in (0, 1, -2, 5, 8, 20, -70)
        for axis in (0, -1)
        for mode in ("fill", "periodic")
    ),
    *(
        ("roll", (shape,), {"shift": shift, "axis": axis})
        for shape in ((64, 6), (61, 9), (13, 2))
        for shift, axis in ROLLS
    ),
    *(
        ("laplacian", (shape,), {"axes": axes, "boundary": boundary})
        for shape in ((24, 9), (17, 6), (61, 3), (1, 3))
        for axes in (None, 0, 1, (1, 0))
        for boundary in MODES
    ),
    *(
        ("gradient", (shape, *_spacings(shape, form)), {"edge_order": edge_order})
        for shape in ((64, 6), (57, 5), (9, 3), (3, 3))  # the last block holds 8 rows, 1, and none
        for form in ("none", "one", "each", "coordinates")
        for edge_order in (1, 2)
    ),
    *(
        ("convolve", ((rows, 3), (length,)), {"mode": mode, "axis": 0})
        for rows, length in ((32, 3), (29, 4), (9, 6), (3, 5), (1, 1), (8, 1), (1, 9), (2, 2), (17, 40), (64, 33))
        for mode in CONVOLVE_MODES
    ),
    *(
        ("cumsum", (shape,), {"axis": axis})
        for shape in ((24, 8), (9, 3), (0, 3), (3, 0), (1, 1), (7, 1), (17, 5), (1, 40))
        for axis in (0, 1, None)
    ),
]


def operand_of(values: Any, name: str, number: int, shape: tuple[int, ...]) -> np.ndarray:
    """An operand of a call: integers where results are exact for them, steps and coordinates of a gradient."""
    if name in ("convolve", "cumsum"):
        return np.asarray(values.random.integers(-(2**62), 2**62, shape))
    if name == "gradient" and number:
        steps = values.random.uniform(0.5, 2, shape)
        return np.cumsum(steps) if shape else np.asarray(steps)
    return np.asarray(values.normal(shape, np.float32 if name in ("diff", "shift") else np.float64))


def shifted(x: np.ndarray, fill: Any, shift: Any, axis: Any = -1, mode: str = "fill") -> np.ndarray:
    """The definition of a shift, row by row."""
    for step, along in zip(np.atleast_1d(shift), np.atleast_1d(axis), strict=True):
        if mode == "periodic":
            x = np.roll(x, step, along)
            continue
        rows = np.moveaxis(x, along, 0)
        moved = np.full_like(rows, np.asarray(0 if fill is None else fill).astype(x.dtype))
        for i in range(len(rows)):
            if 0 <= i - step < len(rows):
                moved[i] = rows[i - step]
        x = np.moveaxis(moved, 0, along)
    return x


def laplacian(x: np.ndarray, *spacing: Any, axes: Any = None, boundary: str = "periodic") -> np.ndarray:
    """The sum of second differences of the array padded by `np.pad`."""
    total = np.zeros_like(x)
    for i, axis in enumerate(range(x.ndim) if axes is None else np.atleast_1d(axes)):
        rows = np.moveaxis(np.pad(x, [(int(j == axis),) * 2 for j in range(x.ndim)], MODES[boundary]), axis, 0)
        term = rows[:-2] - (rows[1:-1] + rows[1:-1]) + rows[2:]
        total = total + np.moveaxis(term / spacing[i] ** 2 if spacing else term, 0, axis)
    return total


def _gradients(x: np.ndarray, *spacing: np.ndarray, axis: Any = None, **how: Any) -> tuple[np.ndarray, ...]:
    results = np.gradient(x, *spacing, axis=axis, **how)
    return results if isinstance(results, tuple) else (results,)


def _difference(x: np.ndarray, prepend: Any = None, append: Any = None, **how: Any) -> np.ndarray:
    edges = {name: edge for name, edge in (("prepend", prepend), ("append", append)) if edge is not None}
    return np.diff(x, **edges, **how)


NUMPYS = {
    "diff": _difference,
    "shift": shifted,
    "roll": np.roll,
    "laplacian": laplacian,
    "gradient": _gradients,
    "convolve": lambda x, v, mode="full", axis=-1: np.apply_along_axis(np.convolve, axis, x, v, mode),
    "cumsum": np.cumsum,
}


def expected(name: str, operands: Sequence[np.ndarray | None], parameters: dict[str, Any]) -> Any:
    """NumPy's result; of `gradient` a tuple of one result for each axis."""
    with np.errstate(all="ignore"):
        return NUMPYS[name](*operands, **parameters)


def assert_agree(actual: Any, numpys: Any) -> None:
    """Checks that results are NumPy's: gradients within a few units, others exactly."""
    if not isinstance(numpys, tuple):
        np.testing.assert_array_equal(actual, numpys, strict=True)
        return
    for result, reference in zip(actual if isinstance(actual, tuple) else (actual,), numpys, strict=True):
        assert result.dtype == reference.dtype
        np.testing.assert_allclose(result, reference, rtol=1e-12, atol=1e-12)


def check_calls(
    run: Any, values: Any, calls: Iterable[Stencil], layout: Layout, strategies: Sequence[str] = ("auto", "gspmd")
) -> None:
    """Compares the results of calls in a layout with NumPy's, where padding holds NaN."""
    mesh, spec = layout
    cases = []
    for (name, shapes, parameters), strategy in itertools.product(calls, strategies):
        operands = [None if s is None else operand_of(values, name, i, s) for i, s in enumerate(shapes)]
        how = {"mesh": mesh, "in_specs": [spec], "strategy": strategy, **parameters}
        cases.append((run.call(KERNELS[name], *operands, **how), expected(name, operands, parameters)))
    run.check_together(cases, assert_agree, np.nan)
