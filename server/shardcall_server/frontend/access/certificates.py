"""The server's certificate, its key, and the authority of its clients: files that may change while it serves."""

from __future__ import annotations

import datetime
import os
import threading

import grpc
import structlog
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from shardcall._src.wire.private_files import PrivateFileError, read_file
from shardcall_server.settings import Settings, SettingsError

_MAX_FILE_BYTES = 16 << 20
_Stamp = tuple[tuple[int, int, int], ...]
_PUBLIC = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


class Certificates:
    """The files of TLS, read again when they change.

    What is damaged or half written when it is read is not taken: connections go on with what was there
    before, and the log says so once.

    Args:
        settings: with ``tls_cert`` and ``tls_key``.

    Attributes:
        path: of the server's certificate.

    Raises:
        SettingsError: a file cannot be read or is not what it should be, the key is not the certificate's, or
            other users may change a file or read the key.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.path = settings.tls_cert
        self._paths = [path for path in (settings.tls_cert, settings.tls_key, settings.tls_client_ca) if path]
        self._lock = threading.Lock()
        self._seen = _stamps(self._paths)
        self._current = self._read()
        self._generation = 0

    def server_credentials(self) -> grpc.ServerCredentials:
        """What gRPC serves one port with; it asks for the files' news at every connection.

        Each port needs its own: gRPC takes what is there at first once only.
        """
        taken = self._generation

        def news() -> grpc.ServerCertificateConfiguration | None:
            nonlocal taken
            with self._lock:
                self._look()
                if taken == self._generation:
                    return None
                taken = self._generation
                return self._current

        return grpc.dynamic_ssl_server_credentials(
            self._current,
            news,  # type: ignore[arg-type]  # None is "no change", which the stubs do not say
            require_client_authentication=bool(self._settings.tls_client_ca),
        )

    def _look(self) -> None:
        """Takes what the files hold if they have changed since the last look and are whole."""
        try:
            stamps = _stamps(self._paths)
        except SettingsError:  # between the removal of a file and the coming of the next
            return
        if stamps == self._seen:
            return
        self._seen = stamps
        try:
            self._current = self._read()
        except SettingsError as error:
            structlog.get_logger().warning("the new certificate is not taken, the last one stays", why=str(error))
            return
        self._generation += 1
        structlog.get_logger().info("certificate taken anew", path=self._settings.tls_cert)

    def _read(self) -> grpc.ServerCertificateConfiguration:
        settings = self._settings
        chain, key = _bytes_of("tls_cert", settings.tls_cert), _bytes_of("tls_key", settings.tls_key)
        certificate = _certificates("tls_cert", settings.tls_cert, chain)[0]
        _check_pair(settings, certificate, key)
        _warn_of_end(settings.tls_cert, certificate)
        authority = None
        if settings.tls_client_ca:
            authority = _bytes_of("tls_client_ca", settings.tls_client_ca)
            _certificates("tls_client_ca", settings.tls_client_ca, authority)
        return grpc.ssl_server_certificate_configuration([(key, chain)], root_certificates=authority)


def connect_arguments(settings: Settings) -> str:
    """What TLS adds to a call of ``shardcall.connect``, for people to copy; empty without it."""
    if not settings.tls_cert:
        return ""
    folder = os.path.dirname(settings.tls_cert)  # where `shardcall certificates` puts the others too
    authority, client = os.path.join(folder, "ca.pem"), os.path.join(folder, "client")
    told = f', ca_certificate="{authority if os.path.exists(authority) else "ca.pem"}"'
    if not settings.tls_client_ca:
        return told
    if os.path.exists(f"{client}.pem") and os.path.exists(f"{client}.key"):
        return f'{told}, client_certificate="{client}.pem", client_key="{client}.key"'
    return f"{told}, client_certificate=…, client_key=…"


def _stamps(paths: list[str]) -> _Stamp:
    """What of each file changes when it is written or replaced."""
    found = []
    for path in paths:
        try:
            now = os.stat(path)
        except OSError as error:
            raise SettingsError(f"the file {path!r} of TLS cannot be read: {error.strerror}") from None
        found.append((now.st_ino, now.st_mtime_ns, now.st_size))
    return tuple(found)


def _bytes_of(setting: str, path: str) -> bytes:
    try:
        return read_file(path, _MAX_FILE_BYTES, is_secret=setting == "tls_key", allow_sticky=True)
    except (OSError, PrivateFileError) as error:
        raise SettingsError(f"setting {setting} is {path!r}, which cannot be read: {error.strerror}") from None


def _certificates(setting: str, path: str, pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise SettingsError(
            f"setting {setting} is {path!r}, which holds no whole certificate; give a file in PEM form, as "
            "`shardcall certificates` writes them"
        ) from None


def _check_pair(settings: Settings, certificate: x509.Certificate, key: bytes) -> None:
    try:
        public = load_pem_private_key(key, password=None).public_key()
    except (TypeError, ValueError):  # TypeError: it wants a password
        raise SettingsError(
            f"setting tls_key is {settings.tls_key!r}, which holds no whole key, or one with a password; give one in "
            "PEM form without"
        ) from None
    if public.public_bytes(*_PUBLIC) != certificate.public_key().public_bytes(*_PUBLIC):
        raise SettingsError(
            f"the key in {settings.tls_key!r} is not that of the certificate in {settings.tls_cert!r}; "
            "give the two that were made together"
        )


def _warn_of_end(path: str, certificate: x509.Certificate) -> None:
    ends = certificate.not_valid_after_utc
    if ends < datetime.datetime.now(datetime.UTC):
        structlog.get_logger().warning(
            "the certificate has expired; clients will refuse it", path=path, ended=ends.isoformat()
        )
