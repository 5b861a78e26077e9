"""Opens gRPC channels."""

from __future__ import annotations

import sys

import grpc

from shardcall_core.access.addresses import Address
from shardcall_core.access.tls import Tls
from shardcall_core.types.errors import NotSupportedError

DEFAULT_MESSAGE_BYTES = 16 * 2**20
"""The largest message until the server has reported its own limit."""

_LARGEST_FRAME_BYTES = 2**24 - 1
# A client has one connection. A server starts with smaller buffers: those of 200 idle connections would take 514 MiB.
_READ_CHUNK_BYTES = 4 * 2**20

# Larger frames and reads, which double the throughput of large arrays.
_SPEED = (
    ("grpc.http2.max_frame_size", _LARGEST_FRAME_BYTES),
    ("grpc.http2.lookahead_bytes", _LARGEST_FRAME_BYTES),
    ("grpc.experimental.tcp_read_chunk_size", _READ_CHUNK_BYTES),
    ("grpc.experimental.tcp_min_read_chunk_size", _READ_CHUNK_BYTES),
    ("grpc.experimental.tcp_max_read_chunk_size", _READ_CHUNK_BYTES),
)
# Pings only while a call is open, so a dead host is noticed within 40 s. The server must allow them:
# `grpc.http2.min_ping_interval_without_data_ms` of at most 20 s.
_KEEPALIVE = (
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)
# gRPC's own back-off grows to two minutes. These are shorter than the waits of `Retries`, so that a retry connects.
_RECONNECT = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5_000),  # the timeout of one attempt, TLS included
    ("grpc.max_reconnect_backoff_ms", 1_000),
)


def open_channel(address: Address, message_bytes: int = DEFAULT_MESSAGE_BYTES, tls: Tls | None = None) -> grpc.Channel:
    """Returns a new channel, encrypted with ``tls``; it connects at the first call.

    Raises:
        NotSupportedError: gevent has patched this process, and gRPC is not prepared for that.
    """
    _check_gevent()
    options = [
        ("grpc.max_receive_message_length", message_bytes),
        ("grpc.max_send_message_length", message_bytes),
        ("grpc.use_local_subchannel_pool", 1),
        *_SPEED,
        *_KEEPALIVE,
        *_RECONNECT,
        ("grpc.enable_retries", 0),  # see retries.py
    ]
    if address.is_local:
        options.append(("grpc.enable_http_proxy", 0))
    if tls is None:
        return grpc.insecure_channel(address.target, options=options)
    return grpc.secure_channel(address.target, tls.credentials(), options=options)


def _check_gevent() -> None:
    """Refuses to hang: gRPC's threads would wait for greenlets of the thread that they block."""
    monkey = sys.modules.get("gevent.monkey")
    is_patched = monkey is not None and any(map(monkey.is_module_patched, ("socket", "threading")))
    if is_patched and "grpc.experimental.gevent" not in sys.modules:
        raise NotSupportedError(
            "gevent has patched this process and gRPC is not prepared for it, so that calls would hang; call "
            "grpc.experimental.gevent.init_gevent() after gevent.monkey.patch_all() and before shardcall connects"
        )
