"""Retries of the client: conditions, count and delay; by single messages, streams of chunks and call streams."""

import asyncio
import random

import grpc
import numpy as np
import pytest
from client.conftest import echo, echo_stream

import shardcall
from shardcall import aio
from shardcall._src.rpc.retries import NO_RETRIES, Retries

LARGE = np.random.default_rng(0).integers(0, 255, 3 * 2**19, np.uint8)
EXHAUSTED, UNAVAILABLE = grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE

REPEATED = {
    "busy": (EXHAUSTED, "SERVER_BUSY", 0.01),
    "over quota": (EXHAUSTED, "QUOTA_EXCEEDED", 0.01),
    "no mesh yet": (UNAVAILABLE, "MESH_NOT_READY", 0.01),
    "draining": (UNAVAILABLE, "SERVER_DRAINING", 0),
    "lost connection": (UNAVAILABLE, "", 0),
}
NOT_REPEATED = {
    "too large for ever": (EXHAUSTED, "RESIDENT_LIMIT", shardcall.ResourceExhaustedError),
    "a fault": (grpc.StatusCode.INTERNAL, "INTERNAL", shardcall.InternalServerError),
    "a fault of gRPC's": (grpc.StatusCode.INTERNAL, "", shardcall.InternalServerError),
    "unknown": (grpc.StatusCode.UNKNOWN, "", shardcall.InternalServerError),
    "late": (grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED", shardcall.DeadlineExceededError),
    "wrong": (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_PARAMETER", shardcall.InvalidParameterError),
}
LOST = (UNAVAILABLE, "")
"""The status of a connection that is lost."""


@pytest.fixture
def short_waits(monkeypatch):
    """Has retries wait a fiftieth."""
    monkeypatch.setattr(random, "uniform", lambda *_: 0.02)


@pytest.fixture(params=["unary", "stream", "call stream"])
def transport(request):
    return request.param


@pytest.fixture
def operand(transport):
    return LARGE if transport == "stream" else np.arange(4.0)


@pytest.fixture
def client(server, streams, transport):
    with shardcall.connect(server.address, call_stream=transport == "call stream") as connected:
        yield connected


@pytest.fixture
def failing(server, streams, abort):
    """Makes calls fail so often; returns the metadata of every call that came."""

    def fail(count, status, reason, retry_after_s=0.0, **metadata):
        came = []

        def refuse(context):
            came.append(dict(context.invocation_metadata()))
            if len(came) <= count and reason:
                abort(context, status, reason, retry_after_s=retry_after_s, **metadata)
            if len(came) <= count:
                context.abort(status, "from gRPC")

        def refuse_item(call):
            came.append({"shardcall-request-id": call.item.request_id, "shardcall-timeout": call.item.timeout_seconds})
            if len(came) > count:
                call.answer()
            elif reason:
                call.fail(status, reason, retry_after_s=retry_after_s, **metadata)
            else:
                call.stream.end(status)

        server.execute, server.execute_stream, streams.on_call = echo, echo_stream, refuse_item
        server.before_calls(refuse)
        return came

    return fail


@pytest.mark.parametrize("case", REPEATED)
def test_what_may_be_served_later_is_repeated_as_the_same_call(client, streams, failing, short_waits, operand, case):
    status, reason, after_s = REPEATED[case]
    came = failing(2, status, reason, after_s)
    np.testing.assert_array_equal(client.call("echo", operand).array, operand)
    assert (len(came), len({metadata["shardcall-request-id"] for metadata in came})) == (3, 1)
    timeouts = [float(metadata["shardcall-timeout"]) for metadata in came]
    assert timeouts == sorted(timeouts, reverse=True)
    assert timeouts[0] > timeouts[-1]
    assert not reason or len({call.item.number for call in streams.calls}) == len(streams.calls)


@pytest.mark.parametrize("case", NOT_REPEATED)
def test_other_errors_are_raised_at_once(client, failing, operand, case):
    status, reason, error = NOT_REPEATED[case]
    came = failing(9, status, reason)
    with pytest.raises(error):
        client.call("echo", operand)
    assert len(came) == 1


@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_call_that_the_mesh_restarted_under_is_repeated_once(server, client, failing, operand, is_awaited):
    async def call():
        async with aio.connect(server.address, call_stream=False) as asynchronous:
            return (await asynchronous.call("echo", operand)).array

    def calls():
        return asyncio.run(call()) if is_awaited else client.call("echo", operand).array

    came = failing(1, UNAVAILABLE, "MESH_RESTARTED")
    np.testing.assert_array_equal(calls(), operand)
    assert len(came) == 2
    came = failing(9, UNAVAILABLE, "MESH_RESTARTED")
    with pytest.raises(shardcall.MeshRestartedError):
        calls()
    assert len(came) == 2


def test_a_call_that_the_mesh_may_have_ended_of_is_not_repeated(client, failing, operand):
    came = failing(9, UNAVAILABLE, "MESH_RESTARTED", suspect="true")
    with pytest.raises(shardcall.MeshRestartedError) as caught:
        client.call("echo", operand)
    assert caught.value.is_suspect
    assert len(came) == 1


def test_a_call_of_an_array_on_the_mesh_is_not_repeated_when_the_mesh_restarted(memory, shared_client):
    array = shared_client.put(1.0)
    memory.calls.clear()
    memory.refuse = (UNAVAILABLE, "MESH_RESTARTED")
    with pytest.raises(shardcall.MeshRestartedError):
        shared_client.call("echo", array)
    assert len(memory.calls) == 1
    with pytest.raises(shardcall.MeshRestartedError):
        shared_client.call("echo", np.zeros(2**20))  # in shared memory: the worker that used it has ended
    assert len(memory.calls) == 3


@pytest.mark.parametrize(("status", "reason", "after_s"), [(EXHAUSTED, "SERVER_BUSY", 60), (*LOST, 0)])
def test_a_wait_that_would_end_after_the_deadline_is_not_begun(
    client, failing, operand, status, reason, after_s, monkeypatch
):
    monkeypatch.setattr(random, "uniform", lambda *_: 600.0)
    came = failing(9, status, reason, after_s)
    with pytest.raises((shardcall.ResourceExhaustedError, shardcall.ServerUnavailableError)) as caught:
        client.call("echo", operand, timeout=30)
    assert (caught.value.retry_after_s, len(came)) == (after_s or None, 1)


@pytest.mark.parametrize("transport", ["stream"])
def test_a_stream_that_was_answered_in_part_is_not_repeated(server, client):
    came = []

    def stop_early(requests, context):
        came.append(requests)
        yield next(echo_stream(requests, context))
        context.abort(UNAVAILABLE, "gone")

    server.execute_stream = stop_early
    with pytest.raises(shardcall.ServerUnavailableError):
        client.call("echo", LARGE)
    assert len(came) == 1


def test_a_call_that_a_server_cancels_is_a_server_that_goes(client, failing, operand, short_waits):
    """So do servers of gRPC's to calls that reach them while they stop."""
    came = failing(1, grpc.StatusCode.CANCELLED, "")
    np.testing.assert_array_equal(client.call("echo", operand).array, operand)
    assert len(came) == 2
    failing(9, grpc.StatusCode.CANCELLED, "")
    with pytest.raises(shardcall.ServerUnavailableError, match="cancelled the call, as a server does that shuts down"):
        client.call("echo", operand)


def test_a_call_through_shared_memory_ends_with_its_connection(memory, abort, shared_client):
    """The server may still be writing there; a refusal says that it is not."""
    calls = []

    def lose(request, context):
        calls.append(request)
        if len(calls) == 1:
            abort(context, EXHAUSTED, "SERVER_BUSY", retry_after_s=0.01)
        context.abort(UNAVAILABLE, "gone")

    memory.before = lose
    with pytest.raises(shardcall.ServerUnavailableError):
        shared_client.call("echo", np.zeros(2**20))
    assert len(calls) == 2


def test_the_waits_grow_and_are_never_shorter_than_the_server_says():
    lost = shardcall.ServerUnavailableError("gone", status=UNAVAILABLE)
    waits = [[Retries().wait_s(lost, repeated) for _ in range(100)] for repeated in range(4)]
    assert [min(wait) >= 0.1 * 2**i for i, wait in enumerate(waits)] == [True] * 4
    assert [max(wait) <= 0.15 * 2**i for i, wait in enumerate(waits)] == [True] * 4
    assert all(len(set(wait)) > 50 for wait in waits)
    busy = shardcall.ResourceExhaustedError("busy", reason="SERVER_BUSY", status=EXHAUSTED, retry_after_s=3)
    assert all(3 <= Retries().wait_s(busy, 0) <= 4.5 for _ in range(100))
    assert NO_RETRIES.wait_s(busy, 0) is None
    assert Retries().wait_s(busy, 4) is None
