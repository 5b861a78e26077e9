"""The signature of a function, and NumPy's rules for its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from shardcall_core.functions.argument_rules import ARGUMENT_RULES
from shardcall_core.functions.element_types import DType
from shardcall_core.functions.shape_rules import Parameters, Shape, ShapeRule
from shardcall_core.functions.type_rules import DTypes, TypeRule

REQUIRED = object()
"""The default of a parameter that a call must set."""


class Operand(NamedTuple):
    """An operand of a function.

    Attributes:
        name: the name in signatures and messages.
        spec: the keyword of its spec; None where the server chooses it.
        optional: whether a call may leave it out.
        repeated: whether a call may have any number of it; true of the last one only.
    """

    name: str
    spec: str | None = None
    optional: bool = False
    repeated: bool = False


class Function(NamedTuple):
    """The signature of a function, and the rules for its results.

    Attributes:
        name: as `Client.call` takes it; where NumPy has the function, NumPy's name.
        operands: in the order of the call.
        parameters: the default of each static parameter; `REQUIRED` for those without one.
        types: the element type of the results; None for a kernel of another package.
        shapes: the shapes of the results; None likewise.
        result_spec: the sharding of the result by default, as the end of a sentence; empty where it is not documented.
        out_specs: the keyword of each result's spec.
        operand_spec: the sharding of each operand by default, likewise.
        result_types: the element type of each result, where they differ; ``types`` has that of the first one then.
    """

    name: str
    operands: tuple[Operand, ...]
    parameters: Mapping[str, Any]
    types: TypeRule | None = None
    shapes: ShapeRule | None = None
    result_spec: str = ""
    out_specs: tuple[str, ...] = ("out_spec",)
    operand_spec: str = "its own on the mesh, else its first axis, over all mesh axes"
    result_types: Callable[[DTypes, Parameters], tuple[DType, ...]] | None = None

    @property
    def named_operands(self) -> tuple[str, ...]:
        """The names of the operands that a call has at most once."""
        return tuple(operand.name for operand in self.operands if not operand.repeated)

    @property
    def in_specs(self) -> tuple[str | None, ...]:
        """The keyword of the spec of each of `named_operands`."""
        return tuple(operand.spec for operand in self.operands if not operand.repeated)

    @property
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

    def results(
        self, operands: Sequence[tuple[Shape, DType] | None], parameters: Mapping[str, Any]
    ) -> list[tuple[Shape, DType]]:
        """Returns the shape and the element type of each result of a call.

        Args:
            operands: the shape and the element type of each operand; None for one left out.
            parameters: the parameters that the call sets.

        Raises:
            Exception: of any class, if the server refuses the call.
        """
        if self.types is None or self.shapes is None:
            raise NotImplementedError(f"{self.name} has no rules")
        once = self.named_operands
        present = [*operands, *[None] * (len(once) - len(operands))]
        if len(present) > len(once) and len(once) == len(self.operands):
            raise TypeError(f"{self.name} takes {len(once)} operands")
        for i, operand in enumerate(present):
            if operand is None and (i >= len(once) or not self.operands[i].optional):
                raise TypeError(f"{self.name} needs {self.operand_name(i)}")
        values = {**self.parameters, **parameters}
        if len(values) > len(self.parameters) or REQUIRED in values.values():
            raise TypeError(f"{self.name} takes the parameters {', '.join(self.parameters)}")
        if (rule := ARGUMENT_RULES.get(self.name)) is not None and not rule(present, values):
            raise ValueError(f"{self.name} does not accept these arguments")
        dtype = self.types([None if operand is None else operand[1] for operand in present], values)
        shapes = self.shapes([None if operand is None else operand[0] for operand in present], values)
        if self.result_types is None:
            return [(shape, dtype) for shape in shapes]
        types = self.result_types([None if operand is None else operand[1] for operand in present], values)
        return [*zip(shapes, types, strict=True)]

    def __str__(self) -> str:
        operands = [f"{'*' * o.repeated}{o.name}{'?' * o.optional}" for o in self.operands]
        named = [name if default is REQUIRED else f"{name}={default!r}" for name, default in self.parameters.items()]
        mark = ["*"] if named and not any(operand.repeated for operand in self.operands) else []
        return f"{self.name}({', '.join([*operands, *mark, *named])})"
