"""The files that hold the tokens of a server's principals; its own user's clients find theirs there.

There are two, side by side. The token of this user in the first is what programs are given by default, with the scopes
`run` and `arrays`; the other has all scopes, for the commands that need `admin` or `host`.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field

from shardcall._src.wire import private_files
from shardcall._src.wire.private_files import PrivateFileError

FILE_VARIABLE = "SHARDCALL_TOKEN_FILE"
TOKEN_VARIABLE = "SHARDCALL_TOKEN"  # noqa: S105  # a variable's name
SCOPES = ("run", "arrays", "admin", "host")
DEFAULT_SCOPES = ("run", "arrays")

_TOKEN_BYTES = 32
_MAX_FILE_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_LETTER = re.compile(r"[A-Za-z0-9._~+/=-]")
_LEAST = 16
_TOKEN = re.compile(rf"{_LETTER.pattern}{{{_LEAST},512}}")
_HEADING = "# Who may call this user's shardcall servers: NAME SCOPES TOKEN, a principal a line. Keep it to yourself.\n"


class TokenFileError(ValueError):
    """A token file that cannot be used: what is wrong with it, and what to do. It never tells a token."""


@dataclass(frozen=True)
class Entry:
    """One line of the file.

    Attributes:
        name: the principal's.
        scopes: what it may do.
        token: what it shows; in no repr.
    """

    name: str
    scopes: tuple[str, ...]
    token: str = field(repr=False)

    @classmethod
    def make(cls, name: str, scopes: Sequence[str]) -> Entry:
        """A principal with a new token."""
        return cls(name, tuple(scopes), new_token())


def usual_path() -> str:
    """Where the tokens of this user's servers are; empty where the user has no home."""
    base = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):  # the specification: a relative one is to be ignored
        base = os.path.expanduser("~/.local/state")
    return os.path.join(base, "shardcall", "token") if os.path.isabs(base) else ""


def admin_path(path: str) -> str:
    """Returns the path of the file with the token of all scopes, beside a token file."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f"admin-{name}")


def new_token() -> str:
    """A token that nobody can guess."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def is_token(text: str) -> bool:
    """Whether a text may be a token: 16 to 512 characters that a header may hold."""
    return _TOKEN.fullmatch(text) is not None


def why_no_token(given: object) -> str:
    """What keeps something from being a token, without telling it."""
    if not isinstance(given, str):
        return f"it is of type {type(given).__name__}, and no string"
    if not given:
        return "it is empty"
    wrong = [i for i, letter in enumerate(given) if not _LETTER.fullmatch(letter)]
    if wrong:
        space = ", white space," if given[wrong[0]].isspace() else ""
        return f"character {wrong[0] + 1} of {len(given)}{space} is not allowed"
    return f"it is too {'short' if len(given) < _LEAST else 'long'}, {len(given)} characters"


def own_name() -> str:
    """What this user is called as a principal: the login name, else "owner"."""
    try:
        import pwd  # noqa: PLC0415 - not everywhere

        name = pwd.getpwuid(os.geteuid()).pw_name
    except (ImportError, KeyError):
        name = ""
    return name if is_name(name) else "owner"


def own_entry(entries: Sequence[Entry]) -> Entry:
    """This user's own entry of those in a file: the one of its name, else the first."""
    name = own_name()
    return next((entry for entry in entries if entry.name == name), entries[0])


def entry_of(entries: Sequence[Entry], name: str) -> Entry:
    """Returns the entry of a principal.

    Raises:
        TokenFileError: there is none of that name.
    """
    for entry in entries:
        if entry.name == name:
            return entry
    raise TokenFileError(f"there is no principal {name[:80]!r}; there are: {', '.join(e.name for e in entries)}")


