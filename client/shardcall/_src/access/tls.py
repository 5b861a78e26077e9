"""TLS: whom a client trusts, and what it shows of itself."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field

import grpc

from shardcall._src.access.addresses import Address
from shardcall._src.types.errors import InvalidParameterError

CA_VARIABLE = "SHARDCALL_CA_CERTIFICATE"

Pem = str | os.PathLike[str] | bytes
"""A file's path, or what such a file holds."""


@dataclass(frozen=True)
class Tls:
    """What a connection is encrypted with.

    Attributes:
        authority: who is trusted, PEM; None for those that the system trusts.
        certificate: the client's own, PEM; None for none.
        key: its key.
    """

    authority: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)

    def credentials(self) -> grpc.ChannelCredentials:
        """For gRPC."""
        return grpc.ssl_channel_credentials(self.authority, self.key, self.certificate)


def find_tls(
    address: Address,
    tls: bool | None = None,
    ca_certificate: Pem | None = None,
    client_certificate: Pem | None = None,
    client_key: Pem | None = None,
) -> Tls | None:
    """Returns what a connection is to be encrypted with; None for a plain one.

    Args:
        address: of the server.
        tls: as of `shardcall.connect`, as are the others.
        ca_certificate: None also looks into the environment.
        client_certificate: with ``client_key``.
        client_key: with ``client_certificate``.

    Raises:
        InvalidParameterError: some contradict each other, or a file is not there.
    """
    given = [
        name for name, pem in (("ca_certificate", ca_certificate), ("client_certificate", client_certificate)) if pem
    ]
    if (client_certificate is None) != (client_key is None):
        missing = "client_key" if client_key is None else "client_certificate"
        raise InvalidParameterError(
            f"{missing} is missing; give client_certificate and client_key together", field=missing
        )
    if address.is_socket or tls is False:
        if given or tls:
            why = "a Unix socket has no TLS" if address.is_socket else "tls is False"
            raise InvalidParameterError(
                f"{why}; leave out {' and '.join(given or ['tls'])}", field=(given or ["tls"])[0]
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
