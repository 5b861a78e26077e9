"""Parts of a call stream: its arrays, its memory, its answers, and its end with the token or the client."""

import gc
import random
import weakref
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, ClassVar, cast
from unittest.mock import Mock

import numpy as np
import pytest
from end_to_end.messages import call
from end_to_end.processes import wait_for
from end_to_end.raw_stream import cancel, delete, item, prepare, put
from google.rpc import status_pb2
from rows import rows
from server.conftest import refusal, refused
from server.fake_calls import FakeServerCall, RunningStage
from server.tables_of_names import Table

from shardcall.v1 import call_stream_pb2, kernel_pb2, kernel_service_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_core.wire.token_fields import TokenFields, parse_time
from shardcall_core.wire.token_file import Entry
from shardcall_server.frontend.access.gate import Gate
from shardcall_server.frontend.access.tokens import Tokens
from shardcall_server.frontend.memory.budget import MemoryBudget
from shardcall_server.frontend.memory.resident_array_table import ResidentArray
from shardcall_server.frontend.rpc.deadline_timer import DeadlineTimer
from shardcall_server.frontend.rpc.drain import Drain
from shardcall_server.frontend.rpc.processor_shares import ProcessorShares
from shardcall_server.frontend.services import call_stream, streamed_arrays
from shardcall_server.frontend.services.answer_queue import AnswerQueue
from shardcall_server.frontend.services.call_stream import ServerCallStream, StreamLimits
from shardcall_server.frontend.services.result_window import ResultWindow
from shardcall_server.frontend.services.stream_item import StreamItem
from shardcall_server.frontend.services.stream_memory import StreamMemory
from shardcall_server.frontend.services.streamed_arrays import ArrayClaim, StreamedArrays
from shardcall_server.frontend.services.streamed_call import CallOutcome

ADA = Entry.make("ada", ["run", "arrays"], TokenFields(expires=parse_time("", "2027-01-01T00:00:00Z")))
X = np.arange(4.0)
LIMITS = StreamLimits(max_calls=2, max_bytes=1 << 20, max_prepared_calls=4, max_call_s=60.0)
MIB, STEP, UNCOUNTED = 1 << 20, 256 << 10, 256 << 10
ROUNDS = 3
"""The number of waits of a stream whose client has gone after which the test fails."""


class Stream:
    """A stream of ada, by a clock that the tests set, without threads."""

    def __init__(self) -> None:
        self.now = 0.0
        self.deleted: list[bytes] = []
        self.tokens = Tokens([ADA])
        self.budget = MemoryBudget(100 * MIB, 100 * MIB)
        gate = Gate(self.tokens, lambda: self.now)
        services = SimpleNamespace(
            gate=gate,
            array_table=None,
            budget=self.budget,
            shares=ProcessorShares(),
            timer=None,
            session=lambda: None,
            recorder=SimpleNamespace(finish=lambda *_: None),
        )
        metadata = (("authorization", f"Bearer {ADA.token}"),)
        context = SimpleNamespace(peer=lambda: "here", invocation_metadata=lambda: metadata)
        principal = gate.admit("/shardcall.v1.KernelService/CallStream", metadata)
        self.stream = ServerCallStream(cast(Any, services), LIMITS, cast(Any, context), principal, self.tokens.version)
        arrays = SimpleNamespace(delete=lambda _, handles, *__, **___: self.deleted.extend(handles))
        self.stream._arrays = cast(Any, arrays)

    def send(self, *items: call_stream_pb2.CallStreamItem) -> None:
        self.stream._take(call_stream_pb2.CallStreamRequest(items=items).SerializeToString())

    def failures(self) -> dict[int, str]:
        """Returns the messages of the calls that have failed, by their numbers."""
        frame = call_stream_pb2.CallStreamResponse()
        self.stream._forget(self.stream._answers.gather(frame))
        return {answer.number: status_pb2.Status.FromString(answer.status).message for answer in frame.answers}


