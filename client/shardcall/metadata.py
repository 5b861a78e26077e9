"""What every RPC tells besides its message."""

from __future__ import annotations

import secrets

TIMEOUT_KEY = "shardcall-timeout"
REQUEST_ID_KEY = "shardcall-request-id"

Metadata = tuple[tuple[str, str], ...]


def rpc_metadata(timeout_s: float) -> Metadata:
    """The metadata of one RPC.

    gRPC sends the same when it repeats the RPC by itself, so the request id tells the server that it is one.

    Args:
        timeout_s: after which the server is to end it.
    """
    return (TIMEOUT_KEY, f"{timeout_s:.6f}"), (REQUEST_ID_KEY, secrets.token_hex(8))
