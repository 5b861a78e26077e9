"""Parts of clients and of their arrays that tests look at or replace; this module alone knows where they are."""

from typing import Any

from shardcall import Client, RemoteArray
from shardcall._src.device_arrays.array_version import ArrayVersion
from shardcall._src.device_arrays.lease import Lease
from shardcall._src.programs.call_sender import CallSender
from shardcall._src.programs.pending_calls import PendingCalls
from shardcall._src.programs.submitter import Submitter
from shardcall._src.rpc.transport import Transport
from shardcall._src.services.remote_arrays import RemoteArrays


def transport_of(client: Client) -> Transport:
    """Returns the connection to the server."""
    return client._transport


def stream_of(client: Client) -> Any:
    """Returns the call stream."""
    return client._call_stream


def sender_of(client: Client) -> CallSender:
    """Returns what sends the calls that nobody waits for."""
    return client._sender


def submitter_of(client: Client) -> Submitter:
    """Returns what records calls."""
    return client._submitter


def pending_of(client: Client) -> PendingCalls:
    """Returns the submitted calls."""
    return sender_of(client).pending


def unanswered_of(client: Client) -> Any:
    """Returns the submitted calls without an answer."""
    return pending_of(client)._unanswered


def uses_of(client: Client) -> Any:
    """Returns the arrays that submitted calls use."""
    return pending_of(client)._uses


def lease_of(client: Client) -> Lease:
    """Returns the lease of the client's arrays."""
    return sender_of(client).lease


def remote_arrays_of(client: Client) -> RemoteArrays:
    """Returns the client's calls for arrays on the mesh."""
    return client._remote_arrays


def programs_of(client: Client) -> list[Any]:
    """Returns the programs of recorded calls that the client remembers."""
    return [*submitter_of(client).sending._programs._programs._items.values()]


def version_of(array: RemoteArray) -> ArrayVersion:
    """Returns the present version of an array."""
    return array._version


def leased_handles_of(client: Client) -> list[bytes]:
    """Returns the handles of the arrays under the lease."""
    return [*lease_of(client)._arrays]