def test_a_new_item_fails_and_deletes_nothing():
    stream = Stream()
    stream.send(prepare(), delete(bytes(16)))
    stream.now = 2e9
    stream.send(put(1, X, bytes(16)), cancel(7), delete(b"d" * 16))
    (message,) = stream.failures().values()
    assert "the call's token, of ada, expired at 2027-01-01T00:00:00Z" in message
    assert stream.deleted == [bytes(16)]


def test_a_client_that_sends_on_without_reading_is_cut_off():
    stream = Stream()
    stream.now = 2e9
    for number in range(2):
        stream.send(put(number, X, bytes(16)))
    assert "expired at" in refusal(stream.send, put(2, X, bytes(16))).message


def test_a_later_end_in_the_file_serves_the_stream_again_and_a_removal_ends_it():
    stream = Stream()
    stream.now = 2e9
    stream.tokens.replace([Entry("ada", ADA.scopes, ADA.token)])
    stream.send(delete(b"d" * 16))
    assert stream.deleted == [b"d" * 16]
    stream.tokens.replace([Entry.make("bob", ["run"])])
    assert "was removed" in refusal(stream.send, delete(b"d" * 16)).message


def test_a_client_that_goes_behind_its_half_close_ends_the_stream():
    gate = SimpleNamespace(version=0, has_expired=Mock(side_effect=[False] * ROUNDS))
    services = SimpleNamespace(
        gate=gate, array_table=None, budget=None, drain=Drain(), shares=ProcessorShares(), timer=None
    )
    context = SimpleNamespace(peer=lambda: "here", invocation_metadata=tuple, is_active=lambda: False)
    stream = ServerCallStream(cast(Any, services), LIMITS, cast(Any, context), None, 0)
    item = stream._items[1] = StreamItem("here", 1, 0)
    stream.read(iter(()))  # gRPC raises nothing here, whether the client has half-closed or gone
    assert list(stream.frames()) == [b""]
    stream.close()
    assert item.is_cancelled


def window_of(max_bytes: int, budget: MemoryBudget | None = None) -> ResultWindow:
    memory = StreamMemory(budget or MemoryBudget(MIB, MIB), "ann")
    return ResultWindow(max_bytes, memory, DeadlineTimer())


def acquired(window: ResultWindow, nbytes: int) -> RunningStage:
    """A call that acquires bytes."""
    return RunningStage(window.acquire(FakeServerCall(), nbytes))  # type: ignore[arg-type]


def test_results_wait_for_earlier_ones_to_be_sent_and_one_larger_than_the_window_for_all():
    window = window_of(100)
    acquisitions = [acquired(window, nbytes) for nbytes in (60, 40, 30, 10)]
    for released, done in ((0, [True, True, False, False]), (20, [True, True, False, False]), (20, [True] * 4)):
        window.release(released)
        assert [acquisition.result.done() for acquisition in acquisitions] == done
    window = window_of(100)
    acquired(window, 1)
    large = acquired(window, 1000)
    assert not large.result.done()
    window.release(1)
    assert large.result.done()


@rows("nbytes", [0, 50])
def test_a_call_that_ends_while_it_waits_takes_nothing(nbytes):
    window = window_of(100)
    acquired(window, 100)
    waiting, behind = acquired(window, 100), acquired(window, nbytes)
    waiting.interrupt()
    assert refusal(waiting.result.result, 0).reason is Reason.CANCELLED
    window.release(100)
    for acquisition in (behind, acquired(window, 100 - nbytes)):
        assert acquisition.result.exception(0) is None


