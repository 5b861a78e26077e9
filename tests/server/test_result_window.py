"""The window of results that the client of a call stream has not read."""

from rows import rows
from server.fake_calls import FakeServerCall, RunningStage
from server.refusals import refusal

from shardcall_core.call_error import Reason
from shardcall_server.frontend.services.result_window import ResultWindow


def acquired(window: ResultWindow, nbytes: int) -> RunningStage:
    """A call that acquires bytes."""
    return RunningStage(window.acquire(FakeServerCall(), nbytes))  # type: ignore[arg-type]


def test_results_wait_for_earlier_ones_to_be_sent_and_one_larger_than_the_window_for_all():
    window = ResultWindow(100)
    acquisitions = [acquired(window, nbytes) for nbytes in (60, 40, 30, 10)]
    for released, done in ((0, [True, True, False, False]), (20, [True, True, False, False]), (20, [True] * 4)):
        window.release(released)
        assert [acquisition.result.done() for acquisition in acquisitions] == done
    window = ResultWindow(100)
    acquired(window, 1)
    large = acquired(window, 1000)
    assert not large.result.done()
    window.release(1)
    assert large.result.done()


@rows("nbytes", [0, 50])
def test_a_call_that_ends_while_it_waits_takes_nothing(nbytes):
    window = ResultWindow(100)
    acquired(window, 100)
    waiting, behind = acquired(window, 100), acquired(window, nbytes)
    waiting.interrupt()
    assert refusal(waiting.result.result, 0).reason is Reason.CANCELLED
    window.release(100)
    for acquisition in (behind, acquired(window, 100 - nbytes)):
        assert acquisition.result.exception(0) is None
