"""``shardcall plan``: a dry run of a call."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from shardcall._src.device_arrays.plan import Plan
from shardcall.cli import call_arguments
from shardcall.cli.array_files import TypeSource
from shardcall.cli.call_arguments import CallArguments, Kernel, MeshText, OutSpecTexts, SpecTexts, Strategy
from shardcall.cli.connecting import Command, Connection, connecting
from shardcall.cli.output import AsJson, console, plain, print_json

OperandTypes = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="OPERAND|NAME=VALUE",
        help="Types such as 'float64[4096,4096]', numbers, and npy or npz files, whose types are used; parameters by "
        "name, such as axis=0.",
    ),
]


def _plan(
    connection: Connection,
    kernel: Kernel,
    operands: OperandTypes = None,
    mesh: MeshText = None,
    spec: SpecTexts = None,
    out_spec: OutSpecTexts = None,
    strategy: Strategy = call_arguments.AUTO,
    picture: Annotated[bool, typer.Option(help="Draw which device holds which block.")] = True,
    as_json: AsJson = False,
) -> None:
    """Plan a call without running it.

    It prints the strategy, the collectives and their bytes, the memory, and which device holds which block.

    shardcall plan diff 'float64[4096,4096]' axis=0 --mesh x=8 --spec x,-
    """
    request = CallArguments.parse(kernel, operands or [], mesh, spec, out_spec, strategy, TypeSource())
    with connection.open() as client:
        request = request.resolved(client)
        plan = client.plan(kernel, *request.operands, **request.options, **request.keywords)
    if as_json:
        print_json(_entry(plan))
        return
    shown = console()
    shown.print(str(plan), markup=False, soft_wrap=True)
    for drawing in _drawings(plan) if picture else ():
        shown.print()
        shown.print(drawing, markup=False, soft_wrap=True)


def _entry(plan: Plan) -> dict[str, Any]:
    entry: dict[str, Any] = plain(plan)
    pictures = {
        f"{title} {i}": str(plan.visualize(f"{title} {i}"))
        for title, placements in (("operand", plan.operands), ("result", plan.results))
        for i, placement in enumerate(placements)
        if placement is not None and placement.type.ndim
    }
    return {**entry, "pictures": pictures}


def _drawings(plan: Plan) -> list[str]:
    """Returns the drawings of the operands and results, without those that look like an earlier one."""
    drawings: dict[str, str] = {}
    for name, text in _entry(plan)["pictures"].items():
        drawings.setdefault(text.partition(":")[2] or name, text)
    return list(drawings.values())


plan: Command = connecting(_plan)
