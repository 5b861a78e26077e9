"""Access to the live page: a key that is valid once, admin tokens, and the cookies that browsers get for either."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from shardcall_server.frontend.access.principals import Scope
from shardcall_server.frontend.access.tokens import Tokens

SESSION_S = 12 * 3600.0
KEY_S = 600.0
_MAX_SESSIONS = 32
_KEY_BYTES = 32
_SCHEME = "bearer"


@dataclass(frozen=True)
class _Session:
    """A session of a browser that has a cookie.

    Attributes:
        expires_at: its end, by the clock.
        token: the token for which it was opened, or a session token of it; empty for the key.
    """

    expires_at: float
    token: str


class PageAccess:
    """Decides who may see the live page; one thread uses it, and another one may issue the key.

    Cookies are not tokens: programs at other ports of the same host see them, too.

    Args:
        tokens: the server's tokens; None without authentication.
        clock: returns the time, in seconds since 1970.
    """

    def __init__(self, tokens: Tokens | None, clock: Callable[[], float] = time.time) -> None:
        self._tokens = tokens
        self._clock = clock
        self._key: tuple[bytes, float] | None = None  # its digest and the time of its end; None if none is valid
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()  # by digest of the cookie, the oldest first

    def issue_key(self) -> str:
        """Returns a key for the link, which is valid once, for `KEY_S` seconds; an earlier one ends."""
        key = secrets.token_urlsafe(_KEY_BYTES)
        self._key = _digest(key), self._clock() + KEY_S
        return key

    def exchange_key(self, key: str) -> str | None:
        """Returns a cookie's value for the key; None if it is another one, was used or has expired."""
        if self._key is None:
            return None
        digest, expires_at = self._key
        if expires_at <= self._clock() or not hmac.compare_digest(_digest(key), digest):
            return None
        self._key = None
        return self._open("")

    def exchange_token(self, token: str) -> str | None:
        """Returns a cookie's value for a token with the scope admin; None for another one."""
        if self._tokens is None or not self._is_admin(token):
            return None
        return self._open(self._tokens.session_of(token) or token)

    def allows(self, cookie: str, authorization: str) -> bool:
        """Returns whether a request is allowed.

        Args:
            cookie: the value of the page's cookie; empty if there is none.
            authorization: the header; empty if there is none.
        """
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == _SCHEME:
            return self._is_admin(token.strip())
        # The lookup uses digests, so that its duration reveals nothing about valid cookies.
        session = self._sessions.get(_digest(cookie))
        if session is None or session.expires_at <= self._clock():
            return False
        return not session.token or self._is_admin(session.token)

    def _open(self, token: str) -> str:
        cookie = secrets.token_urlsafe(_KEY_BYTES)
        self._sessions[_digest(cookie)] = _Session(self._clock() + SESSION_S, token)
        if len(self._sessions) > _MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return cookie

    def _is_admin(self, token: str) -> bool:
        principal = self._tokens.find(token) if self._tokens is not None else None
        return principal is not None and Scope.ADMIN in principal.scopes and principal.expires_s > self._clock()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="replace")).digest()
