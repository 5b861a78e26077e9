"""The server's tokens, from a file that is reloaded when it changes or from the environment."""

from __future__ import annotations

import base64
import hashlib
import hmac
import math
import os
import secrets
import threading
from collections.abc import Iterable, Mapping

import structlog

from shardcall_core.wire import token_file
from shardcall_core.wire.token_fields import NO_LIMITS, PrincipalLimits
from shardcall_core.wire.token_file import Entry, TokenFileError
from shardcall_server.frontend.access.principals import Principal, Scope
from shardcall_server.settings import Settings, SettingsError

_POLL_S = 0.5
_Stamp = tuple[int, ...] | None


class Tokens:
    """Maps tokens to principals.

    Each token has a session token, derived from it and from a secret of this process, which is valid like the token
    itself until the token is removed or the process ends.

    Attributes:
        version: changes when the tokens do.
        limits: the limits of every principal; those of one in several files are of the first.
    """

    limits: Mapping[str, PrincipalLimits]

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._secret = secrets.token_bytes()
        self._reported_scopes = set(token_file.SCOPES)
        self.version = 0
        self.replace(entries)

    def find(self, token: str) -> Principal | None:
        """Returns the principal of a token or session token, which may have expired; None for an unknown one."""
        # The lookup uses digests, so that its duration reveals nothing about valid tokens.
        return self._principals.get(_digest(token))

    def session_of(self, token: str) -> str:
        """Returns the session token of a token; empty for an unknown one."""
        return self._sessions.get(_digest(token), "")

    def limits_of(self, principal: str) -> PrincipalLimits:
        """Returns the limits of a principal; none for one that is in no file."""
        return self.limits.get(principal, NO_LIMITS)

    def latest_expiry(self, principal: str) -> float:
        """Returns the end of the last token of a principal, in seconds since 1970; 0 if it has none."""
        return self._latest_expiries.get(principal, 0.0)

    def replace(self, entries: Iterable[Entry]) -> None:
        """Replaces all tokens. Scopes of newer versions are ignored, with one warning for each."""
        principals: dict[bytes, Principal] = {}
        sessions: dict[bytes, str] = {}
        limits: dict[str, PrincipalLimits] = {}
        expiries: dict[str, float] = {}
        for entry in entries:
            weight = limits.setdefault(entry.name, entry.fields.limits).weight
            scopes = frozenset(Scope(name) for name in entry.scopes if name in token_file.SCOPES)
            if newer := sorted({*entry.scopes} - self._reported_scopes):
                structlog.get_logger().warning("scopes are ignored that this version does not have", scopes=newer)
                self._reported_scopes.update(newer)
            for token, expires in entry.tokens:
                session = sessions[_digest(token)] = _keyed(self._secret, token)
                expires_s = math.inf if expires is None else expires.timestamp()
                expiries[entry.name] = max(expires_s, expiries.get(entry.name, 0.0))
                principal = Principal(entry.name, scopes, expires_s, weight)
                principals[_digest(token)] = principals[_digest(session)] = principal
        self._principals, self._sessions, self.limits = principals, sessions, limits
        self._latest_expiries = expiries
        self.version += 1

    def close(self) -> None:
        """Stops background work."""


class FileTokens(Tokens):
    """The tokens of the token file and of the admin token file beside it.

    A thread checks the files twice a second, since a file system may be slow. A damaged file is ignored: the previous
    tokens stay valid, and the log has one warning.

    Args:
        path: the path of the token file; missing files are created.

    Attributes:
        is_created: whether the token file was created.

    Raises:
        SettingsError: other users own a file or can read it, it is damaged, or it cannot be created.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self.is_created = token_file.create_missing(path)
            self._seen = self._warned_of = self._stamps()
            super().__init__(token_file.read_both(path))
        except TokenFileError as error:
            raise SettingsError(str(error)) from None
        except FileNotFoundError:
            raise SettingsError(
                f"the token file {path} was removed while the server started; start the server again"
            ) from None
        self._closing = threading.Event()  # ends the thread
        self._thread = threading.Thread(target=self._watch, name="tokens", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops the thread."""
        self._closing.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._closing.wait(_POLL_S):
            if (stamps := self._stamps()) == self._seen:
                continue
            try:
                self.replace(entries := token_file.read_both(self._path))
            except (OSError, TokenFileError) as error:  # it may be readable the next time, unchanged
                if stamps != self._warned_of:
                    structlog.get_logger().warning("invalid token file ignored; the tokens stay", error=str(error))
                self._warned_of = stamps
            else:
                self._seen = stamps
                structlog.get_logger().info("token file reloaded", principals=len({e.name for e in entries}))

    def _stamps(self) -> tuple[_Stamp, _Stamp]:
        return _stamp(self._path), _stamp(token_file.admin_path(self._path))


def open_tokens(settings: Settings) -> Tokens | None:
    """Returns the tokens of the settings; None if the server does not authenticate.

    Raises:
        SettingsError: the file cannot be used, or there is no folder for it.
    """
    if not settings.auth:
        return None
    if token := settings.token.get_secret_value():
        return Tokens([Entry(token_file.user_name(), token_file.SCOPES, token)])
    if not settings.token_file:
        raise SettingsError(
            "this user has no home folder for a token file; name a file with --token-file, or set SHARDCALL_TOKEN"
        )
    return FileTokens(settings.token_file)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()


def _keyed(secret: bytes, token: str) -> str:
    """Returns a token derived from another one with a secret."""
    derived = hmac.digest(secret, token.encode(errors="replace"), "sha256")
    return base64.urlsafe_b64encode(derived).decode().rstrip("=")


def _stamp(path: str) -> _Stamp:
    """Returns values that change with a file, its owner and its mode; None if there is no file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
