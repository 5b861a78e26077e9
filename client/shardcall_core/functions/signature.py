"""Descriptions of operands and parameters, and the signature that a kernel makes of a call.

Python only: nothing here needs JAX.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from shardcall_core.call_error import Reason
from shardcall_core.graphs.graph import Graph
from shardcall_core.layouts.layout import ArrayType

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # typing's own takes a default from Python 3.13 on

    ParametersT = TypeVar("ParametersT", default=Any)
else:
    from typing import TypeVar

    ParametersT = TypeVar("ParametersT")

REQUIRED = object()
"""The default of a parameter that a call must set."""

ParameterValue = bool | int | float | str | tuple[int, ...] | Graph | None
"""The value of a static parameter: one that changes the compiled program."""

ParameterValues = Mapping[str, ParameterValue]
"""Static parameters by name, as a call sets them."""


@dataclass(frozen=True)
class OperandInfo:
    """An operand as a kernel describes it; operands go by position.

    Attributes:
        name: the name in calls and messages.
        documentation: one sentence: meaning, shape, element types.
        optional: whether calls may leave it out.
        repeated: whether it may occur any number of times, at least once unless it is optional. Only the last operand
            may be repeated, and no occurrence may be left out before another.
        spec: the keyword of its spec in methods; None where the server chooses it.
    """

    name: str
    documentation: str = ""
    optional: bool = False
    repeated: bool = False
    spec: str | None = None


@dataclass(frozen=True)
class ParameterInfo:
    """A static parameter as a kernel describes it.

    Attributes:
        name: the name in calls and messages.
        documentation: one sentence: meaning, range, unit.
        default: the value where a call sets none; `REQUIRED` where it must set one.
        type: the type in signatures of methods, such as ``"Axes | None"``.
    """

    name: str
    documentation: str = ""
    default: object = REQUIRED
    type: str = "Any"


@dataclass(frozen=True)
class Method:
    """The method of a client that calls a function.

    Attributes:
        arguments: the names of operands and parameters in the order of the method, which is NumPy's, as in a Python
            signature: ``"x, axis, *, keepdims"``. A repeated operand without a star is passed as a sequence.
        notes: sentences of the documentation beyond the function's summary.
        errors: a line of the documentation for each error that callers handle by its class.
    """

    arguments: str
    notes: str = ""
    errors: tuple[str, ...] = ()


@dataclass(frozen=True)
class ValueCheck:
    """A refusal that depends on the values of an operand, detected while the program runs.

    Attributes:
        operand: the name of the operand at fault.
        message: the fault, what is allowed and what to do.
        reason: the reason of the refusal, one of `shardcall_core.call_error.OF_VALUES`.
    """

    operand: str
    message: str
    reason: Reason = Reason.INVALID_VALUE


@dataclass(frozen=True)
class Signature(Generic[ParametersT]):
    """The call as *validate* understands it.

    Attributes:
        parameters: a frozen dataclass with a field for every static parameter, or None for a kernel without any.
            Its values are part of the program's key, so they are normalised (``axis=-1`` becomes ``ndim - 1``):
            equal calls have equal parameters.
        results: the results' types, exactly NumPy's.
        checks: the checks of the operands' values that the program makes.
    """

    parameters: ParametersT
    results: tuple[ArrayType, ...]
    checks: tuple[ValueCheck, ...] = ()
