"""Connections to servers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import grpc

from shardcall._src.display.meters import Meters
from shardcall._src.display.progress import Listener
from shardcall._src.rpc.deadline import deadline_after
from shardcall._src.rpc.retries import NO_RETRIES, Retries
from shardcall._src.rpc.servers import ServerEndpoint, ServerList
from shardcall._src.rpc.transport import Transport
from shardcall._src.services.implicit_gets import ImplicitGet
from shardcall._src.transfer.shared_memory_client import open_shared_memory
from shardcall.client import Client, ask_server_info
from shardcall_core.access.addresses import Address, default_address, parse_address
from shardcall_core.access.channel import DEFAULT_MESSAGE_BYTES, open_channel
from shardcall_core.access.handshake import explain, no_answer
from shardcall_core.access.tls import Pem, Tls, find_tls
from shardcall_core.access.token import Token, find_token
from shardcall_core.types.errors import InvalidRequestError, ServerUnavailableError, ShardcallError
from shardcall_core.types.flags import checked_flag
from shardcall_core.types.server_info import ServerInfo
from shardcall_core.types.tracebacks import level_of_caller, shortened
from shardcall_core.wire.variables import report_unknown

CONNECT_TIMEOUT_S = 5.0
_LARGEST_MESSAGE_BYTES = 2**31 - 1
_NO_SHARDCALL = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)


@dataclass(frozen=True)
class _Target:
    """A server to connect to.

    Attributes:
        where: its address.
        encryption: the TLS of its connections; None for none.
        token: the token of its RPCs.
    """

    where: Address
    encryption: Tls | None
    token: Token

    def server(self, message_bytes: int) -> ServerEndpoint:
        """Returns the server with connections whose messages have at most these bytes."""
        return ServerEndpoint(
            self.where.target, partial(open_channel, self.where, message_bytes, self.encryption), self.token
        )


@shortened
def connect(
    address: str | Sequence[str] | None = None,
    *,
    token: str | None = None,
    admin: bool = False,
    tls: bool | None = None,
    ca_certificate: Pem | None = None,
    client_certificate: Pem | None = None,
    client_key: Pem | None = None,
    connect_timeout: float = CONNECT_TIMEOUT_S,
    shared_memory: bool = True,
    call_stream: bool = True,
    progress: bool | Listener = True,
    retries: bool = True,
    synchronous: bool = False,
    implicit_get: ImplicitGet = "allow",
    fuse: bool = True,
    show_values: bool = True,
) -> Client:
    """Connects to a server and reads its description.

    Args:
        address: ``"host:port"``, or ``"unix:/path/to/socket"``; None for the environment variable
            ``SHARDCALL_ADDRESS``, else ``"localhost:8470"``. A list of addresses connects to the first server that is
            ready; when it drains or is gone, later calls go to the next one (docs/operating.md).
        token: the token of the caller; None for the environment variable ``SHARDCALL_TOKEN``, else, for a server of
            this user on this machine, the user's token file, whose token is exchanged for a session token at a private
            socket and never sent itself.
        admin: where ``token`` and ``SHARDCALL_TOKEN`` are not given, use this user's token of all scopes, which
            `Client.usage` and `Client.profile` require, for a server of this user on this machine.
        tls: encrypt the connection; None does so if a certificate is set. True alone trusts the authorities that the
            system trusts. False is required to send a token unencrypted to another machine.
        ca_certificate: the authority to trust, the path of a PEM file or its content; None for the environment variable
            ``SHARDCALL_CA_CERTIFICATE``.
        client_certificate: the client's certificate, if the server requires one; a path or content, too.
        client_key: the key of that certificate; a path or content, too.
        connect_timeout: the seconds within which the server must answer, each of a list.
        shared_memory: pass large arrays through memory shared with a server on this host, if possible. Results are then
            in shared memory: a forked process and this one see each other's changes to them. A list of addresses
            shares none.
        call_stream: send small calls through one long-lived stream, if the server accepts one, instead of one RPC each.
        progress: a function called with a `shardcall.Progress` of uploads, downloads, compilations and calls that a
            thread waits for, up to ten times a second; True for a bar after a second, on a terminal or in a notebook;
            False for none.
        retries: retry calls, up to four times and within their timeout, that the server refused temporarily or whose
            connection was lost before an answer, and once those that a restart of the mesh ended.
        synchronous: have `Client.submit` wait for each call, so that its errors are raised in its line.
        implicit_get: ``"error"`` refuses to copy an array from the mesh for ``numpy.asarray`` and what calls it; by
            ``"allow"`` such copies are counted (`Client.statistics`).
        fuse: record calls of `Client.submit`, operators and functions of arrays, and send those that depend on each
            other as one program; False sends every call at once and by itself, and so does ``synchronous``.
        show_values: have ``print``, `repr` and notebooks show the values of arrays on the mesh, and those at the edges
            of large ones. They wait for them 2 s at most, `repr` in a script 0.2 s. False shows where arrays are.

    Returns:
        A client, to be used as a context manager or closed by `Client.close`.

    Raises:
        InvalidRequestError: if the address or the token is malformed.
        InvalidParameterError: if the arguments of TLS contradict each other, a file is missing, or a token would be
            sent unencrypted to another machine.
        AccessDeniedError: if the server does not know the token, or requires one and there is none.
        ServerUnavailableError: if no server answers, TLS fails, or the mesh was never ready.

    Example:
        >>> with sc.connect(client.address) as other:
        ...     other.put(np.arange(4.0)).sum().item()
        6.0
    """
    admin, shared_memory, call_stream, retries, synchronous, fuse, show_values = (
        checked_flag(name, value)
        for name, value in (
            ("admin", admin),
            ("shared_memory", shared_memory),
            ("call_stream", call_stream),
            ("retries", retries),
            ("synchronous", synchronous),
            ("fuse", fuse),
            ("show_values", show_values),
        )
    )
    report_unknown(lambda sentence: warnings.warn(sentence, stacklevel=level_of_caller()))
    targets = []
    for where in _addresses(address):
        encryption = find_tls(where, tls, ca_certificate, client_certificate, client_key)
        shown = find_token(where, token, encrypted=encryption is not None or tls is False, admin=admin)
        targets.append(_Target(where, encryption, shown))
    meters = Meters(progress)

    def begin(message_bytes: int, among: Sequence[_Target], current: int = 0) -> Transport:
        servers = ServerList([target.server(message_bytes) for target in among], current)
        return Transport(servers, meters, Retries() if retries else NO_RETRIES)

    current, transport, info = _first_ready(partial(begin, DEFAULT_MESSAGE_BYTES), targets, connect_timeout)
    if info.limits.max_message_bytes > DEFAULT_MESSAGE_BYTES or len(targets) > 1:
        transport.close()
        longest = min(max(info.limits.max_message_bytes, DEFAULT_MESSAGE_BYTES), _LARGEST_MESSAGE_BYTES)
        if len(targets) > 1:  # whose limits are not known yet
            longest = _LARGEST_MESSAGE_BYTES
        transport, info = _ask(begin(longest, targets, current), targets[current], connect_timeout)
    is_local = shared_memory and len(targets) == 1
    shared = open_shared_memory(transport, info.limits, targets[0].where) if is_local else None
    return Client(
        transport,
        info,
        shared,
        call_stream=call_stream,
        synchronous=synchronous,
        implicit_get=implicit_get,
        fuse=fuse,
        show_values=show_values,
    )


def _addresses(address: str | Sequence[str] | None) -> list[Address]:
    """Returns the addresses of the servers, of which there is at least one."""
    if address is None or isinstance(address, str):
        return [parse_address(default_address() if address is None else address)]
    if not isinstance(address, Sequence) or not address:
        raise InvalidRequestError(
            f'{address!r} is no address of a server and no list of them; give "host:port", or ["a:8470", "b:8470"]',
            field="address",
        )
    return [parse_address(one) for one in address]


def _first_ready(
    begin: Callable[[Sequence[_Target]], Transport], targets: Sequence[_Target], timeout_s: float
) -> tuple[int, Transport, ServerInfo]:
    """Returns the index of the first server that is ready, a connection to it and its description.

    Raises:
        ShardcallError: of the server, if there is one; as soon as one refuses the caller.
        ServerUnavailableError: if none is ready.
    """
    reasons = []
    for index, target in enumerate(targets):
        try:
            return index, *_ask(begin([target]), target, timeout_s)
        except ServerUnavailableError as error:
            if len(targets) == 1:
                raise
            reasons.append(error.message)
    raise ServerUnavailableError(f"none of {len(targets)} servers is ready: {'; '.join(reasons)}")


def _ask(transport: Transport, target: _Target, timeout_s: float) -> tuple[Transport, ServerInfo]:
    try:
        return transport, ask_server_info(transport, deadline_after(timeout_s, 0))
    except ShardcallError as error:
        transport.close()
        raise explained(error, target.where, target.encryption, timeout_s) from None
    except BaseException:
        transport.close()
        raise


def explained(error: ShardcallError, where: Address, encryption: Tls | None, timeout_s: float) -> ShardcallError:
    """Returns the error of a connection's first RPC, with advice."""
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
