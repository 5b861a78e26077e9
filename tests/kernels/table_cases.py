"""Calls of the functions that are rows of the table, and NumPy's results for them."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

CUBE = (5, 4, 9)
Call = tuple[tuple[tuple[int, ...] | None, ...], dict[str, Any]]
"""The shapes of the operands, None for one left out, and the parameters."""

MOVES: Mapping[str, list[Call]] = {
    "reshape": [
        ((CUBE,), {"shape": (5, 2, 18)}),
        ((CUBE,), {"shape": (-1,)}),
        ((CUBE,), {"shape": (5, 36)}),
        ((CUBE,), {"shape": (20, 9)}),
        ((CUBE,), {"shape": (5, 2, -1, 9)}),
        (((1,),), {"shape": ()}),
        (((0, 3),), {"shape": (0, 5)}),
        (((),), {"shape": 1}),
    ],
    "expand_dims": [((CUBE,), {"axis": 0}), ((CUBE,), {"axis": (0, -1, 2)}), (((),), {"axis": (0, 1)})],
    "squeeze": [(((1, 5, 1, 9),), {}), (((1, 5, 1),), {"axis": -1}), ((CUBE,), {}), (((1,),), {"axis": (0,)})],
    "broadcast_to": [
        (((5, 1),), {"shape": (5, 9)}),
        (((9,),), {"shape": (2, 5, 9)}),
        (((),), {"shape": (3, 2)}),
        (((1, 4),), {"shape": (0, 4)}),
        ((CUBE,), {"shape": CUBE}),
    ],
    "flip": [((CUBE,), {}), ((CUBE,), {"axis": -1}), ((CUBE,), {"axis": (0, 1)}), (((),), {}), (((0,),), {"axis": 0})],
    "concatenate": [
        (((5, 9), (3, 9), (0, 9)), {}),
        (((5, 9), (5, 2)), {"axis": -1}),
        (((5, 3), (), (4,)), {"axis": None}),
        (((7,),), {"axis": 0}),
    ],
    "stack": [(((5, 9), (5, 9)), {}), (((5,), (5,), (5,)), {"axis": -1}), (((), ()), {})],
    "tile": [
        ((CUBE,), {"reps": 2}),
        ((CUBE,), {"reps": (2, 1, 3)}),
        (((5,),), {"reps": (3, 1)}),
        (((5,),), {"reps": 0}),
    ],
    "repeat": [
        ((CUBE,), {"repeats": 3}),
        ((CUBE,), {"repeats": 2, "axis": 1}),
        ((CUBE,), {"repeats": 0, "axis": 0}),
        (((),), {"repeats": 4}),
    ],
    "tril": [((CUBE,), {}), (((7, 5),), {"k": 2}), (((9,),), {"k": -1}), (((3, 0),), {}), (((5, 5),), {"k": 2**60})],
    "triu": [((CUBE,), {}), (((7, 5),), {"k": 2}), (((9,),), {"k": -1}), (((3, 0),), {}), (((5, 5),), {"k": -(2**60)})],
    "diagonal": [
        ((CUBE,), {}),
        ((CUBE,), {"offset": 2, "axis1": -1, "axis2": 0}),
        ((CUBE,), {"offset": -1, "axis1": 1, "axis2": 2}),
        (((5, 7),), {"offset": 100}),
    ],
    "pad": [
        ((CUBE, None), {"pad_width": 2}),
        ((CUBE, ()), {"pad_width": (1, 3)}),
        ((CUBE, ()), {"pad_width": (0, 0, 2, 1, 0, 0)}),
        *(((CUBE, None), {"pad_width": (0, 0, 3, 2, 11, 0), "mode": mode}) for mode in ("edge", "wrap")),
        *(((CUBE, None), {"pad_width": (6, 2, 0, 1, 0, 0), "mode": mode}) for mode in ("reflect", "symmetric")),
        (((0,), None), {"pad_width": 2}),
        (((1, 3), None), {"pad_width": 2, "mode": "reflect"}),
    ],
}
"""Of functions whose results have the bits of their operands."""

OTHERS: Mapping[str, list[Call]] = {
    "trace": [((CUBE,), {}), ((CUBE,), {"offset": -1, "axis1": -1, "axis2": 0, "dtype": "complex128"}), (((0, 3),), {})]
}


def pairs(width: Any) -> Any:
    """NumPy's form of the parameter ``pad_width``."""
    if isinstance(width, tuple) and len(width) > 2:
        return tuple(zip(width[::2], width[1::2], strict=True))
    return width


def _pad(x: np.ndarray, fill: np.ndarray | None, pad_width: Any, mode: str = "constant") -> np.ndarray:
    more = {} if fill is None else {"constant_values": fill}
    return np.pad(x, pairs(pad_width), mode, **more)


NUMPYS: Mapping[str, Callable[..., np.ndarray]] = {
    "concatenate": lambda *arrays, **how: np.concatenate(arrays, **how),
    "stack": lambda *arrays, **how: np.stack(arrays, **how),
    "pad": _pad,
}


def expected(name: str, operands: tuple[np.ndarray | None, ...], parameters: Mapping[str, Any]) -> np.ndarray:
    """NumPy's result of a call."""
    function = NUMPYS.get(name, getattr(np, name, None))
    assert function is not None
    return np.asarray(function(*operands, **parameters))
