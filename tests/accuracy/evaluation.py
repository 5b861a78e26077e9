"""Runs cases, on a server or in this process, and compares their results with their references."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from accuracy import arrays, elementwise
from accuracy.elementwise import FLOATS, INTEGERS, Case
from accuracy.ulps import Accuracy, measure

import shardcall as sc
from shardcall_core.element_types import NAMED
from shardcall_server.kernels.elementwise.ufuncs import UFUNCS

SIZES = (1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 4097, 65_535, 65_536, 65_537)
"""On both sides of every vector's width, unrolled loops' included, and of 2**16."""
SOME_SIZES = (4097, 65_537)
FEW_SIZES = (4097,)
"""Those of types that are computed in another one, and of integers."""
_TIMEOUT_S = 600.0
_AT_ONCE = 3
_PROGRESS = 100

Table = dict[tuple[str, str], Accuracy]
"""The accuracy by row and column: a kernel, and an element type."""


def sizes_of(dtype: str, *, quick: bool = False) -> tuple[int, ...]:
    """The sizes that a type is measured at."""
    if dtype in ("float16", "bfloat16"):  # every value
        return SOME_SIZES[-1:]
    if dtype not in ("float32", "float64", "complex64", "complex128"):
        return FEW_SIZES
    return SOME_SIZES if quick else SIZES


def all_cases(sizes: Callable[[str], tuple[int, ...]], devices: int) -> Iterator[Iterable[Case]]:
    """The cases of every kernel and type, in groups that are generated on demand.

    Args:
        sizes: of an element type.
        devices: over how many the last case of a row is sharded.
    """
    for column in (*FLOATS, *INTEGERS):
        for name in UFUNCS:
            yield elementwise.cases(name, NAMED[column], sizes(column), devices)
        yield arrays.cases(NAMED[column], sizes(column), devices)


def judged(case: Case, results: tuple[np.ndarray, ...]) -> Accuracy:
    """Compares a case's results with its references."""
    results = case.aligned(results)
    if case.kernel in arrays.ROWS_OF_BITS:
        same = results[0].tobytes() == case.references[0].tobytes()
        return Accuracy() if same else Accuracy(float("inf"), "bits changed")
    worst = Accuracy()
    for result, reference, scale in zip(results, case.references, case.scales, strict=True):
        assert result.shape == reference.shape, (case.row, case.column, result.shape, reference.shape)
        worst |= measure(result, reference, case.elements, scale)
    return worst


def on_server(client: sc.Client, case: Case) -> Accuracy:
    """Runs a case on a server."""
    result = client.call(
        case.kernel, *case.operands, mesh=sc.Mesh(x=case.devices), timeout=_TIMEOUT_S, **case.parameters
    )
    return judged(case, result.arrays)


def measured(client: sc.Client, groups: Iterable[Iterable[Case]]) -> Table:
    """The worst of every row and column."""
    table: Table = {}

    def of_group(group: Iterable[Case]) -> list[tuple[tuple[str, str], Accuracy]]:
        with np.errstate(all="ignore"):
            return [((case.row, case.column), on_server(client, case)) for case in group]

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for number, accuracies in enumerate(pool.map(of_group, groups), 1):
            merge(table, accuracies)
            if not number % _PROGRESS:
                print(f"{len(table)} pairs of kernel and element type", file=sys.stderr)  # noqa: T201
    return table


def merge(table: Table, accuracies: Iterable[tuple[tuple[str, str], Accuracy]]) -> None:
    """Takes results into a table; the integer types share a column."""
    for (row, column), accuracy in accuracies:
        key = row, "integers" if column in INTEGERS else column
        table[key] = table[key] | accuracy if key in table else accuracy


def rows(table: Mapping[tuple[str, str], Accuracy]) -> list[str]:
    """The table's rows, in the order in which they came."""
    return list(dict.fromkeys(row for row, _ in table))
