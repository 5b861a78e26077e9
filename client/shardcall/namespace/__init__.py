"""Functions of arrays with the names and arguments of NumPy, whose results stay on the mesh."""

from __future__ import annotations

import math
from collections.abc import Iterable

from shardcall.namespace.base import NamespaceBase
from shardcall.namespace.contractions import ContractionNamespace
from shardcall.namespace.control_flow import ControlFlowNamespace
from shardcall.namespace.counting import CountingNamespace
from shardcall.namespace.creation import CreationNamespace
from shardcall.namespace.fft import FftNamespace
from shardcall.namespace.inspection import InspectionNamespace
from shardcall.namespace.joins import JoinsNamespace
from shardcall.namespace.linalg import LinalgNamespace
from shardcall.namespace.numeric import NumericNamespace
from shardcall.namespace.quantiles import QuantilesNamespace
from shardcall.namespace.ranges import RangeNamespace
from shardcall.namespace.selection import SelectionNamespace
from shardcall.namespace.sets import SetNamespace
from shardcall.namespace.shapes import ShapeNamespace
from shardcall.namespace.standard import StandardNamespace
from shardcall_core.functions.table import FUNCTIONS

_STANDARD = {
    **{name: name.replace("a", "arc", 1) for name in ("acos", "asin", "atan", "acosh", "asinh", "atanh")},
    "atan2": "arctan2",
    "bitwise_invert": "invert",
    "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift",
    "conj": "conjugate",
    "concat": "concatenate",
    "permute_dims": "transpose",
    "pow": "power",
}
"""The names of the Python array API standard, where they are not NumPy's names."""


class Namespace(
    ContractionNamespace,
    ControlFlowNamespace,
    CreationNamespace,
    SelectionNamespace,
    InspectionNamespace,
    RangeNamespace,
    SetNamespace,
    StandardNamespace,
    ShapeNamespace,
    QuantilesNamespace,
    NumericNamespace,
    JoinsNamespace,
    CountingNamespace,
):
    """Functions of arrays with the names and arguments of NumPy and of the Python array API standard.

    Their results stay on the mesh, as those of `Client.submit`. No function waits for its result, but those with as
    many elements as the values say, such as `nonzero`, wait for the number. A function takes arrays on the mesh, arrays
    of this process and numbers; it runs where its committed operands are.
    """

    pi: float = math.pi
    e: float = math.e
    inf: float = math.inf
    nan: float = math.nan
    newaxis: None = None

    @property
    def fft(self) -> FftNamespace:
        """Fourier transforms."""
        return FftNamespace(self)

    @property
    def linalg(self) -> LinalgNamespace:
        """Linear algebra."""
        return LinalgNamespace(self)

    @property
    def function_names(self) -> frozenset[str]:
        """The names of the functions."""
        return _NAMES


def _functions() -> Iterable[str]:
    for kind in Namespace.__mro__[: Namespace.__mro__.index(NamespaceBase)]:
        yield from (
            name
            for name, value in vars(kind).items()
            if callable(value) and not isinstance(value, type) and not name.startswith("_")
        )
    for name in FUNCTIONS:
        if hasattr(Namespace, name):
            yield name


for _name, _numpy in _STANDARD.items():
    setattr(Namespace, _name, getattr(Namespace, _numpy))
_NAMES = frozenset([*_functions(), "fft", "linalg"])
