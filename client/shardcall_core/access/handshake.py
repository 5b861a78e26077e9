"""Explanations of failed connections, with advice."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl

from shardcall_core.access.addresses import Address
from shardcall_core.access.tls import Tls

_PROBE_S = 1.0
_SYSTEM_ERROR = re.compile(r"Failed to connect to remote host: ([^;{]+)")
_UNKNOWN_NAME = re.compile(r"(?:errors resolving|DNS resolution failed for) (\S+?):?(?: |$)")


def explain(details: str, address: Address, tls: Tls | None) -> str:
    """Returns the reason why a connection failed, with advice; empty if nothing listens or the reason is unknown.

    Args:
        details: the details of gRPC's status.
        tls: the encryption of the connection.
    """
    target = address.target
    if "CERTIFICATE_VERIFY_FAILED: certificate has expired" in details:
        return f"the certificate of {target} has expired; renew it there: shardcall certificates DIR --renew"
    if "CERTIFICATE_VERIFY_FAILED" in details:
        trusted = "the authority given" if tls and tls.authority else "an authority that this system trusts"
        return f"the certificate of {target} is not by {trusted}; give the server's ca.pem as ca_certificate="
    if "Hostname Verification Check failed" in details:
        return (
            f"the certificate of {target} is for other names; connect to one of them, or make it anew there: "
            f"shardcall certificates DIR --renew --host {address.host}"
        )
    if "WRONG_VERSION_NUMBER" in details:
        return f"the server at {target} speaks no TLS; leave out ca_certificate= and tls=, or start it with --tls-cert"
    if "Failed to create security handshaker" in details:
        return (
            "client_certificate and client_key are not two PEM files that were made together; give those of one client"
        )
    if unknown := _UNKNOWN_NAME.search(details):
        if address.host not in unknown[1]:
            return (
                f"no machine is known here as {unknown[1]!r}, the proxy that grpc_proxy, https_proxy or http_proxy "
                f"names; mend that variable, or add {address.host} to no_proxy"
            )
        return f"no machine is known here as {address.host!r}, or no name server answers; see whether the name is right"
    if "Failed parsing HTTP/2" in details or "http1.x server" in details or "missing selected ALPN" in details:
        return f"what listens at {target} speaks no gRPC; see whether the port is a shardcall server's"
    # gRPC ends a TLS handshake that takes too long with the second of these messages.
    if "timed out" in details or "Endpoint closing" in details:
        return (
            f"nothing answered from {target} in time; see whether the address is right: what is there may hang, or a "
            "firewall be in between"
        )
    if "Socket closed" in details or "Connection reset" in details:
        return _explain_closing(address, tls)
    return ""


def no_answer(details: str, address: Address) -> str:
    """Returns the message for an address at which no server answers, with the system's reason.

    Args:
        details: the details of gRPC's status, which `explain` does not know.
    """
    if "Connection refused" in details:
        why = ": nobody listens there" if address.is_socket else ": the port is closed"
    else:
        inner = _SYSTEM_ERROR.search(details)
        why = f": {inner[1].strip()}" if inner else ""
    return f"no server answers at {address.target}{why}; start one with: shardcall serve"


def _explain_closing(address: Address, tls: Tls | None) -> str:
    """Returns the reason why a server closed a connection, found by another connection."""
    speaks_tls, wants_certificate = _probe(address)
    if speaks_tls and tls is None:
        return f'the server at {address.target} speaks TLS; give its authority: ca_certificate="ca.pem", or tls=True'
    if wants_certificate and tls and tls.certificate:
        return (
            f"the server at {address.target} refuses this client certificate; give one by the authority that it "
            "trusts, and one that has not expired"
        )
    if wants_certificate:
        return f"the server at {address.target} wants a client certificate; give client_certificate= and client_key="
    return (
        f"what listens at {address.target} closed the connection at once; see whether the port is a shardcall "
        "server's, which does so when it has as many as it takes (--max-connections)"
    )


def _probe(address: Address) -> tuple[bool, bool]:
    """Returns whether a server uses TLS, and whether it requires a certificate; sends nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    speaks = False
    with (
        contextlib.suppress(OSError),
        socket.create_connection((address.host, address.port), _PROBE_S) as plain,
        context.wrap_socket(plain, server_hostname=address.host) as encrypted,
    ):
        speaks = True
        # A server that accepts the client sends first; one that does not closes after the client's handshake.
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            return speaks, not encrypted.recv(1)
        return speaks, True
    return speaks, False
