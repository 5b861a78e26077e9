"""The files with the tokens of a server's principals, which clients of its user read.

There are two, side by side. The first has this user's token for programs, with the scopes `run` and `arrays`; the other
has one with all scopes, for the commands that need `admin` or `host`.
"""

from __future__ import annotations

import dataclasses
import os
import re
import secrets
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from shardcall_core.wire import private_files
from shardcall_core.wire.private_files import PrivateFileError
from shardcall_core.wire.token_fields import FieldError, PreviousToken, TokenFields, parse_fields, texts_of

FILE_VARIABLE = "SHARDCALL_TOKEN_FILE"
TOKEN_VARIABLE = "SHARDCALL_TOKEN"  # noqa: S105  # a variable's name
SCOPES = ("run", "arrays", "files", "admin", "host")
DEFAULT_SCOPES = ("run", "arrays", "files")

_TOKEN_BYTES = 32
_MAX_FILE_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_SCOPE = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_LETTER = re.compile(r"[A-Za-z0-9._~+/=-]")
_MIN = 16
_TOKEN = re.compile(rf"{_LETTER.pattern}{{{_MIN},512}}")
_HEADING = (
    "# Who may call this user's shardcall servers: NAME SCOPES TOKEN FIELD=VALUE …, a principal a line. Keep it to "
    "yourself.\n"
)
_NO_FIELDS = TokenFields()


class TokenFileError(ValueError):
    """A token file that cannot be used. The message never contains a token."""


@dataclass(frozen=True)
class Entry:
    """One line of the file.

    Attributes:
        name: the name of the principal.
        scopes: the scopes of the principal; a file of a newer version may have more than `SCOPES`.
        token: the token of the principal; not in the repr.
        fields: the expiry of the token, the limits of the principal and its previous token.
    """

    name: str
    scopes: tuple[str, ...]
    token: str = field(repr=False)
    fields: TokenFields = _NO_FIELDS

    @classmethod
    def make(cls, name: str, scopes: Sequence[str], fields: TokenFields = _NO_FIELDS) -> Entry:
        """Returns a principal with a new token."""
        return cls(name, tuple(scopes), new_token(), fields)

    @property
    def tokens(self) -> tuple[tuple[str, datetime | None], ...]:
        """The token and the previous one, each with its expiry."""
        previous = self.fields.previous
        present = self.token, self.fields.expires
        return (present,) if previous is None else (present, (previous.token, previous.expires))

    def rotate(self, now: datetime, grace: timedelta) -> Entry:
        """Returns the principal with a new token.

        Args:
            now: the time, in UTC.
            grace: the time for which the present token stays valid; it does not if that is 0.
        """
        expires = now + grace if self.fields.expires is None else min(now + grace, self.fields.expires)
        previous = PreviousToken(self.token, expires) if expires > now else None
        fields = dataclasses.replace(self.fields, previous=previous)
        return dataclasses.replace(self, token=new_token(), fields=fields)

    def line(self) -> str:
        """Returns the line of the file."""
        return " ".join([self.name, ",".join(self.scopes), self.token, *texts_of(self.fields)]) + "\n"


def usual_path() -> str:
    """Returns the path of this user's token file; empty if the user has no home."""
    base = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):  # the specification: relative paths are ignored
        base = os.path.expanduser("~/.local/state")
    return os.path.join(base, "shardcall", "token") if os.path.isabs(base) else ""


def admin_path(path: str) -> str:
    """Returns the path of the file with the token of all scopes, beside a token file."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f"admin-{name}")


def new_token() -> str:
    """Returns a new random token."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def is_token(text: str) -> bool:
    """Returns True for a valid token: 16 to 512 characters that a header may contain."""
    return _TOKEN.fullmatch(text) is not None


def explain_invalid(token: object) -> str:
    """Returns the reason why a value is not a token, without revealing it."""
    if not isinstance(token, str):
        return f"it is of type {type(token).__name__}, and no string"
    if not token:
        return "it is empty"
    wrong = [i for i, letter in enumerate(token) if not _LETTER.fullmatch(letter)]
    if wrong:
        space = ", white space," if token[wrong[0]].isspace() else ""
        return f"character {wrong[0] + 1} of {len(token)}{space} is not allowed"
    return f"it is too {'short' if len(token) < _MIN else 'long'}, {len(token)} characters"


def user_name() -> str:
    """Returns the name of this user as a principal: the login name, else "owner"."""
    try:
        import pwd  # noqa: PLC0415 - not everywhere

        name = pwd.getpwuid(os.geteuid()).pw_name
    except (ImportError, KeyError):
        name = ""
    return name if is_name(name) else "owner"


