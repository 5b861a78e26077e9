"""The files below a server's cache folder, as `shardcall cache` shows and removes them."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import json_format

from shardcall.v1 import array_pb2, kernel_pb2
from shardcall_core.types import arrays, mesh, specs
from shardcall_server.compilation.program_store import ENTRY_NAME
from shardcall_server.frontend.programs.call_history import FILE_NAME, MAX_FILE_BYTES
from shardcall_server.setting_groups import default_cache_dir

__all__ = ["CallSummary", "StoredProgram", "counted_calls", "default_cache_dir", "remove_programs", "stored_programs"]


@dataclass(frozen=True)
class StoredProgram:
    """A compiled program on disk: its file, its size, and the Unix time of its last use."""

    name: str
    nbytes: int
    used: float


@dataclass(frozen=True)
class CallSummary:
    """A call of the call history, as text.

    Attributes:
        call: the kernel with the types of its operands, its mesh and its specs.
        devices: the platform and number of devices; empty for any.
        count: the number of times that it came; those before the last start count half.
        used: the Unix time of its last use.
    """

    call: str
    devices: str
    count: float
    used: float


def stored_programs(cache_dir: Path) -> list[StoredProgram]:
    """Returns the programs below a cache folder, the one used last first."""
    programs = []
    with suppress(FileNotFoundError), os.scandir(cache_dir / "programs") as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                if ENTRY_NAME.fullmatch(entry.name):
                    status = entry.stat(follow_symlinks=False)
                    programs.append(StoredProgram(entry.name, status.st_size, status.st_mtime))
    return sorted(programs, key=lambda program: program.used, reverse=True)


def remove_programs(cache_dir: Path, used_before: float | None = None) -> list[StoredProgram]:
    """Removes programs and returns them; files of another form are not touched.

    Args:
        used_before: the Unix time since which they have not been used; None for all.

    Raises:
        OSError: if one cannot be removed.
    """
    removed = [p for p in stored_programs(cache_dir) if used_before is None or p.used < used_before]
    for program in removed:
        (cache_dir / "programs" / program.name).unlink(missing_ok=True)
    return removed


def counted_calls(cache_dir: Path) -> list[CallSummary]:
    """Returns the calls of the call history, the most frequent first; none if there is no history or it is damaged."""
    path = cache_dir / FILE_NAME
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            return []
        entries = json.loads(path.read_text())["calls"]
        calls = [_summary(entry) for entry in entries]
    except (OSError, ValueError, KeyError, TypeError, json_format.ParseError):
        return []
    return sorted(calls, key=lambda call: call.count, reverse=True)


def _summary(entry: dict[str, Any]) -> CallSummary:
    call = json_format.ParseDict(entry["call"], kernel_pb2.KernelCall())
    operand_types = [
        arrays.from_proto(json_format.ParseDict(operand, array_pb2.ArrayType())) for operand in entry["operands"]
    ]
    text = f"{call.kernel}({', '.join(map(str, operand_types))})"
    if call.HasField("mesh"):
        text += f" on {mesh.from_proto(call.mesh).short}"
    sharded = [str(specs.from_proto(spec.spec)) for spec in call.in_specs if spec.HasField("spec")]
    text += f" by {', '.join(sharded)}" if sharded else ""
    return CallSummary(text, str(entry.get("devices", "")), float(entry.get("count", 0)), float(entry.get("used", 0)))
