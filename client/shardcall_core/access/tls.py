"""TLS certificates of a client, and the authorities that it trusts."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field

import grpc

from shardcall_core.access.addresses import Address
from shardcall_core.types.errors import InvalidParameterError

CA_VARIABLE = "SHARDCALL_CA_CERTIFICATE"

Pem = str | os.PathLike[str] | bytes
"""The path of a PEM file, or its content."""


@dataclass(frozen=True)
class Tls:
    """The encryption of a connection.

    Attributes:
        authority: the trusted authority, PEM; None for those that the system trusts.
        certificate: the client's certificate, PEM; None for none.
        key: the key of that certificate, PEM.
    """

    authority: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)

    def credentials(self) -> grpc.ChannelCredentials:
        """Returns the credentials for gRPC."""
        return grpc.ssl_channel_credentials(self.authority, self.key, self.certificate)


def find_tls(
    address: Address,
    tls: bool | None = None,
    ca_certificate: Pem | None = None,
    client_certificate: Pem | None = None,
    client_key: Pem | None = None,
) -> Tls | None:
    """Returns the encryption of a connection; None for a plain one.

    Args:
        tls: as for `shardcall.connect`, as are the others.
        ca_certificate: None for the value of the environment variable.
        client_certificate: requires ``client_key``.
        client_key: requires ``client_certificate``.

    Raises:
        InvalidParameterError: if arguments contradict each other, or a file is missing.
    """
    passed = [
        name for name, pem in (("ca_certificate", ca_certificate), ("client_certificate", client_certificate)) if pem
    ]
    if (client_certificate is None) != (client_key is None):
        missing = "client_key" if client_key is None else "client_certificate"
        raise InvalidParameterError(
            f"{missing} is missing; give client_certificate and client_key together", field=missing
        )
    if address.is_socket or tls is False:
        if passed or tls:
            why = "a Unix socket has no TLS" if address.is_socket else "tls is False"
            raise InvalidParameterError(
                f"{why}; leave out {' and '.join(passed or ['tls'])}", field=(passed or ["tls"])[0]
            )
        return None
    authority = ca_certificate or os.environ.get(CA_VARIABLE)
    if not (tls or authority or client_certificate):
        return None
    name = "ca_certificate" if ca_certificate else CA_VARIABLE
    return Tls(
        _checked_authority(name, authority),
        _read("client_certificate", client_certificate),
        _read("client_key", client_key),
    )


def _checked_authority(name: str, pem: Pem | None) -> bytes | None:
    authority = _read(name, pem)
    if authority is not None:
        try:
            ssl.create_default_context(cadata=authority.decode("ascii", "replace"))
        except ssl.SSLError:
            raise InvalidParameterError(
                f"{name} holds no certificate in PEM form; give the server's ca.pem", field=name
            ) from None
    return authority


def _read(name: str, pem: Pem | None) -> bytes | None:
    if pem is None or isinstance(pem, bytes):
        return pem
    if isinstance(pem, str) and pem.lstrip().startswith("-----BEGIN "):
        return pem.encode()
    try:
        with open(pem, "rb") as file:
            return file.read()
    except OSError as error:
        raise InvalidParameterError(
            f"{name} is {os.fspath(pem)!r}, which cannot be read: {error.strerror}; give the path of a PEM file",
            field=name,
        ) from None
