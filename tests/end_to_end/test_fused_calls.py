"""Calls that are recorded and run as one program: results and errors as if they had run one by one."""

import threading

import numpy as np
import pytest
from client_parts import pending_of, programs_of, submitter_of, unanswered_of, version_of
from end_to_end.processes import wait_for

import shardcall as sc
from shardcall._src.programs import sending, submitter
from shardcall._src.programs.call_sender import CallSender
from shardcall._src.programs.program_builder import ProgramBuilder
from shardcall_core.graphs.graph import Graph, Value

U = np.random.default_rng(5).normal(size=(13, 9))
REFUSED = Graph((), (Value(9, 0),))


@pytest.fixture
def client(server, monkeypatch):
    """A client that sends what it recorded only when something needs it."""
    monkeypatch.setattr(submitter, "_IDLE_S", 60.0)
    with connect(server) as client:
        yield client


def connect(server, **options):
    return sc.connect(server.address, fuse=True, **options)


def step(u):
    return u + 0.1 * (np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1) - 4 * u)


def ran(client):
    return [(call.ran_as, len(call.kernels), call.results) for call in client.trace_calls()]


def test_a_loop_runs_as_one_program_per_iteration(client):
    u, expected = client.put(U, spec=("x", None), mesh={"x": 4}), U
    for _ in range(5):
        u, expected = step(u), step(expected)
    assert np.array_equal(u.get(), expected)
    assert ran(client) == [("program", 11, 1)] * 5
    assert "program" in repr(client.trace_calls())
    assert u.spec == sc.P("x", None)


def test_only_results_that_the_caller_has_are_computed(client):
    h = client.put(U)
    kept = h + 1
    dropped = kept * 2
    total = dropped - 3
    del dropped
    other = np.sin(h)
    del other
    assert np.array_equal(total.get(), (U + 1) * 2 - 3)
    assert np.array_equal(kept.get(), U + 1)
    assert ran(client) == [("program", 3, 2)]
    assert len(client.list()) == 3


def test_what_nobody_holds_is_not_computed(client):
    h = client.put(U)
    for _ in range(3):
        h * 2
    client.synchronize()
    assert ran(client) == []


def test_what_follows_a_program_that_has_run_takes_its_results_and_leaves_out_what_nobody_holds(client):
    h = client.put(U)
    for is_last in (False, False, True):
        doubled = h * 2
        after = doubled + 1
        if is_last:
            doubled * 3
        del doubled
        if is_last:
            after -= 1
        assert np.array_equal(after.get(), U * 2 + 1 - is_last)
    assert [how for how, *_ in ran(client)] == ["program"] * 3 + ["call"]


def test_a_function_of_several_calls_is_one_program_at_every_call(client):
    h, with_nan = client.put(U), client.put(np.where(U > 1, np.nan, U))
    for function in (
        lambda x: np.median(x, 0),
        lambda x: np.percentile(x, [10, 99.5], axis=1),
        lambda x: np.argsort(x, 0)[::2] + np.sort(x, 0)[::2],
    ):
        for x in (h, h, with_nan):
            before = len(ran(client))
            np.testing.assert_allclose(function(x).get(), function(x.get()), rtol=1e-14)
            ((how, _, _),) = ran(client)[before:]
            assert how == "program"


def test_indices_that_may_be_refused_are_not_part_of_a_program(client):
    h, rows = client.put(U), client.put(np.array([1, 13]))
    with pytest.raises(IndexError, match="indices has an index that the axis of 13 elements does not have"):
        np.take(h + 1, rows, axis=0).get()
    with pytest.raises(IndexError, match="indices has an index"):
        np.take(h + 1, [0, -14], axis=0).get()
    assert [how for how, *_ in ran(client)] == ["call"] * 2
    taken = np.take(h + 1, [-13, 12], axis=0) * 2
    assert np.array_equal(taken.get(), (U[[0, 12]] + 1) * 2)
    assert ran(client)[2:] == [("program", 3, 1)]


def test_a_single_call_is_sent_as_such(client):
    h = client.put(U)
    doubled = h * 2
    assert np.array_equal(doubled.get(), U * 2)
    assert ran(client) == [("call", 1, 1)]


def test_operands_of_this_process_are_those_of_the_call(client):
    h, x = client.put(U), U[0].copy()
    result = (h + x) * x
    expected = (U + x) * x
    x[:] = 0
    assert np.array_equal(result.get(), expected)


def test_scalars_are_no_part_of_the_program(client):
    h = client.put(U)
    for k in range(4):
        result = (h * k) + 0.5 * k
        assert np.array_equal(result.get(), U * k + 0.5 * k)
    assert ran(client) == [("program", 2, 1)] * 4
    assert len(programs_of(client)) == 1


def test_errors_name_the_line_of_their_call(client):
    counts = client.put(np.arange(4))
    shifted = (counts + 1) * 2
    powers = shifted**-counts
    after = powers + 1
    with pytest.raises(sc.InvalidOperandError, match=r"^power of .*test_fused_calls.py:\d+, failed: y holds"):
        after.get()
    assert np.array_equal(shifted.get(), (np.arange(4) + 1) * 2)
    client.synchronize()


