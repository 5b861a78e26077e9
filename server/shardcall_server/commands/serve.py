"""``shardcall serve``: starts a server."""

from __future__ import annotations

import inspect
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from shardcall_core.wire.variables import shadowed
from shardcall_server.frontend.workers.process import WorkerProcess
from shardcall_server.launcher import ensure_environment
from shardcall_server.process_limits import thread_advice
from shardcall_server.setting_groups import GROUPS
from shardcall_server.settings import ENVIRONMENT_ONLY, ENVIRONMENT_PREFIX, Settings, SettingsError
from shardcall_server.settings_sources import load_settings

_METAVARS: dict[Any, str] = {int: "N", float: "SECONDS"}


def serve(config: Path | None = None, exit_with_stdin: bool = False, **flags: Any) -> None:
    """Start a server and its device mesh.

    Every option is also a variable of the environment and a key of the file. Flags win over the environment, and the
    environment over the file; shardcall config show prints what results.
    """
    try:
        for sentence in shadowed(os.environ):
            typer.echo(f"shardcall warning: {sentence}", err=True)
        settings = load_settings({k: v for k, v in flags.items() if v is not None}, config)
        if settings.tune_allocator:
            ensure_environment()
        worker = _first_worker(settings)  # it imports JAX while this process imports the front end
        from shardcall_server.frontend.serving import serve as run_server

        status = run_server(settings, worker, stop_with_stdin=exit_with_stdin)
    except SettingsError as error:
        typer.echo(f"shardcall: {error}", err=True)
        raise typer.Exit(2) from None
    except (RuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and "start new thread" not in str(error):
            raise
        reason = str(error) or "no memory"
        typer.echo(f"shardcall: the server could not be started ({reason}); {thread_advice()}", err=True)
        raise typer.Exit(2) from None
    raise typer.Exit(status)


def _first_worker(settings: Settings) -> WorkerProcess | None:
    """Starts the first worker; None if workers are on other hosts, or if that fails, which the front end repeats."""
    if settings.hosts or sys.platform != "linux":
        return None
    try:
        return WorkerProcess(settings.device_platform, settings.log_level)
    except OSError:
        return None


def _signature() -> inspect.Signature:
    """Returns a signature with one option per setting. Pydantic checks the values."""
    options: dict[str, Any] = {
        "config": Annotated[
            Path | None,
            typer.Option(metavar="FILE", envvar="SHARDCALL_CONFIG", help="A TOML file with settings."),
        ],
        "exit_with_stdin": Annotated[bool, typer.Option("--exit-with-stdin", help="End when standard input ends.")],
    }
    for group in GROUPS:
        title = (group.__doc__ or "").partition("\n")[0].rstrip(".")
        for name, field in group.model_fields.items():
            if name in ENVIRONMENT_ONLY:
                continue
            option_type = bool if field.annotation is bool else str
            value = field.get_default(call_default_factory=True, validated_data={})
            default = "of this machine" if field.default_factory else _shown(value)
            metavar = None if option_type is bool else _METAVARS.get(field.annotation, "TEXT")
            about = f"{field.description} [env var: {ENVIRONMENT_PREFIX}{name.upper()}; default: {default}]"
            options[name] = Annotated[
                option_type | None, typer.Option(metavar=metavar, help=about, rich_help_panel=title)
            ]
    return inspect.Signature(
        [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=False if name == "exit_with_stdin" else None,
                annotation=annotation,
            )
            for name, annotation in options.items()
        ]
    )


def _shown(value: Any) -> str:
    return (
        {"": "empty", True: "on", False: "off"}.get(value, str(value)) if isinstance(value, str | bool) else str(value)
    )


serve.__signature__ = _signature()  # type: ignore[attr-defined]
serve.__annotations__ = {p.name: p.annotation for p in _signature().parameters.values()}
