"""``shardcall kernels``: the kernels of a server, or all about one."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Annotated

import typer

from shardcall.cli.connecting import Command, Connection, connecting
from shardcall.cli.exits import FAILED, CommandError
from shardcall.cli.output import AsJson, console, plain, print_json
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.types.kernels import KernelDescription

_WIDTH = 80


def kernel_names(incomplete: str) -> Iterable[str]:
    """Returns the names of kernels that begin so, for completion: those of this version, without asking a server."""
    return [name for name in FUNCTIONS if name.startswith(incomplete)]


def _kernels(
    connection: Connection,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="A kernel to describe.", autocompletion=kernel_names),
    ] = None,
    search: Annotated[str | None, typer.Option(metavar="TEXT", help="List those whose entries contain this.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the kernels of a server, or describe one.

    A kernel is a function for `shardcall call`, `shardcall plan` and client.call.
    """
    with connection.open() as client:
        if name is not None:
            shown_kernels = [client.kernel(name, timeout=connection.timeout)]
        else:
            listed = client.kernels(timeout=connection.timeout)
            shown_kernels = [kernel for kernel in listed if search is None or _matches(kernel, search)]
    if search is not None and not shown_kernels:
        raise CommandError(f"no kernel's entry contains {search!r}; shardcall kernels lists all of them", FAILED)
    if as_json:
        print_json([_entry(kernel) for kernel in shown_kernels] if name is None else _entry(shown_kernels[0]))
        return
    shown = console()
    for kernel in shown_kernels:
        shown.print(str(kernel) if name is not None else _lines(kernel), markup=False, soft_wrap=True)


def _matches(kernel: KernelDescription, text: str) -> bool:
    return text.casefold() in f"{kernel.signature} {kernel.summary}".casefold()


def _entry(kernel: KernelDescription) -> dict[str, object]:
    return {"name": kernel.name, "signature": kernel.signature, **plain(kernel)}


def _lines(kernel: KernelDescription) -> str:
    signature = textwrap.fill(kernel.signature, _WIDTH, subsequent_indent=" " * 8)
    summary = textwrap.fill(kernel.summary, _WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 4)
    return f"{signature}\n{summary}"


kernels: Command = connecting(_kernels)
