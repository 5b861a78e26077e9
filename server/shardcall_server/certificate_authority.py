"""A private certificate authority: certificates for a server and its clients, and their renewal."""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from shardcall_core.wire.private_files import PrivateFileError, open_private_folder, read_file, write_file

CA, SERVER, CLIENT = "ca", "server", "client"
_ALWAYS = ("localhost", "127.0.0.1", "::1")
_NAME = re.compile(r"(\*\.)?([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.?)+")
_CA_DAYS = 3650
_MAX_KEY_BYTES = 1 << 20
_CLOCK_SKEW = datetime.timedelta(minutes=5)


class CertificatesError(ValueError):
    """Certificates cannot be made; the message contains the cause and the remedy."""


def make_authority(folder: Path, hosts: Sequence[str], days: int, *, replace: bool = False) -> None:
    """Makes an authority, and certificates for a server and a client signed by it.

    The folder then contains ``ca``, ``server`` and ``client``, each as a certificate (``.pem``) and a key (``.key``).

    Args:
        folder: the target folder; created as a private folder if it is missing.
        hosts: names and addresses under which clients reach the server, besides localhost.
        days: the validity of the server's and the client's certificate, in days.
        replace: replace an existing authority.

    Raises:
        CertificatesError: an authority exists already, a host is invalid, or the folder cannot be used.
    """
    names = _names(hosts)
    _prepare(folder)
    existing = sorted(path.name for path in _files(folder) if os.path.lexists(path))
    if existing and not replace:
        raise CertificatesError(
            f"{folder} contains {', '.join(existing)} already; add --renew for new certificates by that authority, or "
            "--force for a new authority, which no client trusts yet"
        )
    key = _new_key()
    subject = _common_name("shardcall authority")
    builder = _builder(subject, subject, key, _CA_DAYS).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), True
    )
    certificate = builder.add_extension(_usage(signs_certificates=True), True).sign(key, hashes.SHA256())
    _write(folder, CA, key, certificate)
    _issue(folder, key, certificate, names, days)


def renew(folder: Path, hosts: Sequence[str], days: int) -> None:
    """Makes new certificates for a server and a client, signed by an existing authority.

    Args:
        folder: the folder of `make_authority`.
        hosts: as for `make_authority`; if empty, the hosts of the replaced certificate.
        days: as for `make_authority`.

    Raises:
        CertificatesError: there is no authority, or a host is invalid.
    """
    try:
        key = load_pem_private_key(read_file(folder / f"{CA}.key", _MAX_KEY_BYTES), password=None)
        certificate = x509.load_pem_x509_certificate((folder / f"{CA}.pem").read_bytes())
        names = _names(hosts) if hosts else _names_of(folder / f"{SERVER}.pem")
    except OSError as error:
        raise CertificatesError(
            f"the authority in {folder} cannot be read: {error.strerror}; leave out --renew to make one"
        ) from None
    except PrivateFileError as error:
        raise CertificatesError(f"the authority cannot be used: {error}") from None
    except (TypeError, ValueError):
        raise CertificatesError(f"the authority in {folder} is damaged; replace it with --force") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificatesError(f"the authority in {folder} was not made by this command; use another folder")
    _prepare(folder)
    _issue(folder, key, certificate, names, days)


def host_of(certificate: Path) -> str | None:
    """Returns the first name or address in a certificate that is not of the local machine; None without one."""
    try:
        names = _names_of(certificate)
    except (OSError, ValueError, x509.ExtensionNotFound):
        return None
    hosts = [str(name.value) for name in names if isinstance(name, x509.DNSName | x509.IPAddress)]
    return next((host for host in hosts if host not in _ALWAYS and not host.startswith("*")), None)


def _issue(
    folder: Path, key: ec.EllipticCurvePrivateKey, authority: x509.Certificate, names: list[x509.GeneralName], days: int
) -> None:
    for role, purpose in ((SERVER, ExtendedKeyUsageOID.SERVER_AUTH), (CLIENT, ExtendedKeyUsageOID.CLIENT_AUTH)):
        role_key = _new_key()
        builder = _builder(_common_name(f"shardcall {role}"), authority.subject, role_key, days)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        builder = builder.add_extension(_usage(signs_certificates=False), True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
        builder = builder.add_extension(issuer, False)
        if role == SERVER:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), False)
        _write(folder, role, role_key, builder.sign(key, hashes.SHA256()))


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    return [_general_name(host) for host in dict.fromkeys((*_ALWAYS, *hosts))]


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        pass
    if not _NAME.fullmatch(host):
        raise CertificatesError(
            f"host {host!r} is neither a name nor an address; use the host that clients connect to, without the port, "
            "such as gpu1.example.org or 192.0.2.7"
        )
    return x509.DNSName(host)


def _names_of(path: Path) -> list[x509.GeneralName]:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    return list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)


def _prepare(folder: Path) -> None:
    """Makes the folder, or checks that it is private."""
    try:
        os.close(open_private_folder(folder))
    except (OSError, PrivateFileError) as error:
        raise CertificatesError(f"keys cannot be stored in {folder}: {error.strerror}; choose another folder") from None


def _files(folder: Path) -> Iterator[Path]:
    return (folder / f"{role}.{suffix}" for role in (CA, SERVER, CLIENT) for suffix in ("pem", "key"))


def _write(folder: Path, role: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    """Writes each file atomically; a server that reads between the two keeps its previous certificate."""
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for name, data, mode in (
        (f"{role}.key", secret, 0o600),
        (f"{role}.pem", certificate.public_bytes(Encoding.PEM), 0o644),
    ):
        try:
            write_file(folder / name, data, mode=mode, sync=True)
        except (OSError, PrivateFileError) as error:
            raise CertificatesError(
                f"{folder / name} cannot be written: {error.strerror}; choose another folder"
            ) from None
