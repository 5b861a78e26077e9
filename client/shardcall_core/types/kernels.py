"""Descriptions of a server's kernels."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardcall.v1 import kernel_pb2
from shardcall_core.functions.function import Function
from shardcall_core.functions.signature import REQUIRED, OperandInfo, ParameterInfo
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.markup import page
from shardcall_core.types import parameters
from shardcall_core.types.parameters import Parameter


@dataclass(frozen=True)
class OperandDescription:
    """An operand that a kernel takes; operands go by position."""

    name: str
    documentation: str
    optional: bool
    repeated: bool = False  # a call may pass any number of arrays for it


@dataclass(frozen=True)
class ParameterDescription:
    """A static parameter of a kernel; ``default`` is meaningless where it is required."""

    name: str
    documentation: str
    default: Parameter
    required: bool


@dataclass(frozen=True)
class StrategyDescription:
    """A strategy of a kernel."""

    name: str
    documentation: str


REPRODUCIBILITY = {
    kernel_pb2.REPRODUCIBILITY_ALWAYS: "always",
    kernel_pb2.REPRODUCIBILITY_INTEGERS: "integers",
    kernel_pb2.REPRODUCIBILITY_PER_CALL: "per call",
    kernel_pb2.REPRODUCIBILITY_NOT_PROMISED: "not promised",
}
"""The values of `KernelDescription.reproducibility`; empty where the server does not report it."""

_REPRODUCIBLE = {
    "always": "the same bits on every mesh",
    "integers": "the same bits on every mesh of integers and bool; others may differ in the last bits",
    "per call": "the same bits on every mesh for some calls; see Plan.reproducible",
    "not promised": "may differ from mesh to mesh in the last bits",
}


@dataclass(frozen=True, repr=False)
class KernelDescription:
    """The description of a kernel; ``print`` shows it as a page.

    Attributes:
        name: as `Client.call` takes it.
        version: grows when the kernel's results or program change.
        summary: one sentence.
        operands: its arrays, which are passed by position.
        parameters: its static parameters, which are passed by name.
        strategies: the strategies that a call may name, besides ``"auto"``.
        reproducibility: the calls whose results are the same bits on every mesh: ``"always"``, ``"integers"``
            (operands and results of integers or bool), ``"per call"`` (see `Plan.reproducible`) or ``"not
            promised"``; empty where the server does not report it.
    """

    name: str
    version: int
    summary: str
    operands: tuple[OperandDescription, ...]
    parameters: tuple[ParameterDescription, ...]
    strategies: tuple[StrategyDescription, ...]
    reproducibility: str = ""

    @property
    def signature(self) -> str:
        """The kernel as a function: ``diff(x, prepend?, append?, *, n=1, axis=-1)``."""
        return str(self.function)

    @property
    def function(self) -> Function:
        """The entry in the table of functions; of a kernel of another package, without the rules for its results."""
        if self.name in FUNCTIONS:
            return FUNCTIONS[self.name]
        operands = tuple(OperandInfo(o.name, o.documentation, o.optional, o.repeated) for o in self.operands)
        parameters = (
            ParameterInfo(p.name, p.documentation, REQUIRED if p.required else p.default) for p in self.parameters
        )
        return Function(self.name, operands, tuple(parameters))

    def __repr__(self) -> str:
        return f"<KernelDescription {self.signature}; print() shows the page>"

    def _repr_html_(self) -> str:
        """Returns the page for a notebook."""
        parts = [page.text("div", self.summary)]
        for title, items in self._tables().items():
            if items:
                parts.append(page.listing([title, ""], ((item.name, item.documentation) for item in items)))
        if self.reproducibility:
            parts.append(page.facts({"results": _REPRODUCIBLE[self.reproducibility]}))
        return page.page(self.signature, *map(page.spaced, parts))

    def _tables(self) -> Mapping[str, Sequence[OperandDescription | ParameterDescription | StrategyDescription]]:
        return {"operands": self.operands, "parameters": self.parameters, "strategies": self.strategies}

    def __str__(self) -> str:
        lines = [self.signature, f"  {self.summary}"]
        for title, items in self._tables().items():
            if items:
                width = max(len(item.name) for item in items)
                lines += ["", f"  {title}"]
                lines += [f"    {item.name:<{width}}  {item.documentation}" for item in items]
        if self.reproducibility:
            lines += ["", f"  results: {_REPRODUCIBLE[self.reproducibility]}"]
        return "\n".join(lines)


class KernelTable(tuple[KernelDescription, ...]):
    """The kernels of a server, sorted by name; ``print`` shows them, ``"diff" in table`` is True for a name."""

    __slots__ = ()

    def __contains__(self, item: object) -> bool:
        return super().__contains__(item) or any(kernel.name == item for kernel in self)

    def __str__(self) -> str:
        lines: list[str] = []
        for kernel in self:
            lines += textwrap.wrap(kernel.signature, 80, subsequent_indent=" " * 8)
            names = ", ".join(strategy.name for strategy in kernel.strategies)
            text = f"{kernel.summary} [{names}]" if names else kernel.summary
            lines += textwrap.wrap(text, 80, initial_indent=" " * 4, subsequent_indent=" " * 4)
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Returns the table for a notebook."""
        rows = ((k.signature, k.summary, ", ".join(strategy.name for strategy in k.strategies)) for k in self)
        table = page.listing(["kernel", "summary", "strategies"], rows)
        return page.page(f"{len(self)} kernels", page.scrolled(table))


def from_proto(message: kernel_pb2.KernelDescription) -> KernelDescription:
    """Returns the description that a message holds."""
    return KernelDescription(
        name=message.name,
        version=message.version,
        summary=message.summary,
        operands=tuple(
            OperandDescription(item.name, item.documentation, item.optional, item.repeated) for item in message.operands
        ),
        parameters=tuple(
            ParameterDescription(
                item.name, item.documentation, parameters.from_proto(item.default_value), item.required
            )
            for item in message.parameters
        ),
        strategies=tuple(StrategyDescription(item.name, item.documentation) for item in message.strategies),
        reproducibility=REPRODUCIBILITY.get(message.reproducibility, ""),
    )
