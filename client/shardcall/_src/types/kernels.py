"""What kernels a server has, as it describes them."""

from __future__ import annotations

from dataclasses import dataclass

from shardcall._src.types import parameters
from shardcall._src.types.parameters import Parameter
from shardcall.v1 import kernel_pb2


@dataclass(frozen=True)
class OperandDescription:
    """An operand that a kernel takes; operands go by position."""

    name: str
    documentation: str
    optional: bool
    repeated: bool = False  # whether it may come any number of times


@dataclass(frozen=True)
class ParameterDescription:
    """A static parameter that a kernel takes; ``default`` is of no account where it is required."""

    name: str
    documentation: str
    default: Parameter
    required: bool


@dataclass(frozen=True)
class StrategyDescription:
    """A way to do a kernel's work."""

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


@dataclass(frozen=True)
class KernelDescription:
    """All there is to know about a kernel before calling it; ``print`` shows it as a page.

    Attributes:
        name: as `Client.call` takes it.
        version: grows when the kernel's results or program change.
        summary: one sentence.
        operands: what it takes, by position.
        parameters: what it takes by name.
        strategies: the ways to do its work, besides ``"auto"``.
        reproducibility: for which calls the results are the same bits on every mesh: ``"always"``, ``"integers"``
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
        operands = [f"{'*' * o.repeated}{o.name}{'?' * o.optional}" for o in self.operands]
        named = [p.name if p.required else f"{p.name}={p.default!r}" for p in self.parameters]
        mark = ["*"] if named and not any(operand.repeated for operand in self.operands) else []
        return f"{self.name}({', '.join([*operands, *mark, *named])})"

    def __str__(self) -> str:
        lines = [self.signature, f"  {self.summary}"]
        for title, items in (
            ("operands", self.operands),
            ("parameters", self.parameters),
            ("strategies", self.strategies),
        ):
            if items:
                width = max(len(item.name) for item in items)
                lines += ["", f"  {title}"]
                lines += [f"    {item.name:<{width}}  {item.documentation}" for item in items]
        if self.reproducibility:
            lines += ["", f"  results: {_REPRODUCIBLE[self.reproducibility]}"]
        return "\n".join(lines)


class KernelTable(tuple[KernelDescription, ...]):
    """The kernels of a server, sorted by name; they show as a table. ``"diff" in table`` asks by name."""

    __slots__ = ()

    def __contains__(self, item: object) -> bool:
        return super().__contains__(item) or any(kernel.name == item for kernel in self)

    def __str__(self) -> str:
        rows = [("kernel", "strategies", "summary")]
        rows += [(k.signature, ", ".join(s.name for s in k.strategies), k.summary) for k in self]
        widths = [max(len(row[column]) for row in rows) for column in range(2)]
        return "\n".join(f"{call:<{widths[0]}}  {how:<{widths[1]}}  {what}" for call, how, what in rows)

    __repr__ = __str__


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
