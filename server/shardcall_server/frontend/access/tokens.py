"""The tokens that the server knows: of a file that it reads again when it changes, or one of the environment."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import threading
from collections.abc import Iterable

import structlog

from shardcall._src.wire import token_file
from shardcall._src.wire.token_file import Entry, TokenFileError
from shardcall_server.frontend.access.principals import Principal, Scope
from shardcall_server.settings import Settings, SettingsError

_LOOK_S = 0.5
_Stamp = tuple[int, ...] | None


class Tokens:
    """Tells whose a token is.

    Beside each token there is a session token, which follows from it and from a secret of this process: it is as good
    as the token itself, until the token is removed or the process ends.

    Args:
        entries: the principals.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._secret = secrets.token_bytes()
        self.replace(entries)

    def find(self, token: str) -> Principal | None:
        """Returns the principal of a token or session token; None for an unknown one."""
        # Digests are looked up, so how long that takes tells nothing of the tokens that there are.
        return self._principals.get(_digest(token))

    def session_of(self, token: str) -> str:
        """The session token for a token; empty if that is nobody's."""
        return self._sessions.get(_digest(token), "")

    def replace(self, entries: Iterable[Entry]) -> None:
        """Knows these from now on, and no others."""
        principals, sessions = {}, {}
        for entry in entries:
            session = sessions[_digest(entry.token)] = _keyed(self._secret, entry.token)
            principal = Principal(entry.name, frozenset(Scope(scope) for scope in entry.scopes))
            principals[_digest(entry.token)] = principals[_digest(session)] = principal
        self._principals, self._sessions = principals, sessions

    def close(self) -> None:
        """Ends what it does in the background."""


class FileTokens(Tokens):
    """Those of a file and of the one with all scopes beside it, which clients on this machine find by themselves.

    They are looked at twice a second by a thread of its own: a file system may take its time. What is damaged is not
    taken: those that were there before stay, and the log says so once.

    Args:
        path: of the file; the two are made if they are not there.

    Attributes:
        made: whether the file was made just now.

    Raises:
        SettingsError: others own one or may read it, it is damaged, or it cannot be made.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self.made = token_file.make_own(path)
            self._seen = self._stamps()
            super().__init__(token_file.read_both(path))
        except TokenFileError as error:
            raise SettingsError(str(error)) from None
        except FileNotFoundError:
            raise SettingsError(f"the token file {path} went away while the server started; start it again") from None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tokens", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._closing.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._closing.wait(_LOOK_S):
            if (stamps := self._stamps()) == self._seen:
                continue
            self._seen = stamps
            try:
                self.replace(entries := token_file.read_both(self._path))
            except (OSError, TokenFileError) as error:
                structlog.get_logger().warning("the token file is not taken; tokens stay as they were", why=str(error))
            else:
                structlog.get_logger().info("the token file was read again", principals=len({e.name for e in entries}))

    def _stamps(self) -> tuple[_Stamp, _Stamp]:
        return _stamp(self._path), _stamp(token_file.admin_path(self._path))


def open_tokens(settings: Settings) -> Tokens | None:
    """The tokens that the settings ask for; None where they ask for none.

    Raises:
        SettingsError: the file cannot be used, or there is no place for one.
    """
    if not settings.auth:
        return None
    if token := settings.token.get_secret_value():
        return Tokens([Entry(token_file.own_name(), token_file.SCOPES, token)])
    if not settings.token_file:
        raise SettingsError(
            "this user has no home for a token file; name a file by --token-file, or give one token by SHARDCALL_TOKEN"
        )
    return FileTokens(settings.token_file)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()


def _keyed(secret: bytes, token: str) -> str:
    """A token that follows from another, for whoever knows the secret."""
    made = hmac.digest(secret, token.encode(errors="replace"), "sha256")
    return base64.urlsafe_b64encode(made).decode().rstrip("=")


def _stamp(path: str) -> _Stamp:
    """What changes with a file, its owner and mode too; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
