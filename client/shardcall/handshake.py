"""Why a connection did not come about, in a sentence that says what to do."""

from __future__ import annotations

import contextlib
import socket
import ssl

from shardcall.addresses import Address
from shardcall.tls import Tls

_PROBE_S = 1.0


def explain(details: str, address: Address, tls: Tls | None) -> str:
    """Says why TLS, or the lack of it, kept a connection from coming about; empty if that was not the reason.

    Args:
        details: gRPC's own words.
        address: of the server.
        tls: what the connection was to be encrypted with.
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
    if "Socket closed" in details or "Connection reset" in details:
        return _explain_end(address, tls)
    return ""


def _explain_end(address: Address, tls: Tls | None) -> str:
    """Why a server closed a connection without a word: asks it by one more."""
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
    return f"what listens at {address.target} closed the connection at once; it may have as many as it takes"


def _probe(address: Address) -> tuple[bool, bool]:
    """Whether a server speaks TLS, and whether it wants a certificate; trusts nobody and tells nothing."""
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
        # A server that is content speaks first. One that is not closes after the client's part of the handshake.
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            return speaks, not encrypted.recv(1)
        return speaks, True
    return speaks, False