def make_own(path: str) -> bool:
    """Makes the two files with this user as their only principal, as far as there are none.

    Returns:
        Whether the first was made.

    Raises:
        TokenFileError: it cannot be written there.
    """
    made = not os.path.lexists(path) and create(path, [Entry.make(own_name(), DEFAULT_SCOPES)])
    if not os.path.lexists(admin_path(path)):
        with (
            suppress(TokenFileError) if not made else nullcontext()
        ):  # a file that is given may lie where nobody writes
            create(admin_path(path), [Entry.make(own_name(), SCOPES)])
    return made


def read(path: str) -> tuple[Entry, ...]:
    """Reads a file of this user's own.

    Raises:
        FileNotFoundError: there is none.
        TokenFileError: others own it, may read it or may write in its folder, or it is damaged.
    """
    try:
        data = private_files.read_file(path, _MAX_FILE_BYTES)
    except FileNotFoundError:
        raise
    except (OSError, PrivateFileError) as error:
        raise TokenFileError(
            f"the token file {path} cannot be read: {error.strerror}; see whether it is your own, or name another by "
            f"{FILE_VARIABLE}"
        ) from None
    return _parse(data, path)


def read_both(path: str) -> tuple[Entry, ...]:
    """Reads a file of this user's own, and the one with all scopes beside it if it is there.

    Raises:
        FileNotFoundError: the first is not there.
        TokenFileError: as of `read`.
    """
    entries = read(path)
    with suppress(FileNotFoundError):
        entries += read(admin_path(path))
    return entries


def create(path: str, entries: Sequence[Entry]) -> bool:
    """Writes a file for this user alone where there is none; returns whether it was this call that did.

    Raises:
        TokenFileError: it cannot be written there.
    """
    return _write(path, entries, replace=False)


def replace(path: str, entries: Sequence[Entry]) -> None:
    """Writes a file anew, whole or not at all.

    Raises:
        TokenFileError: it cannot be written there.
    """
    _write(path, entries, replace=True)


def is_name(text: str) -> bool:
    """Whether a principal may be called so: 1 to 64 letters, digits and ``._@-``, a letter or digit first."""
    return _NAME.fullmatch(text) is not None


def are_scopes(words: Sequence[str]) -> bool:
    """Whether these are scopes, one or more."""
    return bool(words) and set(words) <= set(SCOPES)


def _parse(data: bytes, path: str) -> tuple[Entry, ...]:
    entries: list[Entry] = []
    for number, line in enumerate(data.decode(errors="replace").splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if (entry := _entry(words)) is None:  # what stands there is not told: it may be a token
            raise TokenFileError(
                f"line {number} of the token file {path} is not NAME SCOPES TOKEN, such as alice run,arrays and 16 to "
                f"512 letters, digits and ._~+/=-, with scopes of {', '.join(SCOPES)}; mend it, or remove the file for "
                "a new one"
            )
        if any(entry.name == known.name or entry.token == known.token for known in entries):
            raise TokenFileError(
                f"line {number} of the token file {path} repeats a name or a token; give every principal one line"
            )
        entries.append(entry)
    if not entries:
        raise TokenFileError(f"the token file {path} names nobody; remove it for a new one")
    return tuple(entries)


def _entry(words: Sequence[str]) -> Entry | None:
    if len(words) != 3:
        return None
    name, scopes, token = words[0], words[1].split(","), words[2]
    return Entry(name, tuple(scopes), token) if is_name(name) and are_scopes(scopes) and is_token(token) else None


def _write(path: str, entries: Sequence[Entry], *, replace: bool) -> bool:
    lines = [f"{entry.name} {','.join(entry.scopes)} {entry.token}\n" for entry in entries]
    try:
        return private_files.write_file(path, "".join([_HEADING, *lines]).encode(), replace=replace, sync=True)
    except (OSError, PrivateFileError) as error:
        raise TokenFileError(
            f"no token file can be written as {path}: {error.strerror}; name another place by {FILE_VARIABLE}, or give "
            f"one token of your own by {TOKEN_VARIABLE}"
        ) from None
