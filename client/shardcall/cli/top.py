"""``shardcall top``: what a server does now: rates, callers, kernels, memory and queue."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from shardcall.cli.connecting import Command, Connection, connecting
from shardcall.cli.output import AsJson, console, print_json
from shardcall.cli.snapshots import Snapshot, Snapshots
from shardcall_core.access.option_names import as_options
from shardcall_core.types.errors import AccessDeniedError, ShardcallError
from shardcall_core.types.sizes import human
from shardcall_core.types.usage import CallTotals, PrincipalUsage

_MAX_ROWS = 12
_WIDE = 110
_MAX_CALLERS = 4  # on a terminal, where kernels take the other lines
_STATE_LINES, _TABLE_LINES = 7, 4  # of the table of the state, and of another one without its rows


@dataclass(frozen=True)
class Rates:
    """The calls of a kernel or a principal between two moments.

    Attributes:
        calls: those that ended since the server's start.
        calls_per_s: those that ended in a second.
        failed_per_s: those that failed in a second.
        busy: the share of the time in which its programs ran on the devices.
        bytes_per_s: bytes of arrays in a second.
    """

    calls: int
    calls_per_s: float
    failed_per_s: float
    busy: float
    bytes_per_s: float


def rates(before: Mapping[str, CallTotals], now: Mapping[str, CallTotals], seconds: float) -> dict[str, Rates]:
    """Returns the rates of each name, the one with most calls in a second first.

    Args:
        before: the totals at the earlier moment.
        now: those at the later one; smaller ones are of another server process.
        seconds: the time between.
    """
    by_name = {}
    for name, total in now.items():
        earlier = before.get(name)
        if earlier is None or earlier.calls > total.calls:
            earlier = CallTotals(0, 0, 0.0, 0)
        by_name[name] = Rates(
            calls=total.calls,
            calls_per_s=(total.calls - earlier.calls) / seconds,
            failed_per_s=(total.failed_calls - earlier.failed_calls) / seconds,
            busy=(total.execute_seconds - earlier.execute_seconds) / seconds,
            bytes_per_s=(total.array_bytes - earlier.array_bytes) / seconds,
        )
    return dict(sorted(by_name.items(), key=lambda item: (-item[1].calls_per_s, -item[1].calls, item[0])))


def _top(
    connection: Connection,
    once: Annotated[bool, typer.Option("--once", help="Show one interval and end.")] = False,
    interval: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="Time between updates.")] = 2.0,
    as_json: AsJson = False,
) -> None:
    """Show rates, callers, kernels, memory and queue, live.

    A token without the scope admin shows its principal alone. Ctrl-C ends it. Without a terminal, or with --json, it
    shows one interval.
    """
    shown = console()
    with Snapshots(connection) as snapshots:
        watch = LiveRates(snapshots, connection.address)
        if once or as_json or not shown.is_terminal:
            time.sleep(interval)
            print_json(watch.entry()) if as_json else shown.print(watch.picture(columns=shown.width))
            return
        with Live(Text("measuring …"), console=shown, auto_refresh=False, screen=True) as live:
            while True:
                time.sleep(interval)
                live.update(watch.picture(shown.height, shown.width), refresh=True)


class LiveRates:
    """Compares each snapshot with the one before."""

    def __init__(self, snapshots: Snapshots, address: str) -> None:
        self._snapshots = snapshots
        self._address = address
        self._last = snapshots.take()
        self._at = time.monotonic()

    def entry(self) -> dict[str, Any]:
        """Returns the state and the rates for JSON."""
        now, kernels, principals, seconds = self._next()
        usage = {name: value for name, value in now.usage.as_dict().items() if name not in ("kernels", "principals")}
        return {
            "address": self._address,
            "seconds": seconds,
            "kernels": kernels,
            "principals": principals,
            "usage": usage,
        }

    def picture(self, lines: int | None = None, columns: int = 80) -> Group | Text:
        """Returns the state and the rates for people; an error of the server, which may come back, as text.

        Args:
            lines: the height of the terminal, which the busiest kernels and callers fill; None for any.
            columns: its width; the arrays of callers are shown from 110 on.
        """
        try:
            now, kernels, principals, _ = self._next()
        except AccessDeniedError:
            raise
        except ShardcallError as error:
            return Text(f"{as_options(str(error))}\n\nStill asking; Ctrl-C ends.")
        kernel_rows = caller_rows = _MAX_ROWS
        if lines is not None:
            caller_rows = min(len(principals), _MAX_CALLERS)
            callers_lines = _TABLE_LINES + caller_rows if principals else 0
            kernel_rows = max(lines - _STATE_LINES - callers_lines - _TABLE_LINES, 1)
        usage = now.usage
        parts = [_state(self._address, now)]
        if not usage.is_partial:
            parts.append(_table("kernel", kernels, kernel_rows))
        if principals:
            held = usage.by_principal if columns >= _WIDE else None
            parts.append(_table("caller", principals, caller_rows, held))
        return Group(*parts)

    def _next(self) -> tuple[Snapshot, dict[str, Rates], dict[str, Rates], float]:
        now, at, last = self._snapshots.take(), time.monotonic(), self._last
        seconds = max(at - self._at, 1e-3)
        self._last, self._at = now, at
        kernels = rates(last.usage.kernels, now.usage.kernels, seconds)
        return now, kernels, rates(last.usage.principals, now.usage.principals, seconds), seconds


def _state(address: str, snapshot: Snapshot) -> Table:
    held, info = snapshot.usage, snapshot.info
    at_once = f" of {info.limits.max_concurrent_calls}" if info else ""
    on_devices = f" of {human(info.limits.max_device_bytes)}" if info else ""
    table = Table(title=address, title_justify="left", show_header=False)
    waiting = held.mesh.last_exit_reason or held.mesh.missing or "it starts"
    mesh = info.summary["devices"] if info else f"NOT READY: {waiting}"
    table.add_row("mesh", mesh if held.is_partial else f"{mesh}, {held.mesh.restarts} restarts")
    if held.is_partial:
        return table
    table.add_row("calls", f"{held.calls}{at_once} at work, {held.queued_calls} of them queued")
    table.add_row("devices", f"{human(held.program_device_bytes + held.array_bytes)}{on_devices}, {held.arrays} arrays")
    table.add_row("host", f"{human(held.bytes_in_use)} in use, {human(held.bytes_idle)} kept warm")
    return table


def _table(
    title: str, entries: Mapping[str, Rates], max_rows: int, held: Mapping[str, PrincipalUsage] | None = None
) -> Table:
    """Returns the table of rates by name; of principals with the arrays and calls that they have."""
    table = Table()
    table.add_column(title)
    columns = ["calls/s", "failed/s", "device time", "bytes/s", "calls so far"]
    for name in columns if held is None else [*columns, "at work", "arrays", "on devices"]:
        table.add_column(name, justify="right", no_wrap=True)
    for name, item in list(entries.items())[:max_rows]:
        has = None if held is None else held.get(name, PrincipalUsage())
        table.add_row(
            Text(name, no_wrap=True, overflow="ellipsis"),
            f"{item.calls_per_s:,.1f}",
            f"{item.failed_per_s:,.1f}",
            f"{item.busy:.0%}",
            human(item.bytes_per_s),
            f"{item.calls:,}",
            *([] if has is None else [f"{has.calls:,}", f"{has.arrays:,}", human(has.array_bytes)]),
        )
    return table


top: Command = partial(connecting, argument=True)(_top)
