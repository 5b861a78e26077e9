"""Submitted calls over a call stream: timeouts, interrupts, errors that nobody reads."""

import threading
import time

import grpc
import numpy as np
import pytest
from client.stream_server import Call, threads_named, wait_for
from client_parts import lease_of, stream_of, transport_of, unanswered_of, uses_of, version_of

import shardcall
from shardcall._src.programs import submitter
from shardcall._src.programs.sending import RecordedCallSender
from shardcall._src.transfer.stream_connection import StreamConnection
from shardcall_core.types.errors import InvalidOperandError

X = np.ones(4)
INVALID, EXHAUSTED = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED
DEADLINE = grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.fixture
def client(stream_client, streams):
    streams.on_call = Call.keep
    return stream_client


@pytest.fixture
def held(client, streams):
    """The calls, which are not answered by themselves."""
    calls = []
    streams.on_call = calls.append
    yield calls
    for call in calls:
        call.keep()


def test_a_synchronous_call_has_the_servers_error_at_its_deadline(server, streams, monkeypatch):
    def fail_late(call):
        time.sleep(call.item.timeout_seconds)
        call.fail(DEADLINE, "DEADLINE_EXCEEDED", "the call's time passed while it ran")

    monkeypatch.setattr("shardcall._src.programs.pending_calls.GRACE_S", 60.0)
    streams.on_call = fail_late
    error = pytest.raises(shardcall.DeadlineExceededError, match="passed while it ran")
    with shardcall.connect(server.address, synchronous=True) as client, error:
        client.submit("negative", X, timeout=0.1)


def test_the_error_of_a_submitted_call_names_its_timeout(client, streams):
    streams.on_call = lambda call: call.fail(DEADLINE, "")
    with pytest.raises(shardcall.DeadlineExceededError, match="within 7 s; raise timeout="):
        client.submit("negative", X, timeout=7).get()


def test_synchronize_waits_by_the_timeouts_of_the_calls(client, held):
    client.submit("negative", X, timeout=0.05)
    with pytest.raises(shardcall.DeadlineExceededError, match=r"was not answered within 0\.55 s"):
        client.synchronize()


def test_a_call_that_is_interrupted_after_it_was_sent_is_cancelled(client, streams, held, monkeypatch):
    send = stream_of(client).send

    def interrupted(*arguments, **keywords):
        send(*arguments, **keywords)
        raise KeyboardInterrupt

    monkeypatch.setattr(stream_of(client), "send", interrupted)
    with pytest.raises(KeyboardInterrupt):
        client.submit("negative", X)
    assert not unanswered_of(client)
    assert not uses_of(client)
    wait_for(lambda: held)
    assert lease_of(client).holds(held[0].item.result_handles[0])  # which deletes it
    assert streams.streams[0].cancelled.get(timeout=10) == held[0].item.number
    client.synchronize()


def raising(error):
    """Returns a function that raises an error."""

    def fail(*_, **__):
        raise error

    return fail


@pytest.mark.parametrize("error", [KeyboardInterrupt(), shardcall.DeadlineExceededError("the window is full")])
def test_a_call_that_is_interrupted_or_fails_before_it_is_sent_is_forgotten(client, streams, monkeypatch, error):
    with monkeypatch.context() as patch:
        patch.setattr(StreamConnection, "add", raising(error))
        with pytest.raises(type(error)):
            client.submit("negative", X)
    assert not unanswered_of(client)
    assert not uses_of(client)
    client.synchronize()
    assert client.submit("negative", X).spec is not None


def test_a_wait_that_is_not_woken_ends_after_the_answer(client, held, monkeypatch):
    class Asleep(threading.Event):
        def set(self):
            pass

    monkeypatch.setattr("shardcall._src.programs.pending_calls._AnswerEvent", Asleep)
    h = client.submit("negative", X)
    wait_for(lambda: held)
    threading.Timer(0.1, held.pop().keep).start()
    assert h.spec is not None


def test_waits_that_end_early_leave_nothing(client, held):
    h = client.submit("negative", X)
    for _ in range(3):
        with pytest.raises(shardcall.DeadlineExceededError, match=r"^negative of .* was not answered within 0.01 s"):
            client.synchronize(timeout=0.01)
    assert not version_of(h).pending._waiting


