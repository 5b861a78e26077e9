"""The values of an array on the mesh that `print(h)` and `repr(h)` show."""

from __future__ import annotations

import math
import sys
import weakref
from types import FrameType
from typing import Any

import numpy as np

from shardcall._src.rpc.deadline import DEFAULT_TIMEOUT_S, Deadline
from shardcall_core.types.arrays import NDArray
from shardcall_core.types.errors import DeadlineExceededError, ShardcallError

_DEBUGGER_WAIT_S = 0.2
_DISPLAY_WAIT_S = 2.0  # of who looks at the values, which a program may have to be compiled for first
_DEBUGGERS = frozenset(("bdb", "pdb", "pydevd", "_pydevd_bundle", "debugpy"))
_COMPLETE_BYTES = 1 << 20  # an array of fewer bytes is read as it is: its edges would need a program


class ShownValues:
    """The text of the values of an array.

    What is read of a large array is kept until the array changes, so that a second attempt finds what the first one
    did not wait for.

    Args:
        array: the array on the mesh, of the client that reads it.

    Attributes:
        why_absent: why the last text was None, as the end of a description.
    """

    def __init__(self, array: Any) -> None:
        self.why_absent = ""
        self._array = weakref.ref(array)
        self._part: Any = None
        self._version: weakref.ref[Any] | None = None

    def text(self, prefix: str = "", *, separator: str = " ", wait_s: float | None = None) -> str | None:
        """Returns the values with NumPy's print options; None if they cannot be read in a time that is limited.

        Args:
            prefix: what precedes the text in its first line.
            separator: what is between two elements.
            wait_s: the limit in seconds; None for as long as `RemoteArray.get` waits.

        Raises:
            ShardcallError: as of `RemoteArray.get`, without a limit.
        """
        array: Any = self._array()
        options = np.get_printoptions()
        count = int(options["edgeitems"])
        is_summary = math.prod(array.shape) > options["threshold"]
        edge_count = count if is_summary else None
        if wait_s is None:
            values: NDArray | None = self._read(array, edge_count, Deadline(DEFAULT_TIMEOUT_S))
        else:
            values = self._read_soon(array, edge_count, wait_s)
        if values is None:
            return None
        threshold, suffix = 0 if is_summary else sys.maxsize, ")" if prefix else ""
        return np.array2string(
            values, separator=separator, prefix=prefix, suffix=suffix, threshold=threshold, edgeitems=count
        )

    def _read_soon(self, array: Any, edge_count: int | None, wait_s: float) -> NDArray | None:
        """Returns what `_read` returns within a time; None if it does not, or the call of the array failed."""
        deadline = Deadline(wait_s)
        try:
            is_computed = _is_computed(array._seen_version.pending, deadline)
            values = self._read(array, edge_count, deadline) if is_computed else None
        except DeadlineExceededError:
            self.why_absent = f"values not read within {wait_s:g} s: see .get()"
            return None
        except ShardcallError as error:
            self.why_absent = f"values not read ({error.reason}): see .get()"
            return None
        self.why_absent = ""
        return values

    def _read(self, array: Any, edge_count: int | None, deadline: Deadline) -> NDArray:
        """Returns an array, or one with the same edges.

        Args:
            array: the array on the mesh.
            edge_count: how many elements are read at both ends of an axis, and one between them; None for all.
            deadline: when they must have been read.

        Raises:
            ShardcallError: as of `RemoteArray.get`.
        """
        part = array
        if edge_count is not None and array.nbytes > _COMPLETE_BYTES:
            version = array._seen_version
            if self._version is None or self._version() is not version or self._part.edge_count != edge_count:
                self._part, self._version = _Edges(array, edge_count), weakref.ref(version)
            part = self._part.array
        values: NDArray = part.get(timeout=max(deadline.remaining_s(), 1e-3))
        return values


def limit_s(*, is_display: bool = False) -> float | None:
    """Returns the seconds for which the text of values is waited for; None for as long as `RemoteArray.get` waits.

    A debugger reads the texts of all variables at every stop.

    Args:
        is_display: whether somebody looks at the text, and it is not printed.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] in _DEBUGGERS:
            return _DEBUGGER_WAIT_S
        frame = frame.f_back
    return _DISPLAY_WAIT_S if is_display else None


def _is_computed(pending: Any, deadline: Deadline) -> bool:
    """Returns whether the call of an array succeeded; its error stays for who reads the array."""
    if pending is None:
        return True
    for _ in range(2):  # one that failed as a part of a program is sent again by itself
        pending.begin()
        pending.wait_answered(deadline)
        if not pending.is_failed:
            return True
    return False


class _Edges:
    """The edges of an array on the mesh, along all axes that are longer.

    Attributes:
        array: them, as an array of the same number of axes.
        edge_count: how many elements there are at both ends of an axis, with one between them.
    """

    def __init__(self, array: Any, edge_count: int) -> None:
        self.edge_count = edge_count
        for axis, size in enumerate(array.shape):
            if size > 2 * edge_count + 1:
                edges = np.r_[: edge_count + 1, size - edge_count : size]
                array = array._functions.take(array, edges, axis)
        self.array = array
