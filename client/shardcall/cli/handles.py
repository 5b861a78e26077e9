"""Handles of arrays on the mesh, and their first digits."""

from __future__ import annotations

import re

from shardcall.cli.exits import CommandError, usage_error
from shardcall.client import Client

SHOWN_DIGITS = 12
_LENGTH = 32
_HANDLE = re.compile(rf"[0-9a-f]{{4,{_LENGTH}}}")


def is_handle(text: str) -> bool:
    """Returns True for a handle or its first digits."""
    return _HANDLE.fullmatch(text.removeprefix("@").lower()) is not None


def find_handle(client: Client, text: str) -> str:
    """Returns the complete handle of an array.

    Args:
        client: a client of its principal.
        text: the handle or its first digits, at least four.

    Raises:
        CommandError: if there is no such array, or there are several.
    """
    digits = text.removeprefix("@").lower()
    if not _HANDLE.fullmatch(digits):
        raise usage_error(f"{text!r} is no handle; give 4 to {_LENGTH} hexadecimal digits, as shardcall ls lists them")
    if len(digits) == _LENGTH:
        return digits
    matches = [array.handle for array in client.list(of_all_clients=True) if array.handle.startswith(digits)]
    if len(matches) != 1:
        count = f"{len(matches)} arrays have" if matches else "no array on the mesh has"
        raise CommandError(f"{count} a handle that begins with {digits}; see: shardcall ls")
    return matches[0]
