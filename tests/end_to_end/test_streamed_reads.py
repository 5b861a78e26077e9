"""Reads of arrays by call streams: in order with calls, with their errors and their limits."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest
from client_parts import transport_of
from end_to_end.messages import call, open_channel, tensor, token_of
from end_to_end.processes import wait_for
from end_to_end.raw_stream import TYPES, Stream, delete, item, opened, prepare, read

import shardcall as sc
from shardcall import aio
from shardcall._src.programs.pending_calls import PendingCall
from shardcall.v1 import array_pb2, call_stream_pb2, kernel_service_pb2

X = np.arange(8.0) ** 2
INVALID = {"of": call("power"), "types": [tensor(3, element_type=array_pb2.ELEMENT_TYPE_INT64)] * 2}


@pytest.fixture
def stream(server) -> Iterator[Stream]:
    with opened(server) as opened_stream:
        yield opened_stream


@pytest.fixture
def client(server) -> Iterator[sc.Client]:
    """A client with a stream of its own."""
    with sc.connect(server.address) as connected:
        yield connected


@pytest.fixture
def kept(client) -> Iterator[bytes]:
    with client.put(X) as array:
        yield bytes.fromhex(array.handle)


@pytest.fixture
def only_streamed(client, monkeypatch) -> sc.Client:
    """A client that copies arrays by its call stream alone."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("an RPC of its own")

    monkeypatch.setattr(transport_of(client), "get_array", refuse)
    return client


def kept_slot(slot: int = 0, of: Any = None, types: Any = TYPES) -> call_stream_pb2.CallStreamItem:
    return prepare(slot, of or call("negative"), types, keep_results=True, lease_id=os.urandom(32))


def test_the_answer_to_a_read_is_the_array_and_nothing_else(stream, kept):
    stream.send(read(7, kept))
    answer = stream.answer(7)
    response = kernel_service_pb2.ExecuteResponse.FromString(answer.response)
    assert {field.name for field, _ in answer.ListFields()} == {"number", "response"}
    assert {field.name for field, _ in response.ListFields()} == {"results", "timing"}
    (result,) = response.results
    assert result.type == tensor(8)
    np.testing.assert_array_equal(np.frombuffer(result.inline.data), X)
    assert response.timing.total_seconds > 0


def test_a_read_waits_for_the_call_before_it_and_not_for_its_answer(stream):
    handle = os.urandom(16)
    stream.send(kept_slot(), item(1, X, result_handles=[handle]), read(2, handle), delete(handle), read(3, handle))
    np.testing.assert_array_equal(stream.result(2), -X)
    assert stream.refusal(3).startswith("ARRAY_LOST: ")
    stream.response(1)


def test_a_read_fails_with_the_call_whose_result_it_reads(stream):
    refused, invalid = os.urandom(16), os.urandom(16)
    base = np.arange(3)
    for first in (0, 10):  # the second time the program is compiled, and launched before the values are refused
        stream.send(
            kept_slot(0, call("negative", {"nn": 1})),
            item(first, X, result_handles=[refused]),
            read(first + 1, refused),
            kept_slot(1, **INVALID),
            item(first + 2, base, -1 - base, slot=1, result_handles=[invalid]),
            read(first + 3, invalid),
        )
        reasons = [stream.refusal(first + i).partition(":")[0] for i in range(4)]
        assert reasons == ["UNKNOWN_PARAMETER"] * 2 + ["INVALID_VALUE"] * 2


def test_handles_without_an_array_are_refused_alone(stream, kept):
    stream.send(read(1, b""), read(2, b"short"), read(3, os.urandom(16)), read(4, kept))
    for number in (1, 2):
        assert stream.refusal(number).startswith("MALFORMED_REQUEST: ")
    assert stream.refusal(3).startswith("ARRAY_LOST: ")
    np.testing.assert_array_equal(stream.result(4), X)


