"""The exit statuses of the command, and its errors as one plain line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from shardcall_core.access.option_names import as_options
from shardcall_core.types.errors import (
    AccessDeniedError,
    ArrayLostError,
    InvalidOperandError,
    InvalidParameterError,
    InvalidRequestError,
    KernelNotFoundError,
    ServerUnavailableError,
    ShardcallError,
    ShardingError,
)

FAILED = 1
USAGE = 2
UNREACHABLE = 3
DENIED = 4
INTERRUPTED = 130

_STATUSES: tuple[tuple[tuple[type[ShardcallError], ...], int], ...] = (
    ((AccessDeniedError,), DENIED),
    ((ServerUnavailableError,), UNREACHABLE),
    ((ArrayLostError,), FAILED),
    (
        (InvalidRequestError, InvalidOperandError, InvalidParameterError, ShardingError, KernelNotFoundError),
        USAGE,
    ),
)


class CommandError(Exception):
    """A problem that the command itself finds.

    Args:
        message: what was given, what is allowed and what to do.
        status: the exit status.
    """

    def __init__(self, message: str, status: int = FAILED) -> None:
        super().__init__(message)
        self.status = status


def usage_error(message: str) -> CommandError:
    """Returns the error for wrong arguments."""
    return CommandError(message, USAGE)


def status_of(error: ShardcallError) -> int:
    """Returns the exit status for an error of the client."""
    return next((status for classes, status in _STATUSES if isinstance(error, classes)), FAILED)


def fail(message: str, status: int = FAILED) -> NoReturn:
    """Prints one line on standard error and ends the command."""
    typer.echo(f"shardcall: {message}", err=True)
    raise typer.Exit(status)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Ends the command with one line for an error of the client, and its exit status."""
    try:
        yield
    except CommandError as error:
        fail(str(error), error.status)
    except ShardcallError as error:
        fail(as_options(str(error)), status_of(error))
