"""Comparison of a function in NumPy, on the mesh call by call, and as a traced program."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardcall._src.device_arrays.operands import as_operand
from shardcall._src.device_arrays.remote_array import RemoteArray, find_remote_array, unshaped_array
from shardcall._src.traced.tracing import NUMBERS, StaticArgument
from shardcall_core.markup import page
from shardcall_core.types.arrays import Array, NDArray, type_of
from shardcall_core.types.errors import InvalidOperandError
from shardcall_core.types.pytrees import flatten

_MAX_ROUNDS = 15
_MIN_ROUNDS = 3
_MAX_S = 3.0
_COLUMNS = ("", "ms", "÷ NumPy", "equal")
_ON_MESH = "computes on the mesh, by client.xp or with arrays there that it refers to"


@dataclass(frozen=True)
class ComparedRun:
    """A line of a comparison.

    Attributes:
        name: ``"NumPy"``, ``"eager"`` or ``"program"``.
        seconds: the median of the runs; None if the function did not run so.
        ratio: the seconds over those of NumPy; None without one of them.
        difference: the largest absolute difference of a number from that of the first line that ran, 0 if all are the
            same bits or both NaN; infinite for another shape or number of results; None without such a line.
        note: the reason that the function did not run so; empty if it did.
    """

    name: str
    seconds: float | None
    ratio: float | None
    difference: float | None
    note: str = ""

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """The texts of the columns; a note is in the last one."""
        if self.seconds is None:
            return self.name, "-", "-", self.note
        equal = "" if self.difference is None else "yes" if self.difference == 0 else f"within {self.difference:.2g}"
        if self.difference == np.inf:
            equal = "no"
        ratio = "-" if self.ratio is None else f"{self.ratio:.3g}"
        return self.name, f"{self.seconds * 1e3:.3f}", ratio, equal


@dataclass(frozen=True, repr=False)
class Comparison:
    """The times and the results of a function in NumPy, on the mesh and as a program; ``print`` shows a table.

    Attributes:
        name: the function, with its file and line.
        rounds: the number of rounds, of which each ran all three once.
        rows: the lines ``"NumPy"``, ``"eager"`` and ``"program"``.
    """

    name: str
    rounds: int
    rows: tuple[ComparedRun, ...]

    def __getitem__(self, name: str) -> ComparedRun:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    def __repr__(self) -> str:
        lines = [_COLUMNS, *(row.cells for row in self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(_COLUMNS) - 1)]
        return "\n".join(f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}  {d}".rstrip() for a, b, c, d in lines)

    def _repr_html_(self) -> str:
        """Returns the table for a notebook."""
        title = f"{self.name}: medians of {self.rounds} rounds"
        return page.page(title, page.listing(_COLUMNS, (row.cells for row in self.rows)))


class ArgumentCopies:
    """The arguments of a function, of which every run gets copies.

    Arguments that are views of one array on the mesh are views of one copy. Arrays of this process are put on the mesh
    of the first one that is there.

    Args:
        client: the client.
        objects: the leaves of the arguments.

    Raises:
        InvalidOperandError: for a `shardcall.Array`, which has no values.
    """

    def __init__(self, client: Any, objects: Sequence[Any]) -> None:
        self._objects = [item.value if isinstance(item, StaticArgument) else item for item in objects]
        self._arrays: dict[int, tuple[RemoteArray, NDArray]] = {}  # on the mesh and here, by the index of the argument
        meshes = (item.mesh for item in objects if isinstance(item, RemoteArray))
        mesh = next(meshes, None)
        views = Counter(item._store for item in objects if isinstance(item, RemoteArray))
        self._shared = {i for i, o in enumerate(objects) if isinstance(o, RemoteArray) and views[o._store] > 1}
        for i, item in enumerate(objects):
            if isinstance(item, Array):
                raise InvalidOperandError(f"compare runs the function and takes arrays with values, not {item}")
            if isinstance(item, RemoteArray):
                array = unshaped_array(item._store) if i in self._shared else item
                self._arrays[i] = array, array.get(timeout=None)
            elif not isinstance(item, (StaticArgument, np.generic, *NUMBERS)):
                here = as_operand(item, "it")
                self._arrays[i] = client.put(here, mesh=mesh), here

    def here(self) -> list[Any]:
        """Returns the leaves of a run with NumPy: arrays of this process."""
        leaves, bases = list(self._objects), dict[Any, NDArray]()
        for i, (_array, values) in self._arrays.items():
            item = self._objects[i]
            if i in self._shared:
                leaves[i] = bases.setdefault(item._store, values.copy())
                for step in item._steps:
                    leaves[i] = step.of_layout(leaves[i])
            else:
                leaves[i] = values[()] if _is_scalar(item) else values.copy()
        return leaves

    def on_mesh(self) -> list[Any]:
        """Returns the leaves of a run on the mesh."""
        leaves, bases = list(self._objects), dict[Any, RemoteArray]()
        for i, (array, _values) in self._arrays.items():
            item = self._objects[i]
            if i in self._shared:
                if item._store not in bases:
                    bases[item._store] = array.copy()
                leaves[i] = bases[item._store]
                for step in item._steps:
                    leaves[i] = leaves[i]._view(step)
            else:
                leaves[i] = item if _is_scalar(item) else array.copy()
        return leaves


def _is_scalar(item: Any) -> bool:
    return isinstance(item, RemoteArray) and item._is_scalar


def compared(
    name: str,
    runs: dict[str, Callable[[Sequence[Any]], Any]],
    copies: ArgumentCopies,
    wait: Callable[[], None],
    *,
    is_writing: bool,
) -> Comparison:
    """Runs a function in several ways, in interleaved rounds.

    Args:
        name: the name of the function.
        runs: run it with the leaves of its arguments and return its result: ``NumPy``, ``eager`` and ``program``.
        copies: its arguments.
        wait: waits for all calls of the client.
        is_writing: whether it writes to its arguments, which then belong to the results.

    Raises:
        ShardcallError: of the class that fits, for a program that fails.
    """
    results: dict[str, list[NDArray]] = {}
    notes: dict[str, str] = {}
    seconds: dict[str, list[float]] = {name: [] for name in runs}

    def run_once(row: str) -> Any:
        leaves = copies.here() if row == "NumPy" else copies.on_mesh()
        wait()
        began = time.perf_counter()
        result = runs[row](leaves)
        wait()
        seconds[row].append(time.perf_counter() - began)
        return result, leaves if is_writing else []

    for row in runs:  # compiles, too, so its times do not count
        try:
            values = flatten(run_once(row))[0]
            if row == "NumPy" and any(find_remote_array(value) is not None for value in values):
                notes[row] = _ON_MESH
            else:
                results[row] = [_values(value) for value in values if _is_array(value)]
        except Exception as error:
            if row == "program":
                raise
            notes[row] = f"{type(error).__name__}: {error}".partition("\n")[0]
        seconds[row].clear()
    rounds, began = 0, time.perf_counter()
    while rounds < _MIN_ROUNDS or (rounds < _MAX_ROUNDS and time.perf_counter() - began < _MAX_S):
        for row in results:
            run_once(row)
        rounds += 1
    medians = {row: statistics.median(times) for row, times in seconds.items() if times}
    return Comparison(name, rounds, tuple(_row(row, medians, results, notes.get(row, "")) for row in runs))


def _row(name: str, medians: dict[str, float], results: dict[str, list[NDArray]], note: str) -> ComparedRun:
    taken, base, first = medians.get(name), medians.get("NumPy"), next(iter(results))
    return ComparedRun(
        name,
        taken,
        None if taken is None or base is None else taken / base,
        None if name not in results or name == first else _difference(results[first], results[name]),
        note,
    )


def _is_array(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic, *NUMBERS)) or find_remote_array(value) is not None


def _values(value: Any) -> NDArray:
    array = find_remote_array(value)
    return np.asarray(value) if array is None else array.get(timeout=None)


def _difference(expected: Sequence[NDArray], arrays: Sequence[NDArray]) -> float:
    """Returns the largest difference of two numbers; infinite for other types or another number of arrays."""
    if [type_of(a) for a in expected] != [type_of(a) for a in arrays]:
        return np.inf
    return max((_largest(a, b) for a, b in zip(expected, arrays, strict=True) if a.size), default=0.0)


def _largest(expected: NDArray, array: NDArray) -> float:
    is_same = (expected == array) | ((expected != expected) & (array != array))  # noqa: PLR0124  # NaN
    if is_same.all():
        return 0.0
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        differences = np.abs(array[~is_same].astype(wide) - expected[~is_same].astype(wide))
    return float(np.nan_to_num(differences, nan=np.inf, posinf=np.inf).max()) or np.inf
