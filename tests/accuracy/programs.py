"""Errors of expressions in traced programs, exact ones and those that the compiler may round otherwise."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from accuracy.ulps import errors, extended

import shardcall as sc

SIZE = 4097
DTYPES = ("float32", "float64")

Expression = Callable[[Any, Any, Any, Any], Any]

EXPRESSIONS: Mapping[str, Expression] = {
    "x * y + z": lambda np, x, y, z: x * y + z,
    "x / 3": lambda np, x, y, z: x / 3,
    "x / y / z": lambda np, x, y, z: x / y / z,
    "x / (y / z)": lambda np, x, y, z: x / (y / z),
    "x / sqrt(y)": lambda np, x, y, z: x / np.sqrt(y),
    "sqrt(x) * sqrt(x)": lambda np, x, y, z: np.sqrt(x) * np.sqrt(x),
    "log(exp(x))": lambda np, x, y, z: np.log(np.exp(x)),
    "exp(x) * exp(y)": lambda np, x, y, z: np.exp(x) * np.exp(y),
    "x ** 3": lambda np, x, y, z: x**3,
    "x * z + y * z": lambda np, x, y, z: x * z + y * z,
}
"""Functions of a module like NumPy and three arrays of positive numbers."""

Row = tuple[float, ...]
"""The largest error in units in the last place of exact programs of each type, then of the others."""


def operands(dtype: str) -> list[np.ndarray]:
    """Returns x, y and z: positive numbers of several orders of magnitude."""
    random = np.random.default_rng(1)
    return [np.exp(random.normal(size=SIZE)).astype(dtype) for _ in range(3)]


def measured(client: sc.Client, name: str) -> Row:
    """Returns the errors of an expression."""
    expression, row = EXPRESSIONS[name], []
    for exact in (True, False):
        for dtype in DTYPES:
            arrays = operands(dtype)
            program = client.jit(lambda x, y, z, expression=expression: expression(np, x, y, z), exact=exact)
            reference = expression(np, *map(extended, arrays))
            row.append(float(errors(program(*arrays).get(), reference).max()))
    return tuple(row)


def table(rows: Mapping[str, Row]) -> str:
    """Returns the rows as a table."""
    head = "".join(f" {how}{dtype} |" for how in ("`exact=True`, ", "") for dtype in DTYPES)
    lines = [f"| |{head}", "|---|" + "---|" * 2 * len(DTYPES)]
    lines += [f"| `{name}` |" + "".join(f" {error:.2f} |" for error in row) for name, row in rows.items()]
    return "\n".join(lines)


def parsed(text: str) -> dict[str, Sequence[float]]:
    """Returns the rows of the table in a document."""
    rows = {}
    for line in text.splitlines():
        name, *cells = (part.strip().strip("`") for part in line.strip("|").split("|"))
        if name in EXPRESSIONS and len(cells) == 2 * len(DTYPES):
            rows[name] = [float(cell) for cell in cells]
    return rows
