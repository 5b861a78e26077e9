"""Checks of this machine: packages, variables, the address, the port, TLS and the token."""

from __future__ import annotations

import os
import platform
import socket
import ssl
import time
from collections.abc import Iterator

from shardcall._src.local.server_packages import missing_packages
from shardcall.cli.checks import Check, failed, ok, skipped, version, warning
from shardcall.cli.connecting import Connection
from shardcall_core.access.addresses import Address
from shardcall_core.access.option_names import as_options
from shardcall_core.access.tls import Tls
from shardcall_core.access.token import find_token
from shardcall_core.wire.variables import shadowed, unknown

_NEEDED = ("numpy", "ml_dtypes", "grpcio", "protobuf")
_MISCOMPILING = frozenset({"0.10.2"})
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
ACCESS_FIX = "on the server's machine `shardcall token show` prints one; set SHARDCALL_TOKEN here"
_NO_TLS_FIX = "connect without --tls and --ca-certificate, or start the server with --tls-cert and --tls-key"
_UNTRUSTED_FIX = "give the authority of the server: --ca-certificate ca.pem, the ca.pem of `shardcall certificates`"
_REFUSED_FIXES = {  # by X509_V_ERR of OpenSSL
    9: "set the clocks of both machines",
    10: "renew it on the server's machine: shardcall certificates FOLDER --renew",
    62: "connect by a name in it, or add this one there: shardcall certificates FOLDER --renew --host NAME",
    64: "connect by a name in it, or add this one there: shardcall certificates FOLDER --renew --host NAME",
}
# What gRPC accepts. Python's defaults are stricter: from 3.13 on in what a certificate says, before in who signed it.
_FLAGS_OF_GRPC = ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_TRUSTED_FIRST
_DAY_S = 86400
_SOON_DAYS = 14


def packages() -> Iterator[Check]:
    """Checks the installed packages."""
    installed = {name: version(name) for name in _NEEDED}
    text = ", ".join(f"{name} {number}" for name, number in installed.items() if number)
    yield ok("client", f"shardcall {version('shardcall')}, Python {platform.python_version()}, {text}")
    if missing := missing_packages():
        yield skipped("server packages", f"not installed here: {', '.join(missing)}; pip install 'shardcall[server]'")
        return
    jaxlib = version("jaxlib")
    if jaxlib in _MISCOMPILING:
        yield failed(
            "server packages",
            f"jaxlib {jaxlib} miscompiles kernels on CPU",
            "pip install 'shardcall[server]' installs a version that does not",
        )
    elif version("jax") != jaxlib:
        yield warning(
            "server packages", f"jax is {version('jax')} and jaxlib {jaxlib}", "pip install 'shardcall[server]'"
        )
    else:
        yield ok("server packages", f"jax {version('jax')}, jaxlib {jaxlib}")


def variables(where: Address) -> Iterator[Check]:
    """Checks the environment variables."""
    for sentence in (*unknown(os.environ), *shadowed(os.environ)):
        problem, _, fix = sentence.partition("; ")
        yield warning("environment", problem, fix or "unset it")
    proxies = [name for name in _PROXIES if os.environ.get(name) or os.environ.get(name.upper())]
    if proxies and not where.is_local:
        yield warning(
            "environment",
            f"gRPC connects to {where.target} through the proxy of {proxies[0]}",
            f"add {where.host} to no_proxy if the proxy does not pass gRPC",
        )


def port(where: Address, timeout_s: float) -> Iterator[Check]:
    """Checks that something listens at the address."""
    name = f"port of {where.target}"
    begin = time.perf_counter()
    try:
        if where.is_socket:
            path = where.target.removeprefix("unix:").removeprefix("//")
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(timeout_s)
                connection.connect(path)
        else:
            socket.create_connection((where.host, where.port), timeout_s).close()
    except socket.gaierror as error:
        yield failed(name, f"no machine is known here as {where.host!r}: {error.strerror}", "check the name")
    except TimeoutError:
        yield failed(name, f"nothing answered within {timeout_s:g} s", "check the address, and firewalls in between")
    except OSError as error:
        fix = "start a server there: shardcall serve" + ("" if where.is_local else " --host 0.0.0.0 (with TLS)")
        yield failed(name, error.strerror or str(error), fix)
    else:
        yield ok(name, f"open, {1e3 * (time.perf_counter() - begin):.1f} ms to connect")


def certificates(where: Address, encryption: Tls | None) -> Iterator[Check]:
    """Checks the server's certificate: its authority, its names and its end."""
    if encryption is None:
        if where.is_local:
            yield skipped("certificates", "no TLS, which this machine's own server does not need")
        else:
            yield warning("certificates", "the connection is not encrypted", "make some: shardcall certificates FOLDER")
        return
    authority = encryption.authority.decode("ascii", "replace") if encryption.authority else None
    context = ssl.create_default_context(cadata=authority)
    context.verify_flags = _FLAGS_OF_GRPC
    context.set_alpn_protocols(["h2"])
    try:
        with (
            socket.create_connection((where.host, where.port), 5.0) as plain,
            context.wrap_socket(plain, server_hostname=where.host) as encrypted,
        ):
            end = ssl.cert_time_to_seconds(str((encrypted.getpeercert() or {}).get("notAfter")))
    except ssl.SSLCertVerificationError as error:
        fix = _REFUSED_FIXES.get(error.verify_code, _UNTRUSTED_FIX).replace("NAME", where.host)
        yield failed("certificates", f"the server's is not accepted: {error.verify_message}", fix)
        return
    except ssl.SSLError as error:
        yield failed("certificates", f"what listens there does not speak TLS: {error.reason or error}", _NO_TLS_FIX)
        return
    except OSError as error:
        yield failed("certificates", f"no TLS connection: {error.strerror or error}", _NO_TLS_FIX)
        return
    days = (end - time.time()) / _DAY_S
    if days < _SOON_DAYS:
        yield warning("certificates", f"it ends in {days:.0f} days", "renew: shardcall certificates FOLDER --renew")
    else:
        yield ok("certificates", f"trusted, for {where.host}, {days:.0f} days left")


def token(connection: Connection) -> Iterator[Check]:
    """Checks that there is a token to show."""
    encrypted = connection.encryption is not None or connection.tls is False
    held = find_token(connection.where, None, encrypted=encrypted)
    if held.show(connection.timeout):
        yield ok("token", as_options(held.advice))
    else:
        yield warning("token", as_options(held.advice), ACCESS_FIX)