def user_entry(entries: Sequence[Entry]) -> Entry:
    """Returns this user's entry of those in a file: the one of its name, else the first."""
    name = user_name()
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


def create_missing(path: str) -> bool:
    """Creates those of the two files that are missing, with this user as their only principal.

    Returns:
        True if the first was created.

    Raises:
        TokenFileError: if it cannot be written.
    """
    created = not os.path.lexists(path) and create(path, [Entry.make(user_name(), DEFAULT_SCOPES)])
    if not os.path.lexists(admin_path(path)):
        with (
            suppress(TokenFileError) if not created else nullcontext()
        ):  # an existing file may be in a folder that is not writable
            create(admin_path(path), [Entry.make(user_name(), SCOPES)])
    return created


def read(path: str) -> tuple[Entry, ...]:
    """Reads a file of this user.

    Raises:
        FileNotFoundError: if there is none.
        TokenFileError: if other users own it, may read it or may write to its folder, or it is malformed.
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
    """Reads a file of this user, and the one with all scopes beside it if there is one.

    Raises:
        FileNotFoundError: if there is no first file.
        TokenFileError: as for `read`.
    """
    entries = read(path)
    with suppress(FileNotFoundError):
        entries += read(admin_path(path))
    return entries


def create(path: str, entries: Sequence[Entry]) -> bool:
    """Creates a file for this user alone; returns False if it exists.

    Raises:
        TokenFileError: if it cannot be written.
    """
    return _write(path, entries, replace=False)


def replace(path: str, entries: Sequence[Entry]) -> None:
    """Replaces a file atomically.

    Raises:
        TokenFileError: if it cannot be written.
    """
    _write(path, entries, replace=True)


def is_name(text: str) -> bool:
    """Returns True for a valid principal: 1 to 64 letters, digits and ``._@-``, a letter or digit first."""
    return _NAME.fullmatch(text) is not None


def are_scopes(names: Sequence[str]) -> bool:
    """Returns True for one or more names of scopes."""
    return bool(names) and set(names) <= set(SCOPES)


def _parse(data: bytes, path: str) -> tuple[Entry, ...]:
    entries: list[Entry] = []
    names: set[str] = set()
    seen: set[str] = set()
    for number, line in enumerate(data.decode(errors="replace").splitlines(), 1):
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        where = f"line {number} of the token file {path}"
        try:
            entry = _entry(fields)
        except FieldError as error:
            raise TokenFileError(f"{where}: {error}") from None
        if entry is None:  # the line is not quoted: it may contain a token
            raise TokenFileError(
                f"{where} is not NAME SCOPES TOKEN, such as alice run,arrays and 16 to "
                f"512 letters, digits and ._~+/=-, with scopes of {', '.join(SCOPES)}; mend it, or remove the file for "
                "a new one"
            )
        tokens = {token for token, _ in entry.tokens}
        if entry.name in names or tokens & seen or len(tokens) < len(entry.tokens):
            raise TokenFileError(f"{where} repeats a name or a token; give every principal one line")
        names.add(entry.name)
        seen |= tokens
        entries.append(entry)
    if not entries:
        raise TokenFileError(f"the token file {path} names nobody; remove it for a new one")
    return tuple(entries)


def _entry(texts: Sequence[str]) -> Entry | None:
    """Returns the entry of a line; None if it is not NAME SCOPES TOKEN and fields.

    Raises:
        FieldError: a field after the token is invalid.
    """
    if len(texts) < 3:
        return None
    name, scopes, token = texts[0], texts[1].split(","), texts[2]
    if not (is_name(name) and all(map(_SCOPE.fullmatch, scopes)) and is_token(token)):
        return None
    fields = parse_fields(texts[3:])
    if fields.previous is not None and not is_token(fields.previous.token):
        raise FieldError(f"previous is no token: {explain_invalid(fields.previous.token)}; give one, or leave it out")
    return Entry(name, tuple(scopes), token, fields)


def _write(path: str, entries: Sequence[Entry], *, replace: bool) -> bool:
    text = "".join([_HEADING, *(entry.line() for entry in entries)])
    try:
        return private_files.write_file(path, text.encode(), replace=replace, sync=True)
    except (OSError, PrivateFileError) as error:
        raise TokenFileError(
            f"no token file can be written as {path}: {error.strerror}; name another path by {FILE_VARIABLE}, or give "
            f"one token of your own by {TOKEN_VARIABLE}"
        ) from None
