"""Calls of NumPy's functions as texts, which NumPy and the client run, and whose outcomes are compared.

In a text, a name of capitals is an array of this process, and the same name in small letters is that array on the
mesh; `put` puts another one there. `np` is NumPy, and `xp`, `linalg`, `ndimage` and `special` are the client's
namespaces where it runs the text, else NumPy's and SciPy's.
"""

import re
import warnings
from collections.abc import Sequence
from itertools import product
from types import CodeType
from typing import Any

import numpy as np
import pytest
from end_to_end.numpy_comparison import family, leaves

import shardcall as sc
from shardcall import P

MESH = sc.Mesh(a=4, b=2)
AXES = ("a", "b", None, None)
"""The mesh axes along the axes of arrays, where a test does not say others."""
RANDOM = np.random.default_rng(18)
X, Y = RANDOM.normal(size=(2, 13, 6))  # no mesh axis divides an axis of these
HOLES = X.copy()
HOLES[2, 3:], HOLES[:, 5], HOLES[0, 0] = np.nan, np.nan, np.inf
MASK = Y > 0
I = RANDOM.integers(-9, 9, (13, 6))  # noqa: E741
SQUARES = RANDOM.normal(size=(3, 4, 4)) + 3 * np.eye(4)
V, W = Y[:, 0], X[:, 0]
ARRAYS = {
    "X": X,
    "Y": Y,
    "V": V,
    "W": W,
    "C": X + 1j * Y[::-1],
    "HOLES": HOLES,
    "MASK": MASK,
    "I": I,
    "K": I % 7 + 1,
    "SMALL": I[:, 0].astype("i1") % 7 - 3,
    "BYTES": RANDOM.integers(0, 256, (13, 6), "u1"),
    "BINARY": np.arange(8, dtype=np.uint8) * 30,
    "CUBE": RANDOM.normal(size=(3, 4, 5)),
    "GRID": RANDOM.normal(size=(13, 6, 5)),
    "SQUARES": SQUARES,
    "MANY": RANDOM.normal(size=4096),
    "COUNTS": np.arange(4096) % 97,
    "FACTORS": np.arange(1, 31),
    "INFINITE": np.array([2.5, -1.25, np.inf, np.nan, 0.0]),
    "ENDS": np.array([-1000, -720, -1, 0, 1, 40, 800, np.nan, np.inf, -np.inf]),
    "WEIGHTS": abs(I) % 4 + np.eye(13, 6),
    "ROW": np.arange(1.0, 7.0),
    "AT": np.array([0, 4, 4, 12, 4, 0]),
}
TOLERANCES = {"float16": 4e-3, "float32": 2e-5, "complex64": 2e-5, "float64": 1e-11, "complex128": 1e-11}
"""Of each type the share of the largest value of a result that another order of operations may change."""


def rows_of(text: str) -> list[str]:
    """Returns the lines of a text."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def calls_of(text: str) -> list[str]:
    """Returns the calls of a text: one in each line, with each of several alternatives, as in ``{mean|median}``."""
    return [call for row in rows_of(text) for call in alternatives(row)]


def alternatives(row: str) -> list[str]:
    """Returns a call with every combination of the alternatives in braces."""
    begin, *rest = re.split(r"\{([^{}]*\|[^{}]*)\}", row)
    texts = [begin]
    for several, between in zip(rest[::2], rest[1::2], strict=True):
        texts = [text + one + between for text, one in product(texts, several.split("|"))]
    return texts


def compiled(text: str) -> CodeType:
    """Returns the code of an expression or of statements."""
    try:
        return compile(text, "<call>", "eval")
    except SyntaxError:
        return compile(text, "<call>", "exec")


class Side:
    """The names of a text, for NumPy or for a client.

    Args:
        code: the text.
        client: the client; None for NumPy.
        axes: the mesh axes along the axes of arrays on the mesh.
        keep: for operands that are results of calls, whether they stay on the mesh; None for arrays on the mesh.
    """

    def __init__(
        self,
        code: CodeType,
        client: sc.Client | None = None,
        axes: Sequence[str | None] = AXES,
        keep: bool | None = None,
    ) -> None:
        self._code, self._client, self._axes, self._keep = code, client, axes, keep
        self.names: dict[str, Any] = {"np": np, "xp": np if client is None else client.xp, "put": self.put, **ARRAYS}
        for name in code.co_names:
            if name.upper() in ARRAYS and name not in ARRAYS:
                self.names[name] = self.put(ARRAYS[name.upper()])
            elif name in ("linalg", "ndimage", "special") and name not in self.names:
                scipys = pytest.importorskip(f"scipy.{name}")
                self.names[name] = scipys if client is None else getattr(client.xp, name)

    def put(self, x: Any) -> Any:
        """Returns an array as the text has it."""
        array = np.array(x)
        if self._client is None:
            return array
        placed = self._client.put(array, mesh=MESH, spec=P(*self._axes[: array.ndim]))
        return placed if self._keep is None else self._client.reshard(placed, keep=self._keep)

    def operands(self) -> dict[str, Any]:
        """Returns the arrays of small letters, by their names."""
        arrays = np.ndarray | np.generic | sc.RemoteArray | sc.Result
        return {name: item for name, item in self.names.items() if name.islower() and isinstance(item, arrays)}

    def result(self) -> Any:
        """Returns what the text evaluates to; None for statements."""
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            return eval(self._code, self.names)  # texts of tests

    def outcome(self) -> list[Any] | Exception:
        """Returns the results of the text and its arrays after it, or the error that it raises."""
        try:
            values = [*leaves(self.result()), *self.operands().values()]
            return [item.get() if isinstance(item, sc.RemoteArray | sc.Result) else item for item in values]
        except Exception as error:  # noqa: BLE001  # to be compared
            return error


def check_call(
    client: sc.Client, text: str, *, exact: bool = False, axes: Sequence[str | None] = AXES, keep: bool | None = None
) -> None:
    """Compares with NumPy the values, types and shapes of a call's results, and of its operands after it.

    Args:
        client: runs the call.
        text: the call, or statements.
        exact: for results that are NumPy's to the last bit.
        axes: as of `Side`.
        keep: as of `Side`.
    """
    code = compiled(text)
    expected = Side(code).outcome()
    side = Side(code, client, axes, keep)
    before = {name: array.spec for name, array in side.operands().items() if keep is None}
    actual = side.outcome()
    if isinstance(expected, Exception):
        assert isinstance(actual, family(expected)), f"{text}: {actual!r}, and NumPy raises {expected!r}"
        return
    if isinstance(actual, Exception):
        actual.add_note(f"in {text}, of which NumPy makes {expected}")
        raise actual
    for ours, numpys in zip(actual, expected, strict=True):
        same(ours, numpys, exact=exact, text=text)
    assert {name: array.spec for name, array in side.operands().items() if name in before} == before, text


def same(ours: Any, numpys: Any, *, exact: bool = False, text: str = "") -> None:
    """Compares two arrays or numbers, of which floats may differ by a share of the largest value."""
    result, expected = np.asarray(ours), np.asarray(numpys)
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype), text
    share = 0 if exact else TOLERANCES.get(expected.dtype.name, 0)
    if not share:
        np.testing.assert_array_equal(result, expected, err_msg=text)
        return
    largest = np.max(np.abs(expected[np.isfinite(expected)]), initial=1e-30)
    np.testing.assert_allclose(result, expected, rtol=share, atol=share * largest, err_msg=text)
