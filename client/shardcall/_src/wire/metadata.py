"""What every RPC tells besides its message."""

from __future__ import annotations

import secrets
import sys

TIMEOUT_KEY = "shardcall-timeout"
REQUEST_ID_KEY = "shardcall-request-id"
AUTHORIZATION_KEY = "authorization"

Metadata = tuple[tuple[str, str], ...]


def new_request_id() -> str:
    """Returns the id of an RPC, which it keeps when it is repeated: by it the server knows that it is the same."""
    return secrets.token_hex(16)


def rpc_metadata(timeout_s: float, request_id: str, token: str = "") -> Metadata:
    """The metadata of one RPC.

    Args:
        timeout_s: after which the server is to end it.
        request_id: of the RPC.
        token: that tells who calls; empty for none.
    """
    shown = ((AUTHORIZATION_KEY, f"Bearer {token}"),) if token else ()
    return (TIMEOUT_KEY, f"{timeout_s:.6f}"), (REQUEST_ID_KEY, request_id), *shown, *_trace()


def _trace() -> Metadata:
    """The caller's OpenTelemetry span, which the server's continues; nothing where the caller makes none."""
    api = sys.modules.get("opentelemetry.trace")  # whoever makes spans has imported it
    if api is None:
        return ()
    context = api.get_current_span().get_span_context()
    if not context.is_valid:
        return ()
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    state = context.trace_state.to_header()
    return ("traceparent", parent), *((("tracestate", state),) if state else ())
