"""Connecting to a server."""

from __future__ import annotations

import warnings
from functools import partial

import grpc

from shardcall._src.access.addresses import Address, parse_address
from shardcall._src.access.channel import DEFAULT_MESSAGE_BYTES, open_channel
from shardcall._src.access.handshake import explain, no_answer
from shardcall._src.access.tls import Pem, Tls, find_tls
from shardcall._src.access.token import find_token
from shardcall._src.display.meters import Meters
from shardcall._src.display.progress import Listener
from shardcall._src.rpc.deadline import deadline
from shardcall._src.rpc.retries import NO_RETRIES, Retries
from shardcall._src.rpc.transport import Transport
from shardcall._src.transfer.shared_memory_client import open_shared_memory
from shardcall._src.types.errors import ServerUnavailableError, ShardcallError
from shardcall._src.types.server_info import ServerInfo
from shardcall._src.wire.variables import report_unknown
from shardcall.client import Client, ask_server_info

CONNECT_TIMEOUT_S = 5.0
_LARGEST_MESSAGE_BYTES = 2**31 - 1
_NO_SHARDCALL = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)


def connect(
    address: str,
    *,
    token: str | None = None,
    tls: bool | None = None,
    ca_certificate: Pem | None = None,
    client_certificate: Pem | None = None,
    client_key: Pem | None = None,
    connect_timeout: float = CONNECT_TIMEOUT_S,
    shared_memory: bool = True,
    progress: bool | Listener = True,
    retries: bool = True,
) -> Client:
    """Connects to a server, and asks it at once what it is.

    Args:
        address: ``"host:port"``, or ``"unix:/path/to/socket"``.
        token: tells the server who calls; None for the one that the environment variable ``SHARDCALL_TOKEN`` holds,
            else, for a server of this user on this machine, the one of the user's own token file, which is exchanged
            for a session token at a private socket and never sent itself.
        tls: whether to encrypt; None for: where a certificate is given. True alone trusts whom the system trusts. False
            is what a token takes that is to go unencrypted to another machine.
        ca_certificate: of the authority to trust, the path of a PEM file or what it holds; None for the value of the
            environment variable ``SHARDCALL_CA_CERTIFICATE``, likewise.
        client_certificate: where the server asks for one, likewise.
        client_key: its key, likewise.
        connect_timeout: seconds within which the server must have answered.
        shared_memory: whether large arrays may go through memory shared with a server on this host, where that
            can be. Results then lie in it: a process that this one forks sees what is written to them, and writes to
            this one's.
        progress: who is told of uploads, downloads and compilations: a function of a `shardcall.Progress`; True
            for a bar where one takes over a second and standard error is a terminal, or in a notebook; False.
        retries: whether calls are repeated, four times at most and within their timeout, that the server refused for
            now or whose connection was lost before an answer came, and once those that a restart of the mesh ended.
            Those that failed in any other way never are.

    Returns:
        A client, to be used as a context manager or closed by `Client.close`.

    Raises:
        InvalidRequestError: if the address is none, or the token.
        InvalidParameterError: if the arguments of TLS contradict each other, a file is not there, or a token would go
            unencrypted to another machine without that having been asked for.
        AccessDeniedError: if the server does not know the token, or asks for one and none was found.
        ServerUnavailableError: if no server answers, TLS fails, or the mesh was never ready yet.
    """
    report_unknown(lambda sentence: warnings.warn(sentence, stacklevel=4))
    where = parse_address(address)
    encryption = find_tls(where, tls, ca_certificate, client_certificate, client_key)
    meters, shown = Meters(progress), find_token(where, token, encrypted=encryption is not None or tls is False)

    def begin(message_bytes: int) -> Transport:
        channel = partial(open_channel, where, message_bytes, encryption)
        return Transport(channel, where.target, meters, shown, Retries() if retries else NO_RETRIES)

    transport, info = _ask(begin(DEFAULT_MESSAGE_BYTES), where, encryption, connect_timeout)
    if info.limits.max_message_bytes > DEFAULT_MESSAGE_BYTES:
        transport.close()
        longest = min(info.limits.max_message_bytes, _LARGEST_MESSAGE_BYTES)
        transport, info = _ask(begin(longest), where, encryption, connect_timeout)
    return Client(transport, info, open_shared_memory(transport, info.limits, where) if shared_memory else None)


def _ask(
    transport: Transport, where: Address, encryption: Tls | None, timeout_s: float
) -> tuple[Transport, ServerInfo]:
    try:
        return transport, ask_server_info(transport, deadline(timeout_s, 0))
    except ShardcallError as error:
        transport.close()
        raise explained(error, where, encryption, timeout_s) from None
    except BaseException:
        transport.close()
        raise


def explained(error: ShardcallError, where: Address, encryption: Tls | None, timeout_s: float) -> ShardcallError:
    """The error of a first question to a server, in words that say what to do about it."""
    address = where.target
    if error.reason in ("MESH_NOT_READY", "SERVER_DRAINING"):
        message = f"the server at {address} is up and cannot serve now: {error.message}"
    elif error.reason == "DEADLINE_EXCEEDED":
        waited, _, _ = error.message.partition(";")
        message = (
            f"the server at {address} is up, but {waited}; wait longer (connect_timeout=), or see: shardcall status"
        )
    elif error.reason:
        return error
    elif refused := explain(error.metadata.get("grpc", ""), where, encryption):
        message = refused
    elif error.status is grpc.StatusCode.DEADLINE_EXCEEDED:
        message = (
            f"nothing answered from {address} within {timeout_s:g} s; see whether the address is right: what is there "
            "may hang, or a firewall be in between"
        )
    elif error.status is grpc.StatusCode.UNAVAILABLE:
        message = no_answer(error.metadata.get("grpc", ""), where)
    elif error.status is grpc.StatusCode.UNIMPLEMENTED:
        message = error.message
    elif error.status in _NO_SHARDCALL:
        message = f"what answers at {address} is no shardcall server: {error.message}"
    else:
        return error
    return ServerUnavailableError(
        message,
        reason=error.reason,
        metadata=error.metadata,
        status=error.status,
        timing=error.timing,
        retry_after_s=error.retry_after_s,
        request_id=error.request_id,
    )
