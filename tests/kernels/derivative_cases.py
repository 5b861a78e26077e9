"""Calls of every kernel with derivatives, of float64 arrays whose sizes no mesh of the tests divides."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shardcall_core.functions.table import FUNCTIONS

RANDOM = np.random.default_rng(20)
Call = tuple[Sequence[np.ndarray | None], dict[str, Any]]
"""Operands and parameters; the derivative is with respect to the operands of float64."""


def normal(*shape: int) -> np.ndarray:
    """Numbers that are near neither each other nor zero, where functions have kinks."""
    size = int(np.prod(shape))
    steps = RANDOM.permutation(size) + 1.0
    return np.where(steps % 2 > 0, 1, -1).reshape(shape) * (0.23 + 0.97 * steps / max(size, 1)).reshape(shape)


def positive(*shape: int) -> np.ndarray:
    """Positive numbers."""
    return np.abs(normal(*shape))


def inside(*shape: int) -> np.ndarray:
    """Numbers between -1 and 1, and not near these bounds; the first is 0."""
    x = normal(*shape) * 0.7
    x.flat[0] = 0
    return x


def matrices(*shape: int) -> np.ndarray:
    """Matrices that are far from singular, and symmetric if square."""
    x = RANDOM.normal(size=shape)
    return x + np.swapaxes(x, -1, -2) + 9 * np.diag(np.arange(1.0, shape[-1] + 1)) if shape[-1] == shape[-2] else x


SMALL = (5, 3)
_INSIDE = ("arcsin", "arccos", "arctanh", "log1p", "expm1", "sinh", "arctan", "sin", "tanh", "tan")
_POSITIVE = ("log", "log2", "log10", "sqrt", "cbrt", "reciprocal")
_COMPLEX_ONLY = ("conjugate", "angle")
_INDICES = np.array([4, 0, 0, -1])

UNARY = [
    name
    for name, function in FUNCTIONS.items()
    if [o.name for o in function.operands] == ["x"] and not function.parameters and hasattr(np, name)
]
_FLOAT_RESULTS = [name for name in UNARY if name not in ("squeeze", "flip", "copy", "reshard", "trace", "frexp")]


def _unary() -> dict[str, list[Call]]:
    calls = {}
    for name in _FLOAT_RESULTS:
        with np.errstate(all="ignore"):
            is_real = name not in ("invert", *_COMPLEX_ONLY) and getattr(np, name)(np.float64(0)).dtype == np.float64
        if not is_real:
            continue
        make = inside if name in _INSIDE else positive if name in _POSITIVE else normal
        calls[name] = [([make(*SMALL) + (1.5 if name == "arccosh" else 0)], {})]
    calls["arccosh"] = [([positive(*SMALL) + 1.1], {})]
    return calls


def _binary() -> dict[str, list[Call]]:
    names = (
        "add subtract multiply divide true_divide floor_divide remainder mod fmod arctan2 hypot logaddexp logaddexp2"
    )
    names += " copysign maximum minimum fmax fmin"
    calls: dict[str, list[Call]] = {
        name: [([normal(*SMALL), normal(SMALL[1]) * 0.77], {}), ([np.float64(0.37), normal(*SMALL)], {})]
        for name in names.split()
    }
    for name in ("power", "float_power"):
        base = normal(*SMALL)
        base[0, 0] = 0
        calls[name] = [([positive(*SMALL), normal(SMALL[1])], {}), ([base, np.array([0, 1, 3])], {})]
    return calls


_REDUCED: list[dict[str, Any]] = [{}, {"axis": 0}, {"axis": 1, "keepdims": True}]


def _reductions() -> dict[str, list[Call]]:
    calls: dict[str, list[Call]] = {}
    for name in ("sum", "prod", "mean", "var", "std", "max", "min"):
        calls[name] = [([normal(*SMALL)], dict(how)) for how in _REDUCED]
        mask = np.array([True, False, True])
        if name in ("sum", "mean", "var", "std"):
            calls[name].append(([normal(*SMALL), mask], {"axis": 1}))
        if name in ("sum", "prod", "max", "min"):
            calls[name].append(([normal(*SMALL), mask, np.float64(0.31)], {"axis": 0}))
    with_zero = normal(*SMALL)
    with_zero[0] = 0
    calls["prod"].append(([with_zero], {"axis": 1}))
    return calls


_MOVES: dict[str, list[Call]] = {
    "diff": [([normal(*SMALL)], {"axis": 0}), ([normal(*SMALL), normal(5, 1), np.float64(2)], {"n": 2, "axis": 1})],
    "shift": [
        ([normal(*SMALL)], {"shift": 2, "axis": 0}),
        ([normal(*SMALL), np.float64(0.5)], {"shift": (1, -1), "axis": (0, 1)}),
        ([normal(*SMALL)], {"shift": -1, "axis": 0, "mode": "periodic"}),
    ],
    "roll": [([normal(*SMALL)], {"shift": 2, "axis": 0}), ([normal(*SMALL)], {"shift": 4})],
    "gradient": [
        ([normal(*SMALL)], {}),
        ([normal(7, 4), np.array(3)], {"axis": 0, "edge_order": 2}),
        ([normal(7, 4), np.array([0, 1, 3, 4, 7, 9, 10])], {"axis": 0}),
    ],
    "laplacian": [([normal(5, 4)], {}), ([normal(5, 4), np.array(2), np.array(3)], {"boundary": "zero"})],
    "cumsum": [([normal(*SMALL)], {"axis": 0}), ([normal(*SMALL)], {})],
    "permutation": [([np.int64(3), normal(*SMALL)], {})],
    "reshard": [([normal(*SMALL)], {})],
    "copy": [([normal(*SMALL)], {})],
    "transpose": [([normal(*SMALL)], {})],
    "getitem": [([normal(*SMALL), np.array([1, 2])], {"sizes": (2, 3), "steps": (2, -1), "inserted": 0})],
    "setitem": [([normal(*SMALL), normal(2, 1), np.array([1, 0])], {"sizes": (2, 3), "steps": (2, 1)})],
    "reshape": [([normal(*SMALL)], {"shape": (3, 5)}), ([normal(*SMALL)], {"shape": -1})],
    "expand_dims": [([normal(*SMALL)], {"axis": 1})],
    "squeeze": [([normal(1, 5, 1)], {})],
    "broadcast_to": [([normal(5, 1)], {"shape": (2, 5, 3)})],
    "flip": [([normal(*SMALL)], {}), ([normal(*SMALL)], {"axis": 0})],
    "concatenate": [([normal(5, 3), normal(2, 3)], {}), ([normal(3, 1), normal(3, 2)], {"axis": 1})],
    "stack": [([normal(*SMALL), normal(*SMALL)], {"axis": 1})],
    "astype": [([normal(*SMALL)], {"dtype": "float64"})],
    "tile": [([normal(*SMALL)], {"reps": (2, 1)})],
    "repeat": [([normal(*SMALL)], {"repeats": 2, "axis": 0})],
    "tril": [([normal(*SMALL)], {})],
    "triu": [([normal(*SMALL)], {"k": 1})],
    "diagonal": [([normal(*SMALL)], {}), ([normal(*SMALL)], {"offset": -1})],
    "trace": [([normal(*SMALL)], {})],
    "pad": [
        ([normal(*SMALL), np.float64(2)], {"pad_width": 1}),
        *(([normal(*SMALL), None], {"pad_width": (2, 1, 1, 1), "mode": m}) for m in ("edge", "wrap", "reflect")),
    ],
    "sort": [([normal(*SMALL)], {"axis": 0}), ([normal(*SMALL)], {"axis": None})],
    "take": [([normal(*SMALL), _INDICES], {"axis": 0}), ([normal(*SMALL), _INDICES], {})],
    "take_along_axis": [([normal(*SMALL), np.array([[0, 4, 1], [2, 4, 0]])], {"axis": 0})],
    "take_at": [([normal(*SMALL), _INDICES, np.array(1)], {"axes": (0, 1)})],
    "put_at": [
        ([normal(*SMALL), normal(4), np.array([4, 0, 2, -2]), np.array(1)], {"axes": (0, 1)}),
        ([normal(*SMALL), normal(4, 3), _INDICES], {"axes": (0,), "mode": "add"}),
        ([normal(*SMALL), normal(4, 3), _INDICES], {"axes": (0,), "mode": "max"}),
    ],
    "put_along_axis": [([normal(*SMALL), normal(2, 3), np.array([[0, 4, 1], [2, 3, 0]])], {"axis": 0})],
    "full": [([np.float64(2)], {"shape": SMALL})],
    "full_like": [([normal(*SMALL), np.float64(2)], {})],
    "arange": [([np.float64(2), np.float64(3)], {"size": 9})],
    "linspace": [([np.float64(2), np.float64(3), None], {"size": 9})],
    "uniform": [([np.int64(3), np.float64(0.5), np.float64(2)], {"shape": SMALL})],
    "normal": [([np.int64(3), np.float64(0.5), np.float64(2)], {"shape": SMALL})],
    "where": [([normal(*SMALL), normal(*SMALL), normal(3)], {})],
    "clip": [([normal(*SMALL), np.float64(-0.53), np.float64(0.71)], {})],
}

_OTHERS: dict[str, list[Call]] = {
    "matmul": [
        ([normal(5, 3), normal(3, 6)], {}),
        ([normal(5, 3), normal(3)], {}),
        ([normal(2, 3, 5), normal(4, 3)], {"transpose_lhs": True, "transpose_rhs": True}),
    ],
    "einsum": [([normal(5, 3), normal(3, 6)], {"subscripts": "ij,jk->ki"}), ([normal(5, 5)], {"subscripts": "ii"})],
    "collective_matmul": [([normal(8, 8), normal(8, 6)], {"axis_name": "x"})],
    "convolve": [([normal(7, 3), normal(3)], {"axis": 0}), ([normal(7), normal(3)], {"mode": "same"})],
    "cumprod": [([normal(*SMALL)], {"axis": 0})],
    "bincount": [([_INDICES % 5, normal(4)], {"length": 6})],
    "interp": [([normal(*SMALL), np.array([-1.0, 0.1, 1.3]), normal(3), None, None], {})],
    "fft": [([normal(*SMALL)], {"axis": 0})],
    "ifft": [([normal(*SMALL)], {"n": 4})],
    "rfft": [([normal(*SMALL)], {"axis": 0, "norm": "ortho"})],
    "irfft": [([normal(*SMALL)], {"axis": 0})],
    "cholesky": [([matrices(2, 3, 3)], {}), ([matrices(3, 3)], {"upper": True})],
    "inv": [([matrices(3, 3)], {})],
    "det": [([matrices(2, 3, 3)], {})],
    "slogdet": [([matrices(3, 3)], {})],
    "solve": [([matrices(2, 3, 3), normal(3)], {}), ([matrices(3, 3), normal(3, 2)], {})],
    "solve_triangular": [
        ([matrices(2, 3, 3), normal(3)], {"lower": True}),
        ([matrices(3, 3), normal(3, 2)], {"trans": "T", "unit_diagonal": True}),
    ],
    "erf": [([normal(*SMALL)], {})],
    "gammaln": [([positive(*SMALL)], {})],
    "eigh": [([matrices(3, 3)], {})],
    "eigvalsh": [([matrices(2, 3, 3)], {"UPLO": "U"})],
    "svd": [([matrices(4, 3)], {"full_matrices": False})],
    "svdvals": [([matrices(3, 4)], {})],
    "qr": [([matrices(4, 3)], {})],
}

CASES: Mapping[str, list[Call]] = {**_unary(), **_binary(), **_reductions(), **_MOVES, **_OTHERS}
"""By the name of the kernel."""

SYMMETRIC = ("cholesky", "eigh", "eigvalsh")
"""Kernels that read one triangle of their operands, whose derivatives are those of symmetric matrices."""
