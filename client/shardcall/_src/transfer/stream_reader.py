"""Reads the RPCs of call streams."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Protocol

import grpc

from shardcall._src.rpc.status import ItemStatus
from shardcall._src.rpc.threads import thread_failure
from shardcall._src.transfer.stream_connection import StreamConnection
from shardcall_core.types.errors import ResourceExhaustedError


class ReadableStream(Protocol):
    """A call stream, as its reader sees it."""

    def begin(self, connection: StreamConnection) -> Iterator[bytes]:
        """Begins an RPC; returns its answers."""

    def receive(self, connection: StreamConnection, data: bytes) -> None:
        """Settles the calls that a frame answers."""

    def recover(self, connection: StreamConnection, status: ItemStatus) -> StreamConnection | None:
        """Sends the unanswered calls of an RPC that has ended again, or fails them; returns the next RPC."""

    def fail(self, failure: grpc.RpcError) -> object:
        """Fails all calls."""


def serve(reference: weakref.ref[ReadableStream], connection: StreamConnection | None) -> None:
    """Reads RPCs of a stream, one after the other, without keeping the stream from being collected."""
    while connection is not None:
        status = _read(reference, connection)
        if (stream := reference()) is None:
            return
        try:
            connection = stream.recover(connection, status)
        except Exception as error:  # noqa: BLE001  # as in `_read`
            stream.fail(_internal(error))
            return
        del stream


def _read(reference: weakref.ref[ReadableStream], connection: StreamConnection) -> ItemStatus:
    """Reads an RPC to its end; returns its status."""
    try:
        if (stream := reference()) is not None:
            answers = stream.begin(connection)
            del stream
            for data in answers:
                if (stream := reference()) is None:
                    break
                stream.receive(connection, data)
                del stream
    except grpc.RpcError as error:
        return ItemStatus.of(error) if connection.failure is None else _internal(connection.failure)
    except ResourceExhaustedError as error:
        return ItemStatus(grpc.StatusCode.RESOURCE_EXHAUSTED, error.message)
    except Exception as error:  # noqa: BLE001  # otherwise the calls would wait until their deadlines
        return _internal(error)
    return ItemStatus(grpc.StatusCode.UNAVAILABLE, "the call stream ended")


def _internal(error: Exception) -> ItemStatus:
    return ItemStatus(grpc.StatusCode.INTERNAL, thread_failure(error).message)
