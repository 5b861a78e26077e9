"""A call as the arguments of a command: a kernel, its operands, and its mesh and specs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from shardcall.cli import texts
from shardcall.cli.array_files import OperandParser
from shardcall.cli.exits import usage_error
from shardcall.cli.handles import find_array
from shardcall.cli.kernels import kernel_names
from shardcall.client import Client
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.types.mesh import Mesh

Kernel = Annotated[
    str, typer.Argument(metavar="KERNEL", help="As shardcall kernels lists it.", autocompletion=kernel_names)
]
MeshText = Annotated[
    str | None,
    typer.Option("--mesh", metavar="x=8", help="The devices: sizes by name; without it the server's choice."),
]
SpecTexts = Annotated[
    list[str] | None,
    typer.Option(
        "--spec",
        metavar="x,-",
        help="The sharding of an operand: the mesh axis of each array axis, - for none, (a,b) for two. Repeat it for "
        "the next operand.",
    ),
]
OutSpecTexts = Annotated[
    list[str] | None,
    typer.Option("--out-spec", metavar="x,-", help="The sharding of a result; repeat it for the next."),
]
Strategy = Annotated[str, typer.Option(metavar="NAME", help="A strategy of the kernel; auto lets the server choose.")]
AUTO = "auto"


@dataclass(frozen=True)
class ArrayText:
    """An operand on the mesh: ``@`` and its name, its handle or the first digits of that."""

    text: str


@dataclass(frozen=True)
class CallArguments:
    """A call, as the client takes it.

    Attributes:
        kernel: the name.
        operands: arrays, types, handles, numbers or None, in the kernel's order.
        keywords: its parameters, and operands and specs by name.
        options: mesh, specs and strategy.
    """

    kernel: str
    operands: tuple[Any, ...]
    keywords: Mapping[str, Any]
    options: Mapping[str, Any]

    @classmethod
    def parse(
        cls,
        kernel: str,
        arguments: list[str],
        mesh: str | None,
        specs: list[str] | None,
        out_specs: list[str] | None,
        strategy: str,
        source: OperandParser,
    ) -> CallArguments:
        """Returns the call of a command's arguments.

        Args:
            arguments: operands, and ``name=value`` for parameters, and for operands and specs by name.
            source: reads operands.

        Raises:
            CommandError: if an argument cannot be read.
            ShardcallError: if one is not valid.
        """
        operands: list[Any] = []
        keywords: dict[str, Any] = {}
        for argument in arguments:
            if (pair := texts.keyword(argument)) is None:
                operands += _operands(argument, source)
            elif pair[0] in keywords:
                raise usage_error(f"{pair[0]}= is given twice; give it once")
            else:
                keywords[pair[0]] = _keyword(kernel, *pair, source)
        target_mesh: Mesh | None = None if mesh is None else texts.parse_mesh(mesh)
        options = {
            "mesh": target_mesh,
            "in_specs": [texts.parse_spec(text) for text in specs] if specs else None,
            "out_specs": [texts.parse_spec(text, "--out-spec") for text in out_specs] if out_specs else None,
            "strategy": strategy,
        }
        return cls(kernel, tuple(operands), keywords, options)

    def resolved(self, client: Client) -> CallArguments:
        """Returns the call with the arrays of its names and handles.

        Raises:
            CommandError: if there is no such array.
            ShardcallError: of the class that fits.
        """
        operands = tuple(_resolved(client, operand) for operand in self.operands)
        return replace(self, operands=operands, keywords={k: _resolved(client, v) for k, v in self.keywords.items()})


def _operands(text: str, source: OperandParser, max_count: int | None = None) -> list[Any]:
    return [ArrayText(text)] if text.startswith("@") else source.read(text, max_count)


def _keyword(kernel: str, name: str, text: str, source: OperandParser) -> Any:
    function = FUNCTIONS.get(kernel)
    if function is not None and name in (*function.in_specs, *function.out_specs):
        return texts.parse_spec(text, f"{name}=")
    if function is not None and name in function.named_operands:
        (operand,) = _operands(text, source, max_count=1)
        return operand
    return texts.parse_value(text)


def _resolved(client: Client, operand: Any) -> Any:
    return client.describe(find_array(client, operand.text)) if isinstance(operand, ArrayText) else operand
