"""Connecting to a server."""

from __future__ import annotations

import grpc

from shardcall.addresses import Address, parse_address
from shardcall.channel import DEFAULT_MESSAGE_BYTES, open_channel
from shardcall.client import Client, ask_server_info
from shardcall.deadline import deadline
from shardcall.errors import ServerUnavailableError, ShardcallError
from shardcall.server_info import ServerInfo
from shardcall.transport import Transport

CONNECT_TIMEOUT_S = 5.0
_LARGEST_MESSAGE_BYTES = 2**31 - 1
_SILENT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
_NO_SHARDCALL = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)


def connect(address: str, *, connect_timeout: float = CONNECT_TIMEOUT_S) -> Client:
    """Connects to a server, and asks it at once what it is.

    Args:
        address: ``"host:port"``, or ``"unix:/path/to/socket"``.
        connect_timeout: seconds within which the server must have answered.

    Returns:
        A client, to be used as a context manager or closed by `Client.close`.

    Raises:
        InvalidRequestError: if the address is none.
        ServerUnavailableError: if no server answers, or its mesh is not ready.
    """
    where = parse_address(address)
    transport, info = _ask(where, DEFAULT_MESSAGE_BYTES, connect_timeout)
    if info.limits.max_message_bytes > DEFAULT_MESSAGE_BYTES:
        transport.close()
        transport, info = _ask(where, min(info.limits.max_message_bytes, _LARGEST_MESSAGE_BYTES), connect_timeout)
    return Client(transport, info)


def _ask(where: Address, message_bytes: int, timeout_s: float) -> tuple[Transport, ServerInfo]:
    until = deadline(timeout_s, 0)
    transport = Transport(open_channel(where, message_bytes), where.target)
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
