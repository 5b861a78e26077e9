"""The table of answers: its entries, their lifetime and their owners."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np
import pytest
from rows import rows
from server.conftest import refusal, refused
from server.fake_calls import FakeServerCall

from shardcall.v1 import array_service_pb2
from shardcall_core.call_error import Reason
from shardcall_core.wire.chunk_codec import Chunk
from shardcall_server.frontend.dispatch.idempotency import HashedChunks, IdempotencyTable

REQUEST = array_service_pb2.RenewLeaseRequest(lease_id=b"1")
OTHER = array_service_pb2.RenewLeaseRequest(lease_id=b"2")


def call(request_id: str = "a", principal: str = "somebody") -> FakeServerCall:
    return FakeServerCall(principal, request_id=request_id)


def once(idempotency: IdempotencyTable, of: FakeServerCall, request, run, chunks=None):
    """Makes a call on this thread."""

    async def stage():
        return run()

    return of.run(idempotency.once(of, request, stage, chunks))


def counting(idempotency: IdempotencyTable):
    """Answers with the number of runs so far."""
    ran = []

    def number(of=None, request=REQUEST) -> int:
        def run() -> bytes:
            ran.append(request)
            return bytes([len(ran)])

        return once(idempotency, of or call(), request, run)[0]

    return number


def test_the_answer_of_the_first_is_returned_again_to_its_principal_by_its_id_for_its_request():
    number = counting(IdempotencyTable())
    assert [number(), number(), number()] == [1, 1, 1]
    assert [number(call("b")), number(call("a", "else")), number()] == [2, 3, 1]
    assert refusal(number, request=OTHER).reason is Reason.REQUEST_ID_REUSED
    assert number() == 1


def streamed(idempotency: IdempotencyTable, *pieces: bytes) -> bytes:
    chunks = HashedChunks(iter([Chunk(0, 0, np.frombuffer(piece, np.uint8)) for piece in pieces]))
    return once(idempotency, call(), REQUEST, lambda: b"".join(chunk.data.tobytes() for chunk in chunks), chunks)


def test_chunks_are_compared_by_their_bytes_and_not_by_how_they_were_divided():
    idempotency = IdempotencyTable()
    assert [streamed(idempotency, b"ab", b"cd"), streamed(idempotency, b"abc", b"d")] == [b"abcd"] * 2


@rows("pieces", [[b"ab", b"ce"], [b"ab"], [], [b"ab", b"cd", b"e"]])
def test_other_chunks_by_the_same_id_are_refused(pieces):
    idempotency = IdempotencyTable()
    streamed(idempotency, b"ab", b"cd")
    with refused(Reason.REQUEST_ID_REUSED, r"a call with other chunks had .*'a'"):
        streamed(idempotency, *pieces)
    assert streamed(idempotency, b"abcd") == b"abcd"


def test_chunks_without_end_are_read_no_further_than_those_of_the_first():
    idempotency, read = IdempotencyTable(), []

    def endless():
        while True:
            read.append(1)
            yield Chunk(0, 0, np.zeros(2, np.uint8))

    streamed(idempotency, b"ab", b"cd")
    assert "other chunks" in refusal(once, idempotency, call(), REQUEST, lambda: b"", HashedChunks(endless())).message
    assert len(read) == 3


@pytest.mark.parametrize("fails", [False, True])
def test_those_that_come_while_the_first_runs_wait_for_it_and_run_what_failed(fails):
    idempotency, begun, go_on = IdempotencyTable(), Event(), Event()

    def run() -> bytes:
        begun.set()
        go_on.wait(60)
        if fails:
            raise RuntimeError("the first")
        return b"answer"

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(once, idempotency, call(), REQUEST, run)
        assert begun.wait(60)
        others = [pool.submit(once, idempotency, call(), REQUEST, lambda i=i: bytes([i])) for i in range(3)]
        assert not any(other.done() for other in others)
        go_on.set()
        if fails:
            with pytest.raises(RuntimeError, match="the first"):
                first.result(60)
            assert len({other.result(60) for other in others}) == 1
        else:
            assert [item.result(60) for item in [first, *others]] == [b"answer"] * 4


@rows("limit", ["max_answers", "max_bytes"])
def test_the_oldest_are_forgotten_when_there_are_too_many_and_those_of_others_stay(limit):
    number = counting(IdempotencyTable(**{limit: 2}))
    assert [number(call(i)) for i in "abc"] == [1, 2, 3]
    assert [number(call(i)) for i in "cb"] == [3, 2]
    assert number(call("a")) == 4
    number = counting(IdempotencyTable(**{limit: 4}))
    assert number(call("a", "quiet")) == 1
    for i in range(20):
        number(call(str(i), "greedy"))
    assert number(call("a", "quiet")) == 1
    assert number(call("19", "greedy")) == 21
    assert number(call("0", "greedy")) == 22


def test_answers_are_forgotten_after_a_while():
    now = [0.0]
    number = counting(IdempotencyTable(keep_s=10, clock=lambda: now[0]))
    for now[0], answer in ((0.0, 1), (9.0, 1), (11.0, 2)):
        assert number() == answer


def test_an_answer_larger_than_the_limit_is_returned_and_forgotten():
    number = counting(IdempotencyTable(max_bytes=0))
    assert [number(), number()] == [1, 2]
