"""Arrays on the mesh as the arguments of a command: their names, their handles, and the first digits of these."""

from __future__ import annotations

import re

from shardcall._src.services.passed_arrays import Handle
from shardcall.cli.exits import CommandError, usage_error
from shardcall.client import Client
from shardcall_core.array_names import MAX_NAME, NAME
from shardcall_core.types.errors import ArrayLostError

SHOWN_DIGITS = 12
_LENGTH = 32
_HANDLE = re.compile(rf"[0-9a-f]{{4,{_LENGTH}}}")


def find_array(client: Client, text: str) -> Handle:
    """Returns the array of a name, or the complete handle of an array.

    Args:
        client: a client of its principal.
        text: the name, ``principal/name``, the handle or its first digits, at least four. All digits of a handle are
            always one, and others first of all a name.

    Raises:
        CommandError: if there is no such array, or there are several.
        ArrayLostError: if there is none of that name.
    """
    text = text.removeprefix("@")
    is_handle, is_name = _HANDLE.fullmatch(text.lower()), NAME.fullmatch(text.rpartition("/")[2])
    if not is_handle and not is_name:
        raise usage_error(
            f"{text!r} is neither a name nor a handle; give a name of 1 to {MAX_NAME} ASCII letters, digits, '.', '_' "
            f"and '-', or 4 to {_LENGTH} hexadecimal digits, as shardcall ls lists them"
        )
    if is_handle and len(text) == _LENGTH:
        return text.lower()
    try:
        return client.open(text)
    except ArrayLostError:
        if not is_handle:
            raise
    return _complete(client, text.lower())


def _complete(client: Client, digits: str) -> str:
    """Returns the handle that begins with some digits."""
    matches = [array.handle for array in client.list(of_all_clients=True) if array.handle.startswith(digits)]
    if len(matches) != 1:
        count = f"{len(matches)} arrays have" if matches else "no array on the mesh has the name or"
        raise CommandError(f"{count} a handle that begins with {digits}; see: shardcall ls")
    return matches[0]
