"""Tables for people and JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from shardcall_core.types.arrays import Array
from shardcall_core.types.mesh import Mesh

_PIPE_COLUMNS = 100_000

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class _Console(Console):
    """A console whose closed pipe ends the command as that of other output does."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(*, stderr: bool = False) -> Console:
    """Returns a console, which has colour on a terminal only, and none if NO_COLOR is set; elsewhere no line breaks."""
    stream = sys.stderr if stderr else sys.stdout
    return _Console(highlight=False, stderr=stderr, width=None if stream.isatty() else _PIPE_COLUMNS)


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Prints a value as JSON; ``indent=None`` on one line."""
    typer.echo(json.dumps(plain(value), indent=indent, ensure_ascii=False))


def plain(value: Any) -> Any:
    """Returns a value in the types of JSON: array types as ``"float64[2,3]"``, meshes as their axes, NaN as null."""
    if isinstance(value, Array | Path):
        return str(value)
    if isinstance(value, Mesh):
        return {"axes": dict(value.axes), "device_ids": value.device_ids and list(value.device_ids)}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, complex):
        return [value.real, value.imag]
    return value if value is None or isinstance(value, str | int | float) else str(value)