def test_unread_results_of_all_streams_of_a_client_count_in_its_budget_and_later_ones_wait():
    windows = [window_of(MIB, budget) for budget in [MemoryBudget(100 * MIB, MIB)] * 8]
    results = [acquired(window, MIB // 2).result for window in windows]
    assert [window.is_awaited for window in windows] == [not result.done() for result in results]
    assert 2 <= sum(result.done() for result in results) < 8
    for window, result in zip(windows, results, strict=True):  # the client reads
        wait_for(result.done)
        window.release(MIB // 2)


def test_an_item_cancels_a_limited_number_of_calls():
    assert "cancels 1025 calls, and may cancel 1024" in refusal(Stream().send, cancel(*range(1025))).message


def test_a_slot_that_is_assigned_again_has_the_memory_of_one_prepared_call():
    stream, large = Stream(), prepare(of=call(parameters={f"p{i}": "x" * 4000 for i in range(10)}))
    for _ in range(2):
        stream.send(large)
        assert stream.budget.high_water_bytes == 2 * STEP


class Request:
    """The contents of a call's frames."""

    references: ClassVar[list[weakref.ref[Any]]] = []

    @classmethod
    def fail(cls, *_: Any) -> None:
        request = cls()
        cls.references.append(weakref.ref(request))
        raise CallError(BROKEN.reason, BROKEN.message)


def test_a_slot_of_a_call_that_is_refused_keeps_no_message(monkeypatch):
    monkeypatch.setattr(call_stream, "prepared_call", Request.fail)
    stream = Stream()
    stream.send(prepare())
    assert Request.references.pop()() is None
    stream.send(item(1), item(2))
    assert {*stream.failures().values()} == {BROKEN.message}


def test_the_budget_holds_what_streams_hold_within_a_step():
    budget = MemoryBudget(100 * MIB, 100 * MIB)
    memory = StreamMemory(budget, "ann")
    chance, taken = random.Random(7), []
    for _ in range(2000):
        if taken and chance.random() < 0.5:
            memory.release(taken.pop(chance.randrange(len(taken))))
        else:
            taken.append(chance.randrange(100_000))
            memory.reserve(taken[-1])
        assert max(0, sum(taken) - UNCOUNTED) <= budget.used_bytes < max(1, sum(taken) - UNCOUNTED + STEP)
    memory.close()
    assert budget.used_bytes == 0
    memory.release(sum(taken))
    memory.reserve(5)
    assert budget.used_bytes == 0


def test_a_client_that_holds_too_much_is_refused_and_others_are_not():
    budget = MemoryBudget(3 * MIB, MIB)
    first, second, other = StreamMemory(budget, "ann"), StreamMemory(budget, "ann"), StreamMemory(budget, "bob")
    first.reserve(MIB + UNCOUNTED)
    second.reserve(UNCOUNTED)
    assert refusal(second.reserve, 1).reason is Reason.QUOTA_EXCEEDED
    other.reserve(MIB)
    first.release(MIB)
    second.reserve(MIB // 2)
    second.close()
    first.reserve(MIB)


def ran(plan: kernel_pb2.Plan, transfers: kernel_pb2.Plan | None = None) -> CallOutcome:
    """The outcome of a call of a program with this plan."""
    return kernel_service_pb2.ExecuteResponse(), plan, transfers or kernel_pb2.Plan()


def answers(queue: AnswerQueue, *plans: kernel_pb2.Plan) -> list[call_stream_pb2.StreamedAnswer]:
    for number, plan in enumerate(plans):
        queue.add(number, ran(plan))
    frame = call_stream_pb2.CallStreamResponse()
    assert queue.gather(frame) == list(range(len(plans)))
    assert queue.is_empty
    return list(frame.answers)


def test_a_plan_is_sent_once_and_of_more_than_there_are_slots_the_one_unused_for_longest_loses_its_slot():
    queue = AnswerQueue()
    plans = [kernel_pb2.Plan(kernel=str(i)) for i in range(257)]
    assert [answer.plan_slot for answer in answers(queue, *plans[:256])] == list(range(256))
    got = answers(queue, plans[0], plans[256], plans[1], plans[256])
    assert [(answer.plan_slot, answer.plan.kernel) for answer in got] == [(0, ""), (1, "256"), (2, "1"), (1, "")]
    large = [kernel_pb2.Plan(strategy_reason=300_000 * "x") for _ in range(4)]
    queue = AnswerQueue()
    slots = [answers(queue, plan)[0].plan_slot for plan in (*large, *large[2:], large[0])]
    assert slots == [0, 1, 2, 0, 2, 0, 1], "three are not too large together"


def test_answers_have_the_transfers_of_their_call_and_an_error_comes_after_those_before_it():
    queue, plan = AnswerQueue(), kernel_pb2.Plan(kernel="diff")
    queue.add(7, ran(plan, kernel_pb2.Plan(transfers=[kernel_pb2.Transfer()])))
    queue.add_error(RuntimeError("the end"))
    frame = call_stream_pb2.CallStreamResponse()
    assert queue.gather(frame) == [7]
    (answer,) = frame.answers
    assert len(answer.transfers) == 1
    assert not answer.plan.transfers
    with pytest.raises(RuntimeError, match="the end"):
        queue.gather(frame)


A, B, C = (letter * 16 for letter in (b"a", b"b", b"c"))
BROKEN = CallError(Reason.INVALID_SHAPE, "no such shape")


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture
def arrays(table):
    arrays = StreamedArrays(table.array_table)
    yield arrays
    assert not arrays._promised
    assert not arrays._uses
    assert not arrays._deleted
    assert arrays.next_deletion(1 << 62) is None


def resolving(claim: ArrayClaim) -> Future[list[ResidentArray | None]]:
    """Starts a call that needs its operands; returns them once they are there."""
    return RunningStage(claim.resolve(FakeServerCall())).result  # type: ignore[arg-type]


def check_late(arrays: StreamedArrays, handle: bytes, expected: CallError | Reason, owner: str = "") -> None:
    """Checks the error of a call that needs an array."""
    late = arrays.claim(owner, [handle], [])
    error = resolving(late).exception(0)
    assert isinstance(error, CallError)
    assert str(expected) in {error.message, error.reason}
    late.failed(error)


def launch(table: Table, claim: ArrayClaim) -> list[ResidentArray]:
    """Launches a call; its results get the handles that it claimed."""
    claim.launched(results := [table.put(handle=handle) for handle in claim.results])
    return results


def test_an_array_on_the_mesh_is_an_operand_of_its_owner_at_once_and_deleted_when_nothing_uses_it(arrays, table):
    resident = table.put()
    claim = arrays.claim("", [b"", resident.handle], [])
    assert resolving(claim).result(0) == [None, resident]
    claim.launched([])
    check_late(arrays, resident.handle, Reason.ARRAY_LOST, "other")
    arrays.delete("other", [resident.handle], 3)
    assert table.deleted == []
    arrays.delete("", [resident.handle, A], 3)
    assert table.deleted == [resident]
    check_late(arrays, A, Reason.ARRAY_LOST)


def test_a_deletion_waits_for_the_calls_before_it_and_hides_the_array_from_those_behind(arrays, table):
    resident = table.put()
    users = [arrays.claim("", [resident.handle], []) for _ in range(2)]
    arrays.delete("", [resident.handle], 3)
    assert arrays.next_deletion(2) is None
    deletion = arrays.next_deletion(4)
    check_late(arrays, resident.handle, Reason.ARRAY_LOST)
    users[0].launched([])
    assert table.gauges()[0] == 1
    assert not deletion.done()
    assert resolving(users[1]).result(0) == [resident]
    users[1].failed(BROKEN)  # a call that failed needs nothing either
    assert table.deleted == [resident]
    assert deletion.done()


@pytest.mark.parametrize("is_success", [True, False])
def test_what_a_call_replaces_is_deleted_once_it_has_succeeded(arrays, table, is_success):
    first, second = table.put(), table.put()
    claim = arrays.claim("", [first.handle], [A])
    arrays.delete("", [first.handle], 2, replaced_by=A)
    deletion = arrays.next_deletion(3)
    launch(table, claim)
    assert (table.deleted, deletion.done()) == ([], False)
    claim.succeeded() if is_success else claim.failed(BROKEN)
    assert deletion.done()
    arrays.delete("", [second.handle], 3, replaced_by=A if is_success else B)
    assert table.deleted == ([first, second] if is_success else [])


def test_a_result_may_be_deleted_before_it_exists(arrays, table):
    first = arrays.claim("", [], [A])
    second = arrays.claim("", [A], [])
    arrays.delete("", [A], 3)
    (a,) = launch(table, first)
    assert table.deleted == []
    second.launched([])
    assert table.deleted == [a]
    unused = arrays.claim("", [], [B])
    arrays.delete("", [B], 3)
    (b,) = launch(table, unused)
    assert table.deleted == [a, b]


@pytest.mark.parametrize("is_launched", [True, False])
@pytest.mark.parametrize(
    ("failure", "reason"),
    [(BROKEN, BROKEN.reason), (CallError(Reason.MESH_RESTARTED, "the mesh ended"), Reason.ARRAY_LOST)],
)
def test_a_failure_reaches_the_calls_that_need_its_results_early_or_late(arrays, table, is_launched, failure, reason):
    first = arrays.claim("", [], [A])
    if is_launched:
        launch(table, first)
        first.failed(failure)
    else:
        early = arrays.claim("", [A], [B])
        waiting = resolving(early)
        first.failed(failure)
        assert waiting.exception(0).reason is reason
        early.failed(BROKEN)
        check_late(arrays, B, BROKEN)
    check_late(arrays, A, reason)


def test_a_failure_is_kept_without_the_memory_of_its_call(arrays):
    claim = arrays.claim("", [], [A])
    try:
        Request.fail()
    except CallError as error:
        claim.failed(error)
    assert Request.references.pop()() is None
    check_late(arrays, A, BROKEN)
    late = arrays.claim("", [A], [])
    late.failed(resolving(late).exception(0))
    reference = weakref.ref(late)
    del late
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize("results", [[A, A], [B]], ids=["in one call", "of another call"])
def test_a_result_handle_is_used_once(arrays, table, results):
    first = arrays.claim("", [], [B])
    with refused(Reason.MALFORMED_REQUEST, "two results have the same handle"):
        arrays.claim("", [], results)
    launch(table, first)


@rows(("operands", "results"), [([b"short"], []), ([], [b"short"])])
def test_handles_of_another_length_are_refused(arrays, operands, results):
    assert refusal(arrays.claim, "", operands, results).reason is Reason.MALFORMED_REQUEST


def test_the_oldest_of_many_failures_are_forgotten(arrays, monkeypatch):
    monkeypatch.setattr(streamed_arrays, "_MAX_FAILED", 2)
    for handle in (A, B, C):
        arrays.claim("", [], [handle]).failed(BROKEN)
    for handle, expected in ((A, Reason.ARRAY_LOST), (B, BROKEN.reason), (C, BROKEN.reason)):
        check_late(arrays, handle, expected)
    arrays.delete("", [B], 3)  # forgets the failure too
    check_late(arrays, B, Reason.ARRAY_LOST)


def test_an_answer_from_before_releases_its_arrays(arrays, table):
    launch(table, arrays.claim("", [], [A]))
    repeated = arrays.claim("", [], [A])
    user = arrays.claim("", [A], [])
    waiting = resolving(user)
    repeated.finish()
    assert [one.handle for one in waiting.result(0)] == [A]
    user.launched([])
    table.array_table.delete([A])
    again = arrays.claim("", [], [A])
    with refused(Reason.ARRAY_LOST) as caught:
        again.finish()
    again.failed(caught.value)
