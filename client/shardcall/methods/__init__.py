"""The methods of kernels, with the names and defaults of their NumPy equivalents."""

from __future__ import annotations

from shardcall.methods.differences import Differences
from shardcall.methods.elementwise import Elementwise
from shardcall.methods.kernel_method import Outcome
from shardcall.methods.layouts import Layouts
from shardcall.methods.products import Products
from shardcall.methods.random import Random
from shardcall.methods.reductions import Reductions
from shardcall.methods.scans import Scans
from shardcall.methods.shapes import Shapes
from shardcall.methods.sorting import Sorting
from shardcall.methods.statistics import Samples


class KernelMethods(
    Differences[Outcome],
    Products[Outcome],
    Random[Outcome],
    Scans[Outcome],
    Elementwise[Outcome],
    Reductions[Outcome],
    Layouts[Outcome],
    Shapes[Outcome],
    Sorting[Outcome],
    Samples[Outcome],
):
    """The methods of kernels, with the names and defaults of their NumPy equivalents.

    The methods of a client return a `shardcall.Result`, those of an `aio` client an awaitable of one. Its array is of
    NumPy's class, and a `shardcall.RemoteArray` with ``keep=True``.
    """
