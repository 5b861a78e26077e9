"""The versions of builds, which client and server exchange, and the refusal of what only a newer one has."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from shardcall_core.call_error import CallError, Reason

_DISTRIBUTION = "shardcall"
_PACKAGES = ("shardcall", "shardcall_core", "shardcall_inference", "shardcall_server", "shardcall_worker")
_DIGITS = 10


@cache
def build_version() -> str:
    """Returns the version with a digest of the installed sources as its local part, such as ``0.1.0+3f9c2a1b7d``.

    The number alone does not distinguish builds between two releases. No step of the build writes the digest: an
    editable installation has it too, and equal sources have the same one everywhere.
    """
    digest = hashlib.sha256()
    for package in _PACKAGES:
        spec = find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            for file in sorted(Path(folder).rglob("*.py")):
                digest.update(hashlib.sha256(f"{package}/{file.relative_to(folder)}".encode()).digest())
                digest.update(hashlib.sha256(file.read_bytes()).digest())
    try:
        number = version(_DISTRIBUTION)
    except PackageNotFoundError:  # sources that are not installed
        number = "0"
    return f"{number}+{digest.hexdigest()[:_DIGITS]}"


def number_of(version: str) -> tuple[int, ...]:
    """Returns the number of a version without its local part, for comparisons: (0, 1, 0) of ``0.1.0+3f9c2a1b7d``."""
    return tuple(int(part) for part in version.partition("+")[0].split(".") if part.isdigit())


def newer_sender(what: str) -> CallError:
    """Returns the refusal of something that this version does not have, which a newer sender uses.

    Args:
        what: what was received; the sentence continues with "which this server …".
    """
    return CallError(
        Reason.NOT_SUPPORTED,
        f"{what}, which this server, shardcall {build_version()}, does not know; use a client of the same version, or "
        "a newer server",
    )
