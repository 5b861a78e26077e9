"""The table of answers: its entries, their lifetime and their owners."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from types import SimpleNamespace

import numpy as np
import pytest

from shardcall._src.wire.chunk_codec import Chunk
from shardcall.v1 import array_service_pb2
from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.dispatch.idempotency import HashedChunks, IdempotencyTable

REQUEST = array_service_pb2.RenewLeaseRequest(lease_id=b"1")
OTHER = array_service_pb2.RenewLeaseRequest(lease_id=b"2")


def call(request_id: str = "a", principal: str = "somebody") -> SimpleNamespace:
    return SimpleNamespace(
        request_id=request_id,
        principal_name=principal,
        wait=lambda shared, doing: shared.result(60),
        check=lambda doing: None,
    )


def counting(idempotency: IdempotencyTable):
    """Answers with the number of runs so far."""
    ran = []

    def once(of=None, request=REQUEST) -> int:
        def run() -> bytes:
            ran.append(request)
            return bytes([len(ran)])

        return idempotency.once(of or call(), request, run)[0]

    return once


def test_the_answer_of_the_first_is_returned_again():
    once = counting(IdempotencyTable())
    assert [once(), once(), once()] == [1, 1, 1]


def test_another_id_or_another_principal_is_another_call():
    once = counting(IdempotencyTable())
    assert [once(), once(call("b")), once(call("a", "else")), once()] == [1, 2, 3, 1]


def test_another_request_by_the_same_id_is_refused():
    once = counting(IdempotencyTable())
    once()
    with pytest.raises(CallError) as caught:
        once(request=OTHER)
    assert caught.value.reason is Reason.REQUEST_ID_REUSED
    assert once() == 1


def streamed(idempotency: IdempotencyTable, *pieces: bytes) -> bytes:
    chunks = HashedChunks(iter([Chunk(0, 0, np.frombuffer(piece, np.uint8)) for piece in pieces]))
    return idempotency.once(call(), REQUEST, lambda: b"".join(chunk.data.tobytes() for chunk in chunks), chunks)


def test_chunks_are_compared_by_their_bytes_and_not_by_how_they_were_divided():
    idempotency = IdempotencyTable()
    assert [streamed(idempotency, b"ab", b"cd"), streamed(idempotency, b"abc", b"d")] == [b"abcd"] * 2


@pytest.mark.parametrize("pieces", [[b"ab", b"ce"], [b"ab"], [], [b"ab", b"cd", b"e"]])
def test_other_chunks_by_the_same_id_are_refused(pieces):
    idempotency = IdempotencyTable()
    streamed(idempotency, b"ab", b"cd")
    with pytest.raises(CallError, match=r"a call with other chunks had .*'a'") as caught:
        streamed(idempotency, *pieces)
    assert caught.value.reason is Reason.REQUEST_ID_REUSED
    assert streamed(idempotency, b"abcd") == b"abcd"


def test_chunks_without_end_are_read_no_further_than_those_of_the_first():
    idempotency, read = IdempotencyTable(), []

    def endless():
        while True:
            read.append(1)
            yield Chunk(0, 0, np.zeros(2, np.uint8))

    streamed(idempotency, b"ab", b"cd")
    with pytest.raises(CallError, match="other chunks"):
        idempotency.once(call(), REQUEST, lambda: b"", HashedChunks(endless()))
    assert len(read) == 3


def test_those_that_come_while_the_first_runs_wait_for_it():
    idempotency, begun, go_on = IdempotencyTable(), Event(), Event()

    def run() -> bytes:
        begun.set()
        go_on.wait(60)
        return b"answer"

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(idempotency.once, call(), REQUEST, run)
        assert begun.wait(60)
        others = [pool.submit(idempotency.once, call(), REQUEST, lambda: b"another") for _ in range(3)]
        assert not any(other.done() for other in others)
        go_on.set()
        assert [item.result(60) for item in [first, *others]] == [b"answer"] * 4


def test_what_failed_is_run_by_who_waited_for_it():
    idempotency, begun, go_on = IdempotencyTable(), Event(), Event()

    def fail() -> bytes:
        begun.set()
        go_on.wait(60)
        raise RuntimeError("the first")

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(idempotency.once, call(), REQUEST, fail)
        assert begun.wait(60)
        others = [pool.submit(idempotency.once, call(), REQUEST, lambda i=i: bytes([i])) for i in range(3)]
        go_on.set()
        with pytest.raises(RuntimeError, match="the first"):
            first.result(60)
        assert len({other.result(60) for other in others}) == 1


@pytest.mark.parametrize("limits", [{"max_answers": 2}, {"max_bytes": 2}], ids=["count", "bytes"])
def test_the_oldest_are_forgotten_when_there_are_too_many(limits):
    once = counting(IdempotencyTable(**limits))
    assert [once(call(i)) for i in "abc"] == [1, 2, 3]
    assert [once(call(i)) for i in "cb"] == [3, 2]
    assert once(call("a")) == 4


def test_answers_are_forgotten_after_a_while():
    now = [0.0]
    once = counting(IdempotencyTable(keep_s=10, clock=lambda: now[0]))
    assert once() == 1
    now[0] = 9.0
    assert once() == 1
    now[0] = 11.0
    assert once() == 2


def test_an_answer_larger_than_the_limit_is_returned_and_forgotten():
    once = counting(IdempotencyTable(max_bytes=0))
    assert [once(), once()] == [1, 2]


@pytest.mark.parametrize("limit", [{"max_answers": 4}, {"max_bytes": 4}])
def test_a_principal_of_many_calls_evicts_no_answers_of_others(limit):
    once = counting(IdempotencyTable(**limit))
    assert once(call("a", "quiet")) == 1
    for number in range(20):
        once(call(str(number), "greedy"))
    assert once(call("a", "quiet")) == 1
    assert once(call("19", "greedy")) == 21
    assert once(call("0", "greedy")) == 22
