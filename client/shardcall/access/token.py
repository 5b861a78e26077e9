"""The token that a client shows its server, and where it looks for one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from shardcall.access import listeners, token_file
from shardcall.access.addresses import Address
from shardcall.errors import InvalidParameterError, InvalidRequestError

_ASK_AGAIN_S = 1.0


class Token:
    """What a client shows with every RPC; no repr and no error tells it.

    Args:
        value: the token; empty for none.
        told: where it is from, or why there is none, to go on after "this client".
        may_show: whether it may be shown to whoever listens now; None for always.
    """

    def __init__(self, value: str = "", told: str = "", may_show: Callable[[], bool] | None = None) -> None:
        self._value = value
        self._told = told
        self._may_show = may_show
        self._asked_at = -float("inf")

    def __repr__(self) -> str:
        return "Token(…)" if self._value else "Token()"

    def show(self) -> str:
        """The token for the next RPC; empty for none."""
        # A server may end and another user take its port: whose it is must be asked anew, which takes 0.05 ms.
        if self._may_show is not None and self._value and time.monotonic() - self._asked_at > _ASK_AGAIN_S:
            if not self._may_show():
                return ""
            self._asked_at = time.monotonic()
        return self._value

    @property
    def told(self) -> str:
        """What was shown and from where, or why nothing was: the end of an error message."""
        if self._value and not self.show():
            return f"this client did not show {self._told}, since what listens there is not this user's program"
        return f"this client showed {self._told}" if self._value else f"this client found none: {self._told}"


def find_token(address: Address, given: str | None, *, encrypted: bool) -> Token:
    """The token for a server: as given, else that of the environment, else of this user's own file.

    That of the file is for this user's servers on this machine alone.

    Args:
        address: where the server is.
        given: by the caller; None for none.
        encrypted: whether nobody can read it on its way, or the caller has said that all may.

    Raises:
        InvalidRequestError: what was given, or stands in the environment, is no token.
        InvalidParameterError: it would go to another machine for all to read.
    """
    variable = os.environ.get(token_file.TOKEN_VARIABLE, "")
    if (given is not None or variable) and not (encrypted or address.is_local):
        raise InvalidParameterError(
            f"the token would go unencrypted to {address.target}, which is another machine; trust its server's "
            "authority by ca_certificate= or SHARDCALL_CA_CERTIFICATE, or say tls=False on a network that you trust",
            field="tls",
        )
    if given is not None:
        return Token(_checked(given, "token"), "the token that it was given")
    if variable:
        return Token(_checked(variable, token_file.TOKEN_VARIABLE), f"the one of {token_file.TOKEN_VARIABLE}")
    nothing = f"token= was not given, {token_file.TOKEN_VARIABLE} is not set"
    path = os.environ.get(token_file.FILE_VARIABLE, "") or token_file.usual_path()
    if not address.is_local:
        return Token(told=f"{nothing}, and a token file is only for servers on this machine")
    if not path:
        return Token(told=f"{nothing}, and this user has no home for a token file")
    try:
        own = token_file.own_entry(token_file.read(path))
    except FileNotFoundError:
        return Token(told=f"{nothing}, and there is no token file {path}")
    except token_file.TokenFileError as error:
        return Token(told=f"{nothing}, and {error}")
    return Token(own.token, f"the one of {own.name} in the token file {path}", lambda: listeners.is_own(address))


def _checked(given: str, field: str) -> str:
    if not isinstance(given, str) or not token_file.is_token(given):
        why = token_file.why_no_token(given)
        raise InvalidRequestError(
            f"{field} is no token: {why}; give 16 to 512 letters, digits and ._~+/=-, as the server's keeper has them "
            "from: shardcall token",
            field=field,
        )
    return given
