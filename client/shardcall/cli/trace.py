"""``shardcall trace``: records what the devices do."""

from __future__ import annotations

import contextlib
import subprocess
import time
from pathlib import Path
from typing import Annotated

import typer

from shardcall.cli.connecting import Command, Connection, connecting
from shardcall.cli.exits import usage_error
from shardcall.cli.output import AsJson, console, print_json
from shardcall_core.types.sizes import human

_STDERR = 2
_STOP_S = 60.0
_TRUNCATED = "The server ended the recording early, at its maximum number of events; record fewer calls or iterations."
_HOW = """\
Open it in TensorBoard: pip install tensorboard xprof; tensorboard --logdir {folder}
Or drop {trace} on https://ui.perfetto.dev, which reads it in the browser and sends it nowhere."""


def _trace(
    connection: Connection,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where plugins/profile/TIME is written.")],
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND", help="A command to record: until it ends, instead of --seconds."),
    ] = None,
    seconds: Annotated[float, typer.Option(metavar="SECONDS", min=0.0, help="How long to record.")] = 5.0,
    as_json: AsJson = False,
) -> None:
    """Record what the devices do, and fetch it.

    All clients' calls are recorded, which requires a token of scope admin.

    shardcall trace traces -- python program.py
    """
    # A server that this command cannot reach any more discards the recording soon, so that the next can begin.
    max_seconds = 0.0 if command else seconds + _STOP_S
    with connection.open(admin=True) as client, client.profile(folder, max_seconds=max_seconds) as profile:
        status = _wait(command, seconds, _STDERR if as_json else None)
    files = sorted(path for path in (profile.path or folder).rglob("*") if path.is_file())
    trace = next((path for path in files if path.name.endswith(".trace.json.gz")), None)
    if as_json:
        print_json(
            {
                "folder": profile.path,
                "files": files,
                "trace": trace,
                "is_truncated": profile.is_truncated,
                "command_status": status,
            }
        )
    else:
        size = human(sum(path.stat().st_size for path in files))
        shown = console()
        shown.print(f"{profile.path}: {len(files)} files, {size}", markup=False, soft_wrap=True)
        if profile.is_truncated:
            shown.print(_TRUNCATED, markup=False, soft_wrap=True)
        shown.print(_HOW.format(folder=folder, trace=trace or "the trace"), markup=False, soft_wrap=True)
    raise typer.Exit(status or 0)


def _wait(command: list[str] | None, seconds: float, stdout: int | None) -> int | None:
    """Returns the exit status of a command when it has ended; None after some seconds or Ctrl-C."""
    with contextlib.suppress(KeyboardInterrupt):
        if command:
            try:
                return subprocess.run(command, check=False, stdout=stdout).returncode
            except OSError as error:
                raise usage_error(f"the command {command[0]!r} cannot be started: {error.strerror}") from None
        time.sleep(seconds)
    return None


trace: Command = connecting(_trace)
