"""The window of results that the client of a call stream has not read."""

from rows import rows
from server.fake_calls import FakeServerCall

from shardcall_core.call_error import CallError, Reason
from shardcall_server.frontend.rpc.coroutines import Task
from shardcall_server.frontend.services.result_window import ResultWindow


class Acquisition:
    """One call that acquires bytes; ``outcome`` is None while it waits."""

    def __init__(self, window: ResultWindow, nbytes: int) -> None:
        self.outcome: str | None = None
        self.error: CallError | None = None
        call = FakeServerCall()
        self.task = Task(window.acquire(call, nbytes), lambda _: self.error, self._finish)
        self.task.start()

    def _finish(self, _: object, error: Exception | None) -> None:
        self.outcome = "failed" if error else "acquired"

    def interrupt(self) -> None:
        self.error = CallError(Reason.CANCELLED, "the caller cancelled the call")
        self.task.interrupt()


def test_results_wait_for_earlier_ones_to_be_sent_and_one_larger_than_the_window_for_all():
    window = ResultWindow(100)
    acquisitions = [Acquisition(window, nbytes) for nbytes in (60, 40, 30, 10)]
    assert [acquisition.outcome for acquisition in acquisitions] == ["acquired", "acquired", None, None]
    window.release(20)
    assert [acquisition.outcome for acquisition in acquisitions[2:]] == [None, None]
    window.release(20)
    assert [acquisition.outcome for acquisition in acquisitions[2:]] == ["acquired", "acquired"]
    window = ResultWindow(100)
    first, large = Acquisition(window, 1), Acquisition(window, 1000)
    assert large.outcome is None
    window.release(1)
    assert (first.outcome, large.outcome) == ("acquired", "acquired")


@rows("nbytes", [0, 50])
def test_a_call_that_ends_while_it_waits_takes_nothing(nbytes):
    window = ResultWindow(100)
    Acquisition(window, 100)
    waiting, behind = Acquisition(window, 100), Acquisition(window, nbytes)
    waiting.interrupt()
    assert waiting.outcome == "failed"
    window.release(100)
    assert behind.outcome == "acquired"
    assert Acquisition(window, 100 - nbytes).outcome == "acquired"