def test_an_array_of_another_principal_is_missing_and_the_scope_of_arrays_is_needed(server, kept):
    for principal, reason in (("guest", "ARRAY_LOST"), ("runner", "SCOPE_MISSING")):
        with open_channel(server.address, token=token_of(principal)) as channel:
            stream = Stream(channel)
            stream.send(read(1, kept))
            assert stream.refusal(1).startswith(f"{reason}: ")
            stream.half_close()
            assert stream.end() is grpc.StatusCode.OK


def test_an_array_larger_than_a_message_may_hold_is_refused(stream, client):
    count = client.server_info().limits.max_inline_bytes // 8
    for nbytes, is_refused in ((count, False), (count + 1, True)):
        with client.put(np.ones(nbytes)) as large:
            stream.send(read(nbytes, bytes.fromhex(large.handle)))
            if is_refused:
                assert stream.refusal(nbytes).startswith("STREAM_REQUIRED: the array has")
            else:
                assert stream.result(nbytes).sum() == nbytes


@pytest.mark.parametrize("timeout", [-1.0, -math.inf, math.nan])
def test_what_is_no_timeout_is_refused(stream, kept, timeout):
    stream.send(read(1, kept, timeout_seconds=timeout), read(2, kept, timeout_seconds=math.inf))
    assert stream.refusal(1).startswith("MALFORMED_REQUEST: timeout_seconds is")
    np.testing.assert_array_equal(stream.result(2), X)


def test_a_chain_and_its_read_are_one_round_trip(only_streamed, monkeypatch):
    h = only_streamed.put(X)
    np.testing.assert_array_equal((h + 1).get(), X + 1)
    waited = []
    monkeypatch.setattr(PendingCall, "wait_answered", lambda call, deadline: waited.append(call))
    for i in range(20):
        np.testing.assert_array_equal((h + i).get(), X + i)
        np.testing.assert_array_equal(only_streamed.submit("add", h, i).get(), X + i)
    assert [call for call in waited if not call.is_done] == []
    monkeypatch.undo()


def test_large_arrays_are_copied_by_other_methods(client):
    for count in (2**15, 2**15 + 1, 2**18, 2**20):
        x = np.arange(float(count))
        np.testing.assert_array_equal(client.submit("add", client.put(x), 1).get(), x + 1)


def test_the_error_of_a_read_is_that_of_the_call_with_its_line(only_streamed):
    x = only_streamed.put(np.arange(4))
    for _ in range(2):
        bad = only_streamed.submit("power", x, -1)
        with pytest.raises(
            sc.InvalidOperandError, match=r"^power of int64\[4\], int64\[\], submitted at .*test_streamed_reads"
        ):
            (bad + 1).get()
        with pytest.raises(sc.InvalidOperandError, match=r"^power of "):
            bad.get()
    only_streamed.synchronize()
    results = [only_streamed.submit("power", x, -1)]
    wait_for(lambda: repr(results[0]) == "<RemoteArray int64[4], failed>")
    np.testing.assert_array_equal(x.get(), np.arange(4))
    results.clear()
    with pytest.warns(sc.FailedCallWarning, match="nobody has read that power of "):
        x.get()
    np.testing.assert_array_equal((x + 1).get(), np.arange(1, 5))
    with pytest.raises(sc.InvalidOperandError, match=r"^power of "):
        only_streamed.synchronize()


def test_an_asynchronous_client_reads_by_its_stream(server):
    async def use() -> None:
        async with aio.connect(server.address) as client:
            h = await client.put(X)
            h = (await client.add(h, 1, keep=True)).array
            np.testing.assert_array_equal(await h.get(), X + 1)

            async def read_often() -> None:
                for _ in range(100):  # an answer may be there before this thread looks at the clock
                    await h.get(timeout=1e-9)

            with pytest.raises(sc.DeadlineExceededError):
                await read_often()

    asyncio.run(use())


def test_threads_read_their_chains_at_once(only_streamed):
    h = only_streamed.put(X)

    def chain(start: int) -> bool:
        return all(np.array_equal(((h + start) * i).get(), (X + start) * i) for i in range(30))

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(chain, range(12)))
