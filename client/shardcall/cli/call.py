"""``shardcall call``: runs a kernel on arrays in files and pipes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from shardcall._src.calls.result import Result
from shardcall.cli import call_arguments
from shardcall.cli.array_files import STREAM, ArraySource, save
from shardcall.cli.arrays import KeepFor, show_kept
from shardcall.cli.call_arguments import CallArguments, Kernel, MeshText, OutSpecTexts, SpecTexts, Strategy
from shardcall.cli.connecting import Command, Connection, connecting
from shardcall.cli.exits import usage_error
from shardcall.cli.output import console, plain, print_json
from shardcall_core.types import arrays
from shardcall_core.types.arrays import NDArray
from shardcall_core.types.sizes import human

_MAX_VALUES = 1000

Operands = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="OPERAND|NAME=VALUE",
        help="npy and npz files, FILE.npz[NAME] for one array, - for standard input, numbers; parameters by name, such "
        "as axis=0.",
    ),
]


def _call(
    connection: Connection,
    kernel: Kernel,
    operands: Operands = None,
    mesh: MeshText = None,
    spec: SpecTexts = None,
    out_spec: OutSpecTexts = None,
    strategy: Strategy = call_arguments.AUTO,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Write the result here, npz if there are several; - is standard output, which is also used if it is "
            "no terminal.",
        ),
    ] = None,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Leave the results on the mesh and print their handles, as put does."),
    ] = False,
    keep_for: KeepFor = 3600.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON about the call, with up to 1,000 values of each result.")
    ] = False,
) -> None:
    """Run a kernel on arrays.

    shardcall call diff x.npy axis=0 --mesh x=8 --spec x,- -o d.npy

    shardcall call sum - < x.npy | shardcall call sqrt - > root.npy

    shardcall call sqrt @$(shardcall call square x.npy --keep)
    """
    request = CallArguments.parse(kernel, operands or [], mesh, spec, out_spec, strategy, ArraySource())
    if keep and out is not None:
        raise usage_error("--keep leaves the results on the mesh, and --out copies them to a file; leave one out")
    with connection.open() as client:
        request = request.resolved(client)
        if keep:
            kept = client.call(kernel, *request.operands, **request.options, **request.keywords, keep=True).arrays
            client._remote_arrays.outlive(kept, keep_for, client._deadline(connection.timeout))
            show_kept(kept, as_json=as_json)
            return
        result = client.call(kernel, *request.operands, **request.options, **request.keywords)
    values = [np.asarray(array) for array in result.arrays]
    to_stream = str(out) == STREAM or (out is None and not as_json and not sys.stdout.isatty())
    if to_stream or out is not None:
        save(values, out)
    if to_stream:
        return
    if as_json:
        print_json(_entry(result, values, out))
        return
    shown = console()
    for value in values if out is None else ():
        shown.print(np.array_repr(value), markup=False, soft_wrap=True)
    types = ", ".join(f"{arrays.type_of(value)} ({human(value.nbytes)})" for value in values)
    written = "" if out is None else f" to {out}"
    shown.print(f"{types}{written}, by {result.plan.strategy!r} in {result.timing.round_trip:.3g} s", markup=False)


def _entry(result: Result[Any], values: list[NDArray], out: Path | None) -> dict[str, Any]:
    return {
        "results": [
            {"type": arrays.type_of(value), "values": value if value.size <= _MAX_VALUES else None} for value in values
        ],
        "file": out,
        "seconds": result.timing.round_trip,
        "timing": plain(result.timing),
        "strategy": result.plan.strategy,
        "cache_hit": result.plan.cache_hit,
    }


call: Command = connecting(_call)
