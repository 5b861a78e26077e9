"""The gate: authenticates each call and checks its scope before it reaches its method."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.versions import newer_sender
from shardcall_core.wire.metadata import AUTHORIZATION_KEY
from shardcall_core.wire.token_fields import time_text
from shardcall_server.frontend.access.policy import METHODS, SERVED, SERVICES, Access, check_scope, service_of
from shardcall_server.frontend.access.principals import Principal, Scope
from shardcall_server.frontend.access.tokens import Tokens

_SCHEME = "bearer"
_ADVICE = (
    'every call needs the metadata "authorization: Bearer <token>"; '
    "a client of the server's user on its machine finds the token file ~/.local/state/shardcall/token, or the one of "
    "SHARDCALL_TOKEN_FILE, by itself; others get a token from the administrator (shardcall token show) and set the "
    'environment variable SHARDCALL_TOKEN or use connect(address, token="…")'
)


class Gate:
    """Admits only the calls that the policy allows.

    Args:
        tokens: the known tokens; None if the server does not authenticate.
        clock: returns the time, in seconds since 1970.
    """

    def __init__(self, tokens: Tokens | None, clock: Callable[[], float] = time.time) -> None:
        self._tokens = tokens
        self._clock = clock

    @property
    def version(self) -> int:
        """Changes when the tokens do."""
        return self._tokens.version if self._tokens is not None else 0

    def admit(
        self, method: str, metadata: Sequence[tuple[str, str | bytes]], *, is_open: bool = False
    ) -> Principal | None:
        """Returns the caller's principal; None for public methods and without authentication.

        Args:
            method: the full name, "/shardcall.v1.KernelService/Execute".
            metadata: the metadata of the RPC.
            is_open: whether the RPC was admitted before; its token may have expired since.

        Raises:
            CallError: TOKEN_REQUIRED, SCOPE_MISSING; NOT_SUPPORTED for a method that is not in the policy.
        """
        need = METHODS.get(method)
        if need is Access.PUBLIC:
            return None
        if need is None and (service := service_of(method)) not in SERVICES:  # of a client of something else
            raise CallError(
                Reason.NOT_SUPPORTED,
                f"this server has no service {shorten(service)!r}; it is a shardcall server and serves {SERVED}",
            )
        principal = self._identify(metadata)
        if not is_open and (expired := self.expiry_error(principal)) is not None:
            raise expired
        if need is None:
            raise newer_sender(f"the call is one of {shorten(method)}")
        if isinstance(need, Scope):
            check_scope(principal, need)
        return principal

    def is_principal(self, name: str) -> bool:
        """Returns whether a principal is in the token files; True without authentication."""
        return self._tokens is None or name in self._tokens.limits

    def has_valid_token(self, name: str) -> bool:
        """Returns whether a token of a principal is valid now; True without authentication."""
        return self._tokens is None or self._tokens.latest_expiry(name) > self._clock()

    def has_expired(self, principal: Principal | None) -> bool:
        """Returns whether the token of a principal has expired."""
        return principal is not None and principal.expires_s <= self._clock()

    def expiry_error(self, principal: Principal | None) -> CallError | None:
        """Returns the error of a principal whose token has expired; None if it has not."""
        if principal is None or not self.has_expired(principal):
            return None
        expired_at = time_text(datetime.fromtimestamp(principal.expires_s, UTC))
        return CallError(
            Reason.TOKEN_REQUIRED,
            f"the call's token, of {principal.name}, expired at {expired_at}; use its new token, or ask the "
            f"administrator for one, made with: shardcall token rotate {principal.name} --expires 30d",
            metadata={"token": "expired", "expired_at": expired_at},
        )

    def _identify(self, metadata: Sequence[tuple[str, str | bytes]]) -> Principal | None:
        if self._tokens is None:
            return None
        for key, value in metadata:
            if key == AUTHORIZATION_KEY and isinstance(value, str):
                scheme, _, token = value.partition(" ")
                if scheme.lower() == _SCHEME and (principal := self._tokens.find(token)) is not None:
                    return principal
                raise CallError(
                    Reason.TOKEN_REQUIRED,
                    "the call's token is not valid on this server: it belongs to another server, or was removed; "
                    + _ADVICE,
                    metadata={"token": "unknown"},
                )
        raise CallError(
            Reason.TOKEN_REQUIRED,
            "the call has no token, and this server requires one; " + _ADVICE,
            metadata={"token": "missing"},
        )
