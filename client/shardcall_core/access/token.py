"""The token of a client's RPCs, and its lookup."""

from __future__ import annotations

import os

from shardcall_core.access import session
from shardcall_core.access.addresses import Address
from shardcall_core.types.errors import InvalidParameterError, InvalidRequestError
from shardcall_core.wire import token_file


class Token:
    """The token of a client's RPCs, which no repr and no error reveals.

    Args:
        value: the token; empty for none.
        origin: the origin of the token, or the reason why there is none.
    """

    def __init__(self, value: str = "", origin: str = "") -> None:
        self._value = value
        self._origin = origin

    def __repr__(self) -> str:
        return "Token(…)" if self._value else "Token()"

    def show(self, timeout_s: float) -> str:
        """Returns the token for the next RPC within a timeout; empty for none."""
        return self._value

    def forget(self) -> None:
        """Forgets the session after a lost connection: the server may be another process now."""

    def renew(self, shown: str, timeout_s: float) -> bool:
        """Looks up another token after a server has refused one; returns True if there is one.

        Args:
            shown: the refused token, which another thread may have renewed since.
            timeout_s: the limit, in seconds.
        """
        return False

    @property
    def advice(self) -> str:
        """The origin of the token, or the reason why there is none: the end of an error message."""
        return f"this client showed {self._origin}" if self._value else f"this client found none: {self._origin}"


class UserToken(Token):
    """The token of this user's file, sent to a server's private socket only (`session`).

    Args:
        address: the address of the server, on this machine.
        path: the path of the file.
        nothing: the reason why there is no other token, for an error message.
    """

    def __init__(self, address: Address, path: str, nothing: str) -> None:
        super().__init__()
        self._address = address
        self._path = path
        self._nothing = nothing
        self._asked = False

    def show(self, timeout_s: float) -> str:
        """Returns the session token, which is requested at first use."""
        if not self._asked:
            self._ask(timeout_s)
        return self._value

    def forget(self) -> None:
        """Requests another session token at the next RPC."""
        self._asked = False

    def renew(self, shown: str, timeout_s: float) -> bool:
        """Requests a session token, unless another thread has; returns True if it is a new one."""
        if self._value in {"", shown}:
            self._ask(timeout_s)
        return self._value not in {"", shown}

    def _ask(self, timeout_s: float) -> None:
        # Without a lock, which a fork could leave locked: all threads receive the same session token.
        self._value, self._origin = self._exchange(timeout_s)
        self._asked = True

    def _exchange(self, timeout_s: float) -> tuple[str, str]:
        """Returns the session token and its origin."""
        try:
            entry = token_file.user_entry(token_file.read(self._path))
        except FileNotFoundError:
            return "", f"{self._nothing}, and there is no token file {self._path}"
        except token_file.TokenFileError as error:
            return "", f"{self._nothing}, and {error}"
        issued = session.open_session(self._address, entry.token, timeout_s)
        if issued:
            return issued, f"a session token, for the one of {entry.name} in the token file {self._path}"
        at = self._address.target
        if issued is None:
            return "", (
                f"{self._nothing}, and no server of this user on this machine that reads token files listens at {at}, "
                f"so the token file {self._path} is not for it; for the server of another user, in a container, behind "
                f"a forwarded port or started with {token_file.TOKEN_VARIABLE}, give its own token; that of a server "
                "of shardcall.local only its client has"
            )
        return "", f"{self._nothing}, and the server at {at} does not know the one in the token file {self._path}"


def find_token(address: Address, token: str | None, *, encrypted: bool, admin: bool = False) -> Token:
    """Returns the token for a server: the caller's, else that of the environment, else that of this user's file.

    The token of the file is for this user's servers on this machine only.

    Args:
        token: the caller's token; None for none.
        encrypted: True if the connection is encrypted, or the caller allows a plain one.
        admin: use the file of the scopes `admin` and `host`, which programs do not have by default.

    Raises:
        InvalidRequestError: if the caller's token, or the environment's, is not a token.
        InvalidParameterError: if the token would be sent unencrypted to another machine.
    """
    variable = os.environ.get(token_file.TOKEN_VARIABLE, "")
    if (token is not None or variable) and not (encrypted or address.is_local):
        raise InvalidParameterError(
            f"the token would go unencrypted to {address.target}, which is another machine; trust its server's "
            "authority by ca_certificate= or SHARDCALL_CA_CERTIFICATE, or say tls=False on a network that you trust",
            field="tls",
        )
    if token is not None:
        return Token(_checked(token, "token"), "the token that it was given")
    if variable:
        return Token(_checked(variable, token_file.TOKEN_VARIABLE), f"the one of {token_file.TOKEN_VARIABLE}")
    nothing = f"token= was not given, {token_file.TOKEN_VARIABLE} is not set"
    path = os.environ.get(token_file.FILE_VARIABLE, "") or token_file.usual_path()
    if not address.is_local:
        return Token(origin=f"{nothing}, and a token file is only for servers on this machine")
    if not path:
        return Token(origin=f"{nothing}, and this user has no home for a token file")
    if admin and os.path.lexists(token_file.admin_path(path)):
        path = token_file.admin_path(path)
    return UserToken(address, path, nothing)


def _checked(token: str, field: str) -> str:
    if not isinstance(token, str) or not token_file.is_token(token):
        why = token_file.explain_invalid(token)
        raise InvalidRequestError(
            f"{field} is no token: {why}; give 16 to 512 letters, digits and ._~+/=-, as the server's administrator "
            "prints them by: shardcall token show",
            field=field,
        )
    return token
