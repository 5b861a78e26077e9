"""The metadata of RPCs."""

from __future__ import annotations

import os
import sys

TIMEOUT_KEY = "shardcall-timeout"
REQUEST_ID_KEY = "shardcall-request-id"
AUTHORIZATION_KEY = "authorization"

Metadata = tuple[tuple[str, str], ...]


def new_request_id() -> str:
    """Returns a new request id, which retries of the RPC keep so that the server recognizes them."""
    return os.urandom(16).hex()


def rpc_metadata(timeout_s: float, request_id: str, token: str = "") -> Metadata:
    """Returns the metadata of one RPC.

    Args:
        timeout_s: the server's timeout in seconds.
        token: the token of the caller; empty for none.
    """
    return (TIMEOUT_KEY, f"{timeout_s:.6f}"), (REQUEST_ID_KEY, request_id), *authorization(token), *trace()


def authorization(token: str) -> Metadata:
    """Returns the metadata of a token; none for an empty one."""
    return ((AUTHORIZATION_KEY, f"Bearer {token}"),) if token else ()


def trace() -> Metadata:
    """Returns the caller's OpenTelemetry span, the parent of the server's; empty without one."""
    api = sys.modules.get("opentelemetry.trace")  # a caller that records spans has imported it
    if api is None:
        return ()
    context = api.get_current_span().get_span_context()
    if not context.is_valid:
        return ()
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    state = context.trace_state.to_header()
    return ("traceparent", parent), *((("tracestate", state),) if state else ())
