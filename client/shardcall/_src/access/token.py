"""The token that a client shows its server, and where it looks for one."""

from __future__ import annotations

import os

from shardcall._src.access import session
from shardcall._src.access.addresses import Address
from shardcall._src.types.errors import InvalidParameterError, InvalidRequestError
from shardcall._src.wire import token_file


class Token:
    """What a client shows with every RPC; no repr and no error tells it.

    Args:
        value: the token; empty for none.
        told: where it is from, or why there is none, to go on after "this client".
    """

    def __init__(self, value: str = "", told: str = "") -> None:
        self._value = value
        self._told = told

    def __repr__(self) -> str:
        return "Token(…)" if self._value else "Token()"

    def show(self, timeout_s: float) -> str:
        """The token for the next RPC, to be had within a time; empty for none."""
        return self._value

    def forget(self) -> None:
        """Notes that the connection was lost: another server process may be there next."""

    def renew(self, shown: str, timeout_s: float) -> bool:
        """Looks for another token after a server has refused one; returns whether there is one.

        Args:
            shown: the token that was refused. Another thread may have renewed it in the meantime.
            timeout_s: the limit, in seconds.
        """
        return False

    @property
    def told(self) -> str:
        """What was shown and from where, or why nothing was: the end of an error message."""
        return f"this client showed {self._told}" if self._value else f"this client found none: {self._told}"


class OwnToken(Token):
    """The token of this user's file, shown to no server but by its private socket (`session`).

    Args:
        address: of the server, on this machine.
        path: of the file.
        nothing: why no other token is shown, for an error message.
    """

    def __init__(self, address: Address, path: str, nothing: str) -> None:
        super().__init__()
        self._address = address
        self._path = path
        self._nothing = nothing
        self._asked = False

    def show(self, timeout_s: float) -> str:
        """The session token; the exchange is made when it is first asked for."""
        if not self._asked:
            self._ask(timeout_s)
        return self._value

    def forget(self) -> None:
        """Has the next RPC ask for another session token."""
        self._asked = False

    def renew(self, shown: str, timeout_s: float) -> bool:
        """Asks the server for a session token, unless another thread has; returns whether it is another one."""
        if self._value in {"", shown}:
            self._ask(timeout_s)
        return self._value not in {"", shown}

    def _ask(self, timeout_s: float) -> None:
        # Without a lock, which a fork could leave locked: all threads are given the same session token.
        self._value, self._told = self._exchange(timeout_s)
        self._asked = True

    def _exchange(self, timeout_s: float) -> tuple[str, str]:
        """The session token, and what is told of it."""
        try:
            own = token_file.own_entry(token_file.read(self._path))
        except FileNotFoundError:
            return "", f"{self._nothing}, and there is no token file {self._path}"
        except token_file.TokenFileError as error:
            return "", f"{self._nothing}, and {error}"
        given = session.open_session(self._address, own.token, timeout_s)
        if given:
            return given, f"a session token, for the one of {own.name} in the token file {self._path}"
        at = self._address.target
        if given is None:
            return "", (
                f"{self._nothing}, and no server of this user on this machine listens at {at}, so the token file "
                f"{self._path} is not for it; for the server of another user, in a container or behind a forwarded "
                "port, give its own token"
            )
        return "", f"{self._nothing}, and the server at {at} does not know the one in the token file {self._path}"


def find_token(address: Address, given: str | None, *, encrypted: bool, admin: bool = False) -> Token:
    """The token for a server: as given, else that of the environment, else of this user's own file.

    That of the file is for this user's servers on this machine alone.

    Args:
        address: where the server is.
        given: by the caller; None for none.
        encrypted: whether nobody can read it on its way, or the caller has said that all may.
        admin: whether the file is that of the scopes `admin` and `host`, which programs are not given by default.

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
    if admin and os.path.lexists(token_file.admin_path(path)):
        path = token_file.admin_path(path)
    return OwnToken(address, path, nothing)


def _checked(given: str, field: str) -> str:
    if not isinstance(given, str) or not token_file.is_token(given):
        why = token_file.why_no_token(given)
        raise InvalidRequestError(
            f"{field} is no token: {why}; give 16 to 512 letters, digits and ._~+/=-, as the server's keeper has them "
            "from: shardcall token show",
            field=field,
        )
    return given
