"""Arrays of a call stream: results that later calls name before they exist, and deletions in the order of items."""

from concurrent.futures import Future

import pytest
from rows import rows
from server.fake_calls import FakeServerCall, RunningStage
from server.refusals import refusal, refused
from server.tables_of_names import Table

from shardcall_core.call_error import CallError, Reason
from shardcall_server.frontend.memory.resident_array_table import ResidentArray
from shardcall_server.frontend.services import streamed_arrays
from shardcall_server.frontend.services.streamed_arrays import ArrayClaim, StreamedArrays

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
    assert expected in {error, error.reason}
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


def test_a_promised_result_is_an_operand_once_its_call_is_launched(arrays, table):
    first = arrays.claim("", [], [A])
    second = arrays.claim("", [A, A], [B])
    third = arrays.claim("", [B, A], [])
    operands = [resolving(second), resolving(third)]
    assert not any(one.done() for one in operands)
    (a,) = launch(table, first)
    assert operands[0].result(0) == [a, a]
    assert not operands[1].done()
    (b,) = launch(table, second)
    assert operands[1].result(0) == [b, a]
    third.launched([])


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
