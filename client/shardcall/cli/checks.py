"""Checks of a client, a server and the connection between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from shardcall_core.access.option_names import as_options

State = Literal["ok", "warning", "failed", "skipped"]


@dataclass(frozen=True)
class Check:
    """The outcome of a check.

    Attributes:
        name: what was checked.
        state: ``"failed"`` if calls fail or results may be wrong, ``"warning"`` if something could be better.
        detail: the state, or the fault and its cause.
        fix: how to fix it; empty if there is nothing to fix.
    """

    name: str
    state: State
    detail: str
    fix: str = ""


def ok(name: str, detail: str) -> Check:
    """Returns a check that has passed."""
    return Check(name, "ok", detail)


def warning(name: str, detail: str, fix: str) -> Check:
    """Returns a check of something that could be better."""
    return Check(name, "warning", detail, fix)


def failed(name: str, detail: str, fix: str) -> Check:
    """Returns a check that has failed."""
    return Check(name, "failed", detail, fix)


def skipped(name: str, why: str) -> Check:
    """Returns a check that could not be made."""
    return Check(name, "skipped", why)


def guarded(name: str, make: Callable[[], Iterator[Check]]) -> list[Check]:
    """Returns the checks that a function yields; an exception becomes a failed check, and others still run."""
    checks: list[Check] = []
    try:
        for check in make():
            checks.append(check)  # noqa: PERF402  # those before an exception count
    except Exception as error:  # noqa: BLE001  # the doctor reports it, and looks further
        message = as_options(str(error)) or type(error).__name__
        detail, _, fix = message.partition("; ")
        checks.append(failed(name, detail, fix))
    return checks


def version(package: str) -> str:
    """Returns the version of an installed package; empty if it is not installed."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    with suppress(PackageNotFoundError):
        return installed(package)
    return ""
