"""Connecting to a server."""

from __future__ import annotations

import grpc

from shardcall.addresses import Address, parse_address
from shardcall.channel import DEFAULT_MESSAGE_BYTES, open_channel
from shardcall.client import Client, ask_server_info
from shardcall.deadline import deadline
from shardcall.errors import ServerUnavailableError, ShardcallError
from shardcall.progress import Listener, Meters
from shardcall.server_info import ServerInfo
from shardcall.sharing import sharing
from shardcall.transport import Transport

CONNECT_TIMEOUT_S = 5.0
_LARGEST_MESSAGE_BYTES = 2**31 - 1
_SILENT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
_NO_SHARDCALL = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)


def connect(
    address: str,
    *,
    connect_timeout: float = CONNECT_TIMEOUT_S,
    shared_memory: bool = True,
    progress: bool | Listener = True,
) -> Client:
    """Connects to a server, and asks it at once what it is.

    Args:
        address: ``"host:port"``, or ``"unix:/path/to/socket"``.
        connect_timeout: seconds within which the server must have answered.
        shared_memory: whether large arrays may go through memory shared with a server on this host, where that
            can be.
        progress: who is told of uploads, downloads and compilations: a function of a `shardcall.Progress`; True
            for a bar where one takes over a second and standard error is a terminal, or in a notebook; False.

    Returns:
        A client, to be used as a context manager or closed by `Client.close`.

    Raises:
        InvalidRequestError: if the address is none.
        ServerUnavailableError: if no server answers, or its mesh is not ready.
    """
    where = parse_address(address)
    meters = Meters(progress)
    transport, info = _ask(where, DEFAULT_MESSAGE_BYTES, connect_timeout, meters)
    if info.limits.max_message_bytes > DEFAULT_MESSAGE_BYTES:
        transport.close()
        longest = min(info.limits.max_message_bytes, _LARGEST_MESSAGE_BYTES)
        transport, info = _ask(where, longest, connect_timeout, meters)
    return Client(transport, info, sharing(transport, info.limits, where) if shared_memory else None)


def _ask(where: Address, message_bytes: int, timeout_s: float, meters: Meters) -> tuple[Transport, ServerInfo]:
    until = deadline(timeout_s, 0)
    transport = Transport(open_channel(where, message_bytes), where.target, meters)
    try:
        return transport, ask_server_info(transport, until)
    except ShardcallError as error:
        transport.close()
        raise _explained(error, where.target, timeout_s) from None
    except BaseException:
        transport.close()
        raise


def _explained(error: ShardcallError, address: str, timeout_s: float) -> ShardcallError:
    if error.reason in ("MESH_NOT_READY", "SERVER_DRAINING"):
        message = f"the server at {address} is up and cannot serve now: {error.message}"
    elif error.reason:
        return error
    elif error.status in _SILENT:
        late = f" within {timeout_s:g} s" if error.status is grpc.StatusCode.DEADLINE_EXCEEDED else ""
        message = f"no server answers at {address}{late}; start one with: shardcall serve"
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
    )
