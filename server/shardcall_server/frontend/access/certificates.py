"""TLS files of the server, which are reloaded when they change: certificate, key and the clients' authority."""

from __future__ import annotations

import datetime
import os
import threading

import grpc
import structlog
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from shardcall_core.wire.private_files import PrivateFileError, read_file
from shardcall_server.settings import Settings, SettingsError

_MAX_FILE_BYTES = 16 << 20
_Stamp = tuple[tuple[int, int, int], ...]
_PUBLIC = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


class Certificates:
    """The TLS files, reloaded when they change.

    A damaged or incomplete file is ignored: new connections use the previous certificate, and the log has one warning.

    Args:
        settings: settings with ``tls_cert`` and ``tls_key``.

    Attributes:
        path: the path of the server's certificate.

    Raises:
        SettingsError: a file cannot be read or is invalid, the key does not belong to the certificate, or other users
            can change a file or read the key.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.path = settings.tls_cert
        self._paths = [path for path in (settings.tls_cert, settings.tls_key, settings.tls_client_ca) if path]
        self._lock = threading.Lock()  # held while the files are read again; guards the next four
        self._seen = self._warned_of = _stamps(self._paths)
        self._current = self._read()
        self._generation = 0

    def server_credentials(self) -> grpc.ServerCredentials:
        """Returns credentials for one port, which check the files at every connection.

        Each port needs its own credentials, since each must report a change to gRPC once.
        """
        reported = self._generation

        def reload() -> grpc.ServerCertificateConfiguration | None:
            nonlocal reported
            with self._lock:
                self._reload_changed()
                if reported == self._generation:
                    return None
                reported = self._generation
                return self._current

        return grpc.dynamic_ssl_server_credentials(
            self._current,
            reload,  # type: ignore[arg-type]  # the stubs lack None, which means "no change"
            require_client_authentication=bool(self._settings.tls_client_ca),
        )

    def _reload_changed(self) -> None:
        """Reloads the files if they have changed and are complete."""
        try:
            stamps = _stamps(self._paths)
        except SettingsError:  # a file is being replaced
            return
        if stamps == self._seen:
            return
        try:
            self._current = self._read()
        except SettingsError as error:  # they may be readable the next time, unchanged
            if stamps != self._warned_of:
                structlog.get_logger().warning(
                    "invalid new certificate ignored; the previous one stays", error=str(error)
                )
            self._warned_of = stamps
            return
        self._seen = stamps
        self._generation += 1
        structlog.get_logger().info("certificate reloaded", path=self._settings.tls_cert)

    def _read(self) -> grpc.ServerCertificateConfiguration:
        settings = self._settings
        chain, key = _bytes_of("tls_cert", settings.tls_cert), _bytes_of("tls_key", settings.tls_key)
        certificate = _certificates("tls_cert", settings.tls_cert, chain)[0]
        _check_pair(settings, certificate, key)
        _warn_if_expired(settings.tls_cert, certificate)
        authority = None
        if settings.tls_client_ca:
            authority = _bytes_of("tls_client_ca", settings.tls_client_ca)
            _certificates("tls_client_ca", settings.tls_client_ca, authority)
        return grpc.ssl_server_certificate_configuration([(key, chain)], root_certificates=authority)


def connect_arguments(settings: Settings) -> str:
    """Returns the TLS arguments of ``shardcall.connect`` for this server; empty without TLS."""
    if not settings.tls_cert:
        return ""
    folder = os.path.dirname(settings.tls_cert)  # `shardcall certificates` writes the other files there, too
    authority, client = os.path.join(folder, "ca.pem"), os.path.join(folder, "client")
    arguments = f', ca_certificate="{authority if os.path.exists(authority) else "ca.pem"}"'
    if not settings.tls_client_ca:
        return arguments
    if os.path.exists(f"{client}.pem") and os.path.exists(f"{client}.key"):
        return f'{arguments}, client_certificate="{client}.pem", client_key="{client}.key"'
    return f"{arguments}, client_certificate=…, client_key=…"


def _stamps(paths: list[str]) -> _Stamp:
    """Returns the inode, modification time and size of each file."""
    stamps = []
    for path in paths:
        try:
            status = os.stat(path)
        except OSError as error:
            raise SettingsError(f"the TLS file {path!r} cannot be read: {error.strerror}") from None
        stamps.append((status.st_ino, status.st_mtime_ns, status.st_size))
    return tuple(stamps)


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
            f"setting {setting} is {path!r}, which has no complete certificate; use a file in PEM format, as "
            "`shardcall certificates` writes it"
        ) from None


def _check_pair(settings: Settings, certificate: x509.Certificate, key: bytes) -> None:
    try:
        public = load_pem_private_key(key, password=None).public_key()
    except (TypeError, ValueError):  # TypeError: it needs a password
        raise SettingsError(
            f"setting tls_key is {settings.tls_key!r}, which has no complete key, or one with a password; use a key "
            "in PEM format without a password"
        ) from None
    if public.public_bytes(*_PUBLIC) != certificate.public_key().public_bytes(*_PUBLIC):
        raise SettingsError(
            f"the key in {settings.tls_key!r} does not belong to the certificate in {settings.tls_cert!r}; "
            "use the two that were made together"
        )


def _warn_if_expired(path: str, certificate: x509.Certificate) -> None:
    expiry = certificate.not_valid_after_utc
    if expiry < datetime.datetime.now(datetime.UTC):
        structlog.get_logger().warning(
            "the certificate has expired; clients will refuse it", path=path, expired=expiry.isoformat()
        )
