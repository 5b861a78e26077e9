"""``shardcall status``: the state of a server, its calls, memory and restarts."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, NoReturn

import typer
from rich.live import Live
from rich.table import Table
from rich.text import Text

from shardcall.cli.connecting import Command, Connection, connecting
from shardcall.cli.output import console
from shardcall.cli.snapshots import Snapshot, Snapshots
from shardcall_core.access.option_names import as_options
from shardcall_core.types.errors import AccessDeniedError, ShardcallError
from shardcall_core.types.sizes import human
from shardcall_core.types.usage import Usage

_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def _status(
    connection: Connection,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one line for each query.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Query repeatedly, until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(metavar="SECONDS", help="Time between queries.", min=0.1)] = 2.0,
) -> None:
    """Show the state of a server.

    A token without the scope admin shows what its principal has and does.
    """
    show = _show_json if as_json else console().print
    with Snapshots(connection) as snapshots:
        if watch:
            _watch(snapshots.take, connection.address, interval, as_json=as_json)
        show(_report(connection.address, snapshots.take(), as_json=as_json))


def _watch(take_snapshot: Callable[[], Snapshot], address: str, interval_s: float, *, as_json: bool) -> NoReturn:
    """Queries until Ctrl-C; a server that does not answer may come back."""

    def report() -> Any:
        try:
            return _report(address, take_snapshot(), as_json=as_json)
        except AccessDeniedError:
            raise
        except ShardcallError as error:
            return {"error": as_options(str(error))} if as_json else Text(f"{address}: {as_options(str(error))}")

    if as_json:
        while True:
            _show_json(report())
            time.sleep(interval_s)
    shown = console()
    while not shown.is_terminal:  # a pipe or a file gets every report below the last
        shown.print(report())
        time.sleep(interval_s)
    with Live(report(), console=shown, auto_refresh=False) as live:
        while True:
            time.sleep(interval_s)
            live.update(report(), refresh=True)


def _report(address: str, snapshot: Snapshot, *, as_json: bool) -> Any:
    if not as_json:
        return _table(address, snapshot)
    info = snapshot.info
    report = {"address": address, "usage": snapshot.usage.as_dict()}
    if info is not None:
        report["server"] = {
            "devices": len(info.devices),
            "platform": info.platform,
            "epoch": f"{info.epoch:016x}",
            "limits": dataclasses.asdict(info.limits),
            "versions": dataclasses.asdict(info.versions),
        }
    return report


def _show_json(report: Mapping[str, Any]) -> None:
    typer.echo(json.dumps(report))


def _table(address: str, snapshot: Snapshot) -> Table:
    table = Table(title=address, title_justify="left", show_header=False)
    held = {} if snapshot.usage.is_partial else held_rows(snapshot)
    for label, text in {**_mesh_rows(snapshot), **held, **principal_rows(snapshot.usage)}.items():
        table.add_row(label, text)
    return table


def _mesh_rows(snapshot: Snapshot) -> dict[str, str]:
    mesh, info = snapshot.usage.mesh, snapshot.info
    rows = {"mesh": f"ready, for {_for_people(mesh.ready_seconds)}" if mesh.ready else "NOT READY"}
    if info is not None:
        rows |= {"devices": info.summary["devices"], "versions": info.summary["versions"]}
        rows["epoch"] = f"{info.epoch:016x}, {_for_people(mesh.ready_seconds)} old"
    if not snapshot.usage.is_partial:
        rows["restarts"] = str(mesh.restarts)
    if mesh.restarts:
        rows["last end"] = f"{_for_people(mesh.seconds_since_exit)} ago: {mesh.last_exit_reason}"
    if mesh.hosts:
        rows["hosts"] = ", ".join(map(str, mesh.hosts))
    if mesh.missing:
        rows["missing"] = mesh.missing
    rows["known answers"] = str(snapshot.usage.known_answers)
    if not snapshot.usage.is_partial:
        rows["spare worker"] = "stands by" if mesh.spare_ready else "none ready"
    return rows


def held_rows(snapshot: Snapshot) -> dict[str, str]:
    """Returns the rows about the resources that the server holds, as texts by label."""
    held, limits = snapshot.usage, snapshot.info.limits if snapshot.info else None
    at_once = f" of {limits.max_concurrent_calls}" if limits else ""
    programs = f" of {limits.max_cached_programs}" if limits else ""
    return {
        "calls": f"{held.calls}{at_once} at work, {held.queued_calls} of them queued",
        **({"loops": "\n".join(map(str, held.loops))} if held.loops else {}),
        "programs": f"{held.programs}{programs}, {human(held.program_device_bytes)} on the devices",
        "memory": f"{human(held.bytes_in_use)} in use, {human(held.bytes_high_water)} at the highest, "
        f"{human(held.bytes_idle)} kept warm, {held.regions} regions",
        "segments": str(held.segments),
        "arrays": f"{held.arrays - held.named_arrays} under {held.leases} leases, {held.named_arrays} with names, "
        f"{human(held.array_bytes)} on the devices",
        "open files": str(held.descriptors),
    }


def principal_rows(usage: Usage) -> dict[str, str]:
    """Returns the row about what principals have and do, if they have names."""
    lines = [f"{name}: {item}" for name, item in usage.by_principal.items() if name]
    return {"principals": "\n".join(lines)} if lines else {}


def _for_people(seconds: float) -> str:
    """Returns a duration in its two largest units, such as "3 h 12 min"."""
    parts: list[str] = []
    left = int(seconds)
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


status: Command = partial(connecting, argument=True)(_status)