def test_the_first_of_many_errors_is_raised(client, streams):
    streams.on_call = lambda call: call.fail(INVALID, "INVALID_VALUE", f"call {len(streams.calls)} is wrong")
    arrays = [client.submit("negative", X) for _ in range(100)]
    wait_for(lambda: not unanswered_of(client))
    for array in arrays[:64]:  # errors that were raised take no space
        with pytest.raises(InvalidOperandError):
            array.get()
    arrays += [client.submit("negative", X)]
    wait_for(lambda: not unanswered_of(client))
    with pytest.raises(InvalidOperandError, match="call 101 is wrong"):
        client.synchronize()
    for _ in range(100):
        client.submit("negative", X)
    with pytest.raises(InvalidOperandError, match="call 102 is wrong"):
        client.synchronize()


def test_a_kernel_without_results_is_run_at_once(client, streams):
    streams.on_call = lambda call: call.answer(results=[])
    assert [client.submit("notify", X) for _ in range(2)] == [(), ()]


@pytest.mark.parametrize("planted", ["renew_token", "receive", "_frames"])
def test_an_exception_in_a_thread_that_sends_or_reads_fails_the_calls(client, streams, monkeypatch, planted):
    is_at_end = planted == "renew_token"
    streams.on_call = (lambda call: call.stream.end(grpc.StatusCode.UNAVAILABLE)) if is_at_end else Call.keep
    with monkeypatch.context() as patch:
        error = TypeError("no such thing")
        patch.setattr(transport_of(client) if is_at_end else StreamConnection, planted, raising(error))
        h = client.submit("negative", X, timeout=60)
        for read in (h.get, lambda: client.call("negative", X, timeout=60)):
            with pytest.raises(shardcall.InternalServerError, match=r"of this client failed: TypeError: no such thing"):
                read()
    streams.on_call = Call.keep
    assert client.submit("negative", X).spec is not None


@pytest.mark.parametrize("error", [TypeError("no such thing"), SystemExit()])
def test_an_exception_in_the_thread_that_sends_recorded_calls_fails_these_alone(client, streams, monkeypatch, error):
    shown, before = [], threads_named("shardcall-recording")
    monkeypatch.setattr(threading, "excepthook", shown.append)
    monkeypatch.setattr(submitter, "_IDLE_S", 0.001)
    h = client.submit("negative", X)
    with monkeypatch.context() as patch:
        patch.setattr(RecordedCallSender, "send", raising(error))
        first = -h
        wait_for(lambda: shown or threads_named("shardcall-recording") <= before)
    if isinstance(error, TypeError):
        with pytest.raises(shardcall.InternalServerError, match=r"negative of .*recording of this client failed: Type"):
            first.get()
        assert [item.exc_value for item in shown] == [error]
    second = -h
    wait_for(lambda: len(streams.calls) >= 2)
    assert second.spec is not None


def test_the_thread_of_the_lease_goes_on_after_an_exception(client, monkeypatch):
    shown, renewed = [], threading.Event()
    monkeypatch.setattr(threading, "excepthook", shown.append)
    lease, outcomes = lease_of(client), [raising(TypeError("no such thing")), lambda _: renewed.set()]
    monkeypatch.setattr(lease, "_renew", lambda lease_id: outcomes.pop(0)(lease_id) if outcomes else None)
    lease.renew_within(0.003)
    h = client.submit("negative", X)
    assert renewed.wait(60)
    assert [str(item.exc_value) for item in shown] == ["no such thing"]
    assert h.spec is not None


@pytest.mark.parametrize(
    ("status", "reason"), [(EXHAUSTED, "SERVER_BUSY"), (grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING")]
)
def test_a_submitted_call_that_was_answered_is_not_repeated(client, streams, status, reason):
    streams.on_call = lambda call: call.fail(status, reason, retry_after_s=0.001)
    h = client.submit("negative", X)
    for array in (client.submit("negative", h), h):
        with pytest.raises(shardcall.ShardcallError, match=r"^negative of .* submitted at") as caught:
            array.get()
        assert caught.value.reason == reason
    assert len(streams.calls) == 2


def test_a_submitted_call_waits_for_the_first_frame_within_its_deadline(client, streams):
    accepted = threading.Event()
    streams.on_opened = lambda stream: accepted.wait(60)
    h = client.submit("negative", X, timeout=0.05)
    with pytest.raises(shardcall.DeadlineExceededError):
        client.synchronize()
    accepted.set()
    assert h.spec is not None
