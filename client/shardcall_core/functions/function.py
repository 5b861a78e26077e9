"""A function: its signature, the checks of its arguments, and NumPy's rules for its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from shardcall_core.element_types import DType
from shardcall_core.functions.argument_checks import check_operands, check_parameters
from shardcall_core.functions.shape_rules import Parameters, ShapeRule
from shardcall_core.functions.signature import REQUIRED, Method, OperandInfo, ParameterInfo, ParameterValues, Signature
from shardcall_core.functions.type_rules import DTypes, TypeRule
from shardcall_core.layouts.layout import ArrayType, OperandTypes

Check: TypeAlias = Callable[[OperandTypes, ParameterValues], Signature]
"""Checks a call, and returns its parameters in their normal form and the types of its results.

It gets an item for each operand, None for an optional one left out, and all parameters, defaults filled in. It raises
`CallError` for what the function does not accept.
"""


ResultTypes: TypeAlias = Callable[[DTypes, Parameters], tuple[DType, ...]]
"""Returns the element type of each result of a call."""


@dataclass(frozen=True)
class Function:
    """A function.

    Attributes:
        name: as `Client.call` takes it; where NumPy has the function, NumPy's name.
        operands: in the order of the call.
        parameters: the static parameters.
        check: the checks and the rules for the results; None for a kernel of another package.
        result_spec: the sharding of the result by default, as the end of a sentence; empty where it is not documented.
        out_specs: the keyword of each result's spec.
        operand_spec: the sharding of each operand by default, likewise.
        summary: one sentence for listings.
        method: the method of clients; None for functions that only `Client.call`, arrays and `client.xp` call.
        example: arguments of the method, or else of `Client.call`, as Python text in which ``np`` is NumPy.
    """

    name: str
    operands: tuple[OperandInfo, ...]
    parameters: tuple[ParameterInfo, ...] = ()
    check: Check | None = None
    result_spec: str = ""
    out_specs: tuple[str, ...] = ("out_spec",)
    operand_spec: str = "its own on the mesh, else its first axis, over all mesh axes"
    summary: str = ""
    method: Method | None = None
    example: str = ""

    @cached_property
    def defaults(self) -> Mapping[str, Any]:
        """The default of each parameter; `REQUIRED` for those without one."""
        return {parameter.name: parameter.default for parameter in self.parameters}

    @cached_property
    def named_operands(self) -> tuple[str, ...]:
        """The names of the operands that a call has at most once."""
        return tuple(operand.name for operand in self.operands if not operand.repeated)

    @cached_property
    def in_specs(self) -> tuple[str | None, ...]:
        """The keyword of the spec of each of `named_operands`."""
        return tuple(operand.spec for operand in self.operands if not operand.repeated)

    @cached_property
    def spec_keywords(self) -> tuple[str, ...]:
        """The keywords of the specs of operands and results."""
        return tuple(name for name in (*self.in_specs, *self.out_specs) if name)

    def operand_name(self, index: int) -> str:
        """Returns the name of a call's operand: ``lhs``, ``spacing[0]``, or ``operand 3`` of more than there are."""
        names = self.named_operands
        if index < len(names):
            return names[index]
        repeated = self.operands[-1].name if len(self.operands) > len(names) else ""
        return f"{repeated}[{index - len(names)}]" if repeated else f"operand {index}"

    def results(self, operands: OperandTypes, parameters: ParameterValues) -> tuple[ArrayType, ...]:
        """Returns the types of the results of a call.

        Args:
            operands: the type of each operand; None for one left out.
            parameters: the parameters that the call sets.

        Raises:
            CallError: for a call that the function does not accept.
        """
        if self.check is None:
            raise NotImplementedError(f"{self.name} is a kernel of another package")
        present = check_operands(self, operands)
        return self.check(present, check_parameters(self, parameters)).results

    def __str__(self) -> str:
        operands = [f"{'*' * o.repeated}{o.name}{'?' * o.optional}" for o in self.operands]
        named = [p.name if p.default is REQUIRED else f"{p.name}={p.default!r}" for p in self.parameters]
        mark = ["*"] if named and not any(operand.repeated for operand in self.operands) else []
        return f"{self.name}({', '.join([*operands, *mark, *named])})"

    @staticmethod
    def by_rules(
        name: str,
        operands: tuple[OperandInfo, ...],
        parameters: tuple[ParameterInfo, ...],
        types: TypeRule,
        shapes: ShapeRule,
        result_spec: str = "",
        *,
        result_types: ResultTypes | None = None,
        **others: Any,
    ) -> Function:
        """Returns the function whose check consists of rules.

        Args:
            name: as of `Function`.
            operands: as of `Function`.
            parameters: as of `Function`.
            types: the element type of the results.
            shapes: the shapes of the results.
            result_spec: as of `Function`.
            result_types: the element type of each result, where they differ; ``types`` has that of the first then.
            others: as of `Function`.
        """
        return Function(name, operands, parameters, _by_rules(types, shapes, result_types), result_spec, **others)


def _by_rules(types: TypeRule, shapes: ShapeRule, result_types: ResultTypes | None) -> Check:
    def check(operands: OperandTypes, parameters: ParameterValues) -> Signature:
        dtypes = [None if operand is None else operand.dtype for operand in operands]
        dtype = types(dtypes, parameters)
        result_shapes = shapes([None if operand is None else operand.shape for operand in operands], parameters)
        dtypes_of_results = [dtype] * len(result_shapes) if result_types is None else result_types(dtypes, parameters)
        return Signature(parameters, tuple(map(ArrayType, result_shapes, dtypes_of_results)))

    return check
