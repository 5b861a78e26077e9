"""The permission for copies to this process that NumPy requests, and their counts."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Literal

from shardcall._src.device_arrays.remote_array import RemoteArray
from shardcall_core.types.errors import InvalidParameterError
from shardcall_core.wire.forks import begin_anew_in_children

ImplicitGet = Literal["allow", "error"]
"""The permission for ``numpy.asarray(array)``, and functions of other libraries that call it, to copy an array."""


@dataclass(frozen=True)
class Statistics:
    """Counts of a client since it connected.

    Attributes:
        implicit_gets: the arrays that were copied to this process without a call of `get`, such as by
            ``numpy.asarray``.
        implicit_get_bytes: the bytes of their values.
    """

    implicit_gets: int = 0
    implicit_get_bytes: int = 0


class ImplicitGets:
    """Counts the copies, or refuses them; safe to use from several threads at once.

    Args:
        mode: `ImplicitGet`.

    Raises:
        InvalidParameterError: for another mode.
    """

    def __init__(self, mode: ImplicitGet) -> None:
        if mode not in ("allow", "error"):
            raise InvalidParameterError(
                f"implicit_get is {mode!r}; give 'allow', or 'error' to refuse copies by numpy.asarray",
                field="implicit_get",
            )
        self._is_refused = mode == "error"
        self._statistics = Statistics()
        self.begin_anew()
        begin_anew_in_children(self)

    def begin_anew(self) -> None:
        """Replaces the lock in a forked child."""
        self._lock = threading.Lock()  # guards the counts

    def statistics(self) -> Statistics:
        """Returns the copies until now."""
        return self._statistics

    def add(self, array: RemoteArray) -> None:
        """Counts a copy.

        Raises:
            TypeError: if they are refused.
        """
        if self._is_refused:
            raise TypeError(
                f"{array._description()} would be copied to this process, which connect(implicit_get='error') refuses; "
                "call array.get() to copy its values"
            )
        with self._lock:
            before = self._statistics
            self._statistics = Statistics(before.implicit_gets + 1, before.implicit_get_bytes + array.nbytes)