def test_handles_and_deletions_see_recorded_arrays(client, server):
    h = client.put(U)
    result = h + 1
    after = h * 2
    assert len(result.handle) == 32
    h.delete()
    assert np.array_equal(after.get(), U * 2)
    with pytest.raises(sc.ArrayLostError):
        h + 1
    result.delete()
    assert result.lost


def test_what_is_recorded_is_sent_after_some_time(server, monkeypatch):
    monkeypatch.setattr(submitter, "_IDLE_S", 0.001)
    with connect(server) as client:
        result = (client.put(U) + 1) * 2
        pending = pending_of(client)
        waited = threading.Event()
        for _ in range(6000):
            if version_of(result).pending is None or version_of(result).pending.recording is None:
                break
            waited.wait(0.01)
        assert np.array_equal(result.get(), (U + 1) * 2)
        assert not pending._failed
        assert [how for how, *_ in ran(client)] == ["calls"]


def test_results_that_depend_on_a_failed_one_are_no_separate_failures(server, client):
    h = client.put(U)
    with connect(server) as other:
        other.delete(h.handle)
    first = h + 1
    after = first * 2
    with pytest.raises(sc.ArrayLostError, match=r"^add of .*test_fused_calls.py:\d+, failed: [^;]*"):
        after.get()
    client.synchronize()
    with pytest.raises(sc.ArrayLostError):
        first.get()


def test_a_program_that_failed_runs_again_later(server, client):
    h, lost = client.put(U), client.put(U)
    for x in (h, h, lost, h):
        if x is lost:
            with connect(server) as other:
                other.delete(lost.handle)
        result = np.negative(x) * 2
        if x is lost:
            with pytest.raises(sc.ArrayLostError):
                result.get()
        else:
            assert np.array_equal(result.get(), -U * 2)
    assert ran(client) == [("program", 2, 1)] * 4


@pytest.mark.parametrize("interrupted", ["prepare", "RecordedBatch"])
def test_calls_whose_sending_was_interrupted_are_sent_when_they_are_needed(client, monkeypatch, interrupted):
    h = client.put(U)
    result = (h + 1) * 2
    with monkeypatch.context() as patched:

        def interrupt(*_, **__):
            patched.undo()
            raise KeyboardInterrupt

        patched.setattr(sending, interrupted, interrupt)
        with pytest.raises(KeyboardInterrupt):
            result.get()
    assert np.array_equal((h + 3).get(), U + 3)  # raises nothing of the interrupted call
    assert np.array_equal(result.get(), (U + 1) * 2)
    second = h * 3
    assert np.array_equal((second - 1).get(), U * 3 - 1)
    assert np.array_equal(second.get(), U * 3)


def _interrupt(*_, **__):
    raise KeyboardInterrupt


def test_close_abandons_what_was_recorded(server):
    client = connect(server)
    result = client.put(U) + 1
    client.close()
    assert result.lost
    with pytest.raises(sc.ShardcallError):
        result.get()


def test_the_end_of_the_block_sends_and_raises(server):
    def block():
        with connect(server) as client:
            counts = client.put(np.arange(4)) + 1
            return counts**-counts

    with pytest.raises(sc.InvalidOperandError, match="power"):
        block()


def test_fuse_is_off_where_every_call_is_waited_for(server):
    with connect(server, synchronous=True) as client:
        assert not submitter_of(client).is_recording
        assert len(client.trace_calls()) == 0


def refused_program(client):
    """Returns an array, and two results of a program that the server has refused; both are needed for the second."""
    h = client.put(U)
    for is_refused in (False, True):
        if is_refused:
            (program,) = programs_of(client)
            program.graph = REFUSED
        first = h + 1
        last = first * first
        submitter_of(client).flush()
    wait_for(lambda: not unanswered_of(client))
    return h, first, last


def test_calls_of_a_failed_program_whose_sending_was_interrupted_are_sent_later(client, monkeypatch):
    _h, first, last = refused_program(client)
    with monkeypatch.context() as patched:
        patched.setattr(CallSender, "send", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            last.get()
    for result, expected in ((last, (U + 1) ** 2), (first, U + 1)):
        assert np.array_equal(result.get(), expected)
    client.synchronize()


def test_a_call_that_is_interrupted_while_it_is_recorded_leaves_nothing(client, monkeypatch):
    h = client.put(U)
    first = h + 1
    add_node = ProgramBuilder.add_node

    def interrupt(*args):
        add_node(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ProgramBuilder, "add_node", interrupt)
        with pytest.raises(KeyboardInterrupt):
            h * 5
    second = first * 3
    last = second - 1
    assert np.array_equal(last.get(), (U + 1) * 3 - 1)
    assert np.array_equal(second.get(), (U + 1) * 3)
