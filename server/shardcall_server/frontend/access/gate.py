"""Who is let in: the one place that decides whether a call may reach its method."""

from __future__ import annotations

from collections.abc import Sequence

from shardcall._src.wire.metadata import AUTHORIZATION_KEY
from shardcall_server.errors import CallError, Reason, shorten
from shardcall_server.frontend.access.policy import METHODS, Access, check_scope
from shardcall_server.frontend.access.principals import Principal, Scope
from shardcall_server.frontend.access.tokens import Tokens

_SCHEME = "bearer"
_ADVICE = (
    'a token travels in the metadata of every call, as "authorization: Bearer <token>"; '
    "a client of the server's user on its machine finds the token file ~/.local/state/shardcall/token, or the one of "
    "SHARDCALL_TOKEN_FILE, by itself; others give a token of the server's keeper (shardcall token show) by the "
    'environment variable SHARDCALL_TOKEN or by connect(address, token="…")'
)


class Gate:
    """Lets nobody in but whom the policy allows.

    Args:
        tokens: tell who calls; None where nobody is asked.
    """

    def __init__(self, tokens: Tokens | None) -> None:
        self._tokens = tokens

    def admit(self, method: str, metadata: Sequence[tuple[str, str | bytes]]) -> Principal | None:
        """Who calls; None where nobody is asked.

        Args:
            method: the full name, "/shardcall.v1.KernelService/Execute".
            metadata: of the call.

        Raises:
            CallError: TOKEN_REQUIRED, SCOPE_MISSING; NOT_SUPPORTED for a method that the policy does not know.
        """
        need = METHODS.get(method)
        if need is Access.PUBLIC:
            return None
        principal = self._identify(metadata)
        if need is None:
            raise CallError(
                Reason.NOT_SUPPORTED, f"this server does not serve {shorten(method)}; is it of this version?"
            )
        if isinstance(need, Scope):
            check_scope(principal, need)
        return principal

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
                    "the token that the call brings is none of this server's: it is another server's, or was removed; "
                    + _ADVICE,
                    metadata={"token": "unknown"},
                )
        raise CallError(
            Reason.TOKEN_REQUIRED,
            "the call brings no token, and this server asks who calls; " + _ADVICE,
            metadata={"token": "missing"},
        )
