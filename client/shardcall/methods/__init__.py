"""The kernels that have a method of their own, with the names and defaults of their NumPy equivalents."""

from __future__ import annotations

from shardcall.methods.calling import Outcome
from shardcall.methods.differences import Differences
from shardcall.methods.products import Products


class KernelMethods(Differences[Outcome], Products[Outcome]):
    """Gives kernels the names and defaults of their NumPy equivalents; ``call`` does the work.

    A client returns a `shardcall.Result`, an `aio` client what awaits one.
    """
