"""``shardcall doctor``: what is wrong with a client, its server and the way between them, and how to fix it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import typer
from rich.text import Text

from shardcall.cli import client_checks, server_checks
from shardcall.cli.checks import Check, failed, guarded, skipped
from shardcall.cli.connecting import Command, Connection, connecting
from shardcall.cli.exits import FAILED
from shardcall.cli.output import AsJson, console, print_json
from shardcall.cli.server_parts import server_part
from shardcall.cli.snapshots import Snapshots
from shardcall_core.types.errors import AccessDeniedError
from shardcall_core.types.usage import Usage

_MARKS = {
    "ok": ("ok", "green"),
    "warning": ("warning", "yellow"),
    "failed": ("FAILED", "bold red"),
    "skipped": ("-", "dim"),
}


def _doctor(connection: Connection, as_json: AsJson = False) -> None:
    """Check client and server: what is wrong, and how to fix it.

    Exit status 1 if a check has failed; warnings do not change it.
    """
    checks = list(_checks(connection))
    if as_json:
        print_json({"address": connection.address, "healthy": _is_healthy(checks), "checks": checks})
    else:
        _show(checks)
    raise typer.Exit(0 if _is_healthy(checks) else FAILED)


def _is_healthy(checks: list[Check]) -> bool:
    return not any(check.state == "failed" for check in checks)


def _checks(connection: Connection) -> Iterator[Check]:
    where, encryption = connection.where, connection.encryption  # wrong arguments end the command
    yield from guarded("client", client_checks.packages)
    yield from guarded("environment", partial(client_checks.variables, where))
    reached = guarded("port", partial(client_checks.port, where, connection.timeout))
    yield from reached
    if where.is_local:
        with suppress(ImportError):
            yield from guarded("cache", server_part("cache_check"))
    if not _is_healthy(reached):
        yield skipped("server", "not reached")
        return
    trusted = guarded("certificates", partial(client_checks.certificates, where, encryption))
    yield from trusted
    if not _is_healthy(trusted):
        yield skipped("server", "no TLS connection")
        return
    yield from guarded("token", partial(client_checks.token, connection))
    yield from guarded("server", partial(_server, connection))


def _server(connection: Connection) -> Iterator[Check]:
    try:
        opened = connection.open()
    except AccessDeniedError as error:
        if error.reason != "TOKEN_REQUIRED":
            raise
        yield failed("access", error.message.partition("; ")[0], client_checks.ACCESS_FIX)
        return
    with opened as client:
        info = client.server_info(timeout=connection.timeout)
        yield from server_checks.versions(info)
        yield from server_checks.devices(info)
        yield from server_checks.known_answers(info)
        yield from server_checks.limits(info)
        yield from server_checks.shared_memory(client, info, connection.where)
        yield from guarded("results", partial(server_checks.results, client, info))
        yield from guarded("latency", partial(server_checks.latency, client))
    yield from server_checks.usage(_usage(connection))


def _usage(connection: Connection) -> Usage | AccessDeniedError:
    with Snapshots(connection) as snapshots:
        try:
            return snapshots.take().usage
        except AccessDeniedError as error:
            return error


def _show(checks: list[Check]) -> None:
    shown, width = console(), max(len(check.name) for check in checks)
    for check in checks:
        mark, style = _MARKS[check.state]
        line = Text(f"{mark:>7}", style=style).append(
            f"  {check.name:<{width}}  {check.detail}", style="not bold default"
        )
        shown.print(line, soft_wrap=True)
        if check.fix:
            shown.print(Text(f"{'':>7}  {'':<{width}}  fix: {check.fix}"), soft_wrap=True)
    counts = {state: sum(check.state == state for check in checks) for state in ("failed", "warning", "ok")}
    shown.print(f"{counts['failed']} failed, {counts['warning']} with a warning, {counts['ok']} ok")


doctor: Command = partial(connecting, argument=True)(_doctor)
