"""Calls that are recorded and run as one program: results and errors as if they had run one by one."""

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from client_parts import pending_of, programs_of, sender_of, submitter_of, unanswered_of, uses_of, version_of
from end_to_end.processes import wait_for

import shardcall as sc
from shardcall._src.programs import sending, submitter
from shardcall._src.programs.call_sender import CallSender
from shardcall._src.programs.pending_calls import PendingCalls
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


def test_errors_of_arguments_are_raised_in_their_line(client):
    h = client.put(U)
    doubled = h * 2
    with pytest.raises(sc.ShardcallError):
        doubled + np.ones(7)
    with pytest.raises(sc.ShardcallError):
        client.submit("roll", doubled, shift="x")
    assert np.array_equal(doubled.get(), U * 2)


def test_errors_name_the_line_of_their_call(client):
    counts = client.put(np.arange(4))
    shifted = (counts + 1) * 2
    powers = shifted**-counts
    after = powers + 1
    with pytest.raises(sc.InvalidOperandError, match=r"^power of .*test_fused_calls.py:\d+, failed: y holds"):
        after.get()
    assert np.array_equal(shifted.get(), (np.arange(4) + 1) * 2)
    client.synchronize()


def test_a_program_that_the_server_refuses_runs_as_calls(client, monkeypatch):
    monkeypatch.setattr(ProgramBuilder, "form", lambda *_: SimpleNamespace(graph=REFUSED, inputs={0: 0, 1: 1}))
    h = client.put(U)
    for _ in range(2):
        kept = h + 1
        result = kept * kept
        assert np.array_equal(result.get(), (U + 1) ** 2)
        assert np.array_equal(kept.get(), U + 1)
    client.synchronize()
    assert [how for how, *_ in ran(client)] == ["calls", "calls"]
    del kept, result
    wait_for(lambda: len(client.list()) == 1)


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


def test_calls_that_are_not_recorded_take_recorded_operands(client):
    h = client.put(U)
    doubled = h * 2
    assert np.allclose(np.asarray(client.matmul(doubled, U.T)), 2 * U @ U.T)
    assert np.allclose(((h + 1) @ U.T).get(), (U + 1) @ U.T)
    assert np.allclose(np.asarray(client.call("cumsum", h + 1, axis=0)), np.cumsum(U + 1, 0))
    assert client.plan("negative", h * 3).results[0].type.shape == U.shape
    assert client.describe(h * 3).shape == U.shape


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


def test_threads_share_a_client(client):
    h, results = client.put(U), {}
    first = h + 1

    def work(k):
        x = first
        for _ in range(5):
            x = x * k + k
        results[k] = x

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k, result in results.items():
        expected = U + 1
        for _ in range(5):
            expected = expected * k + k
        assert np.array_equal(result.get(), expected)


def test_meshes_are_not_mixed(client):
    a, b = client.put(U, mesh={"x": 2}), client.put(U, mesh=sc.Mesh(x=2, device_ids=[2, 3]))
    one, other = a + 1, b * 2
    third = np.sin(one)
    assert np.array_equal(other.get(), U * 2)
    assert np.allclose(third.get(), np.sin(U + 1))
    with pytest.raises(sc.ShardingError):
        a + b


def test_meshes_of_pending_arrays_are_not_mixed(client):
    a = client.submit("uniform", 1, shape=(8,), mesh=sc.Mesh(x=2))
    b = client.submit("uniform", 1, shape=(8,), mesh=sc.Mesh(x=2, device_ids=[2, 3]))
    for _ in range(2):
        one, other = (a + 1) * 2, (b + 1) * 2
        assert one.mesh.device_ids == (0, 1)
        assert other.mesh.device_ids == (2, 3)
        assert np.array_equal(one.get(), other.get())
    assert all(call.results == 1 for call in client.trace_calls())


def test_uncommitted_arrays_are_where_single_calls_put_them(server, client):
    def results(on):
        a, u = on.put(U[:8], mesh=sc.Mesh(x=4), spec=(None, "x")), on.xp.asarray(U[8])
        alone = u * 2
        arrays = [alone + 1, alone + a, a[1:] + u, (u + a) + (alone + alone)]
        return [(array.get().tolist(), array.mesh, array.spec, array.committed) for array in arrays]

    with sc.connect(server.address, fuse=False) as plain:
        assert results(client) == results(plain)


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


@pytest.mark.parametrize("runs", [0, 1])
def test_results_that_need_no_failed_operand_are_computed(server, client, runs):
    h, lost = client.put(U), client.put(U)
    for run in range(runs + 1):
        if run == runs:
            with connect(server) as other:
                other.delete(lost.handle)
        first, doubled = h + 1, lost * 2
        sine, cosine = np.sin(doubled), np.cos(first)
        if run == runs:
            with pytest.raises(sc.ArrayLostError, match=r"^multiply of .*test_fused_calls.py:\d+, failed: "):
                sine.get()
            with pytest.raises(sc.ArrayLostError, match=r"^multiply of "):
                doubled.get()
        np.testing.assert_allclose(cosine.get(), np.cos(U + 1), rtol=1e-14, atol=1e-15)
        assert np.array_equal(client.describe(first).get(), U + 1)
    client.synchronize()


def test_a_program_that_ran_before_and_is_refused_runs_as_calls(client):
    h = client.put(U)
    for is_refused in (False, True):
        if is_refused:
            (program,) = programs_of(client)
            program.graph = REFUSED
        kept = h + 1
        last = kept * kept
        after = last - 1
        del last
        client.synchronize()
        assert np.array_equal(after.get(), (U + 1) ** 2 - 1)
        assert np.array_equal(kept.get(), U + 1)
    assert [how for how, *_ in ran(client)] == ["program", "program", "calls"]


def test_a_call_whose_sending_was_interrupted_fails(client, monkeypatch):
    h = client.put(U)
    result = (h + 1) * 2
    with monkeypatch.context() as patched:
        patched.setattr("shardcall._src.programs.sending.prepare", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            result.get()
    assert np.array_equal((h + 3).get(), U + 3)  # raises nothing of the interrupted call
    with pytest.raises(sc.CallCancelledError, match="interrupted"):
        result.get()
    assert np.array_equal(((h + 1) * 2).get(), (U + 1) * 2)


def _interrupt(*_, **__):
    raise KeyboardInterrupt


def test_what_follows_a_loop_needs_no_other_program_of_its_last_iteration(client):
    u, expected = client.put(U, spec=("x", None), mesh={"x": 4}), U
    for _ in range(2):
        for _ in range(2):
            u, expected = step(u), step(expected)
        largest = float(np.abs(u).max())
        assert largest == abs(expected).max()
    step_of_11 = ("program", 11, 1)
    assert ran(client) == [step_of_11, step_of_11, ("program", 2, 1), step_of_11, ("program", 13, 2)]
    assert np.array_equal(u.get(), expected)


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


def test_clients_record_a_bounded_number_of_programs(client, monkeypatch):
    monkeypatch.setattr("shardcall._src.programs.fused_programs._MAX_NEW", 16)
    h = client.put(np.float64(1))
    for k in range(40):
        x = h
        for _ in range(2):
            x = x + 1 if k & 1 else x * 2
            x = x - 1 if k & 2 else np.sin(x)
            x = -x if k & 4 else np.cos(x)
            x = abs(x) if k & 8 else np.exp(x)
            x = x + x if k & 16 else x * x
        x.get()
    assert submitter_of(client).sending._programs._new <= 30


def test_calls_of_a_failed_program_that_are_interrupted_fail(server, client, monkeypatch):
    h, lost = client.put(U), client.put(U)
    for _ in range(2):
        first, other = (h + 1) * 2, lost * 2
        client.synchronize()
    with connect(server) as deleting:
        deleting.delete(lost.handle)
    first, other = (h + 1) * 2, lost * 2
    with monkeypatch.context() as patched:
        patched.setattr("shardcall._src.programs.templates.Template.request", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            first.get()
    with pytest.raises(sc.CallCancelledError, match="interrupted"):
        first.get(timeout=20)
    del other
    assert np.array_equal(((h + 1) * 2).get(), (U + 1) * 2)


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


def test_other_threads_wait_while_the_calls_of_a_failed_program_are_sent(client, monkeypatch):
    _h, first, last = refused_program(client)
    sends, paused, others = CallSender.send, threading.Event(), []

    def send(*args):
        if threading.current_thread() is not other and not paused.is_set():
            paused.set()
            other.join(0.3)
        sends(*args)

    def use():
        paused.wait(60)
        others.append(client.call("multiply", first, 2).array)

    other = threading.Thread(target=use)
    monkeypatch.setattr(CallSender, "send", send)
    other.start()
    assert np.array_equal(last.get(), (U + 1) ** 2)
    other.join()
    assert np.array_equal(others[0], (U + 1) * 2)


def test_a_late_answer_to_a_failed_program_is_not_that_of_a_call_sent_again(client, monkeypatch):
    answered = PendingCalls._answered

    def answer_slowly(pending, call, streamed):
        answered(pending, call, streamed)
        if call.is_failed and call.resend is not None:
            time.sleep(0.5)

    h = client.put(U)
    for is_refused in (False, True):
        if is_refused:
            (program,) = programs_of(client)
            program.graph = REFUSED
            monkeypatch.setattr(PendingCalls, "_answered", answer_slowly)
        first = h + 1
        last = first * first
        assert np.array_equal(first.get(), U + 1)
    assert np.array_equal(last.get(), (U + 1) ** 2)
    assert not uses_of(client)


def test_calls_of_a_failed_program_whose_sending_was_interrupted_fail(client, monkeypatch):
    _h, first, last = refused_program(client)
    with monkeypatch.context() as patched:
        patched.setattr(CallSender, "send", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            last.get()
    for result in (first, last):
        with pytest.raises(sc.CallCancelledError, match="interrupted"):
            result.get(timeout=5)
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


def test_calls_that_are_interrupted_before_they_are_sent_leave_nothing(client, monkeypatch):
    h = client.put(U)
    result = (h + 1) * 2
    with monkeypatch.context() as patched:

        def interrupt():
            patched.undo()
            raise KeyboardInterrupt

        patched.setattr(sending, "RecordedBatch", interrupt)
        with pytest.raises(KeyboardInterrupt):
            result.get()
    with pytest.raises(sc.CallCancelledError, match="interrupted"):
        result.get(timeout=5)
    second = h * 3
    assert np.array_equal((second - 1).get(), U * 3 - 1)
    assert np.array_equal(second.get(), U * 3)


@pytest.mark.parametrize("length", [2, 5])
def test_programs_that_failed_one_after_the_other_are_sent_again_in_that_order(client, length):
    h = client.put(U)
    for is_refused in (False, True):
        if is_refused:
            for program in programs_of(client):
                program.graph = REFUSED
        results, expected = [h], [U]
        for _ in range(length):
            results.append((results[-1] + 1) * 2)
            expected.append((expected[-1] + 1) * 2)
            submitter_of(client).flush()
        for result, values in zip(reversed(results), reversed(expected), strict=True):
            assert np.array_equal(result.get(), values)
    client.synchronize()


def test_bounds_of_slices_are_parts_of_a_program_unless_they_differ(client):
    x = np.random.default_rng(4).normal(size=(43, 5))
    sent = []
    send = sender_of(client).send
    sender_of(client).send = lambda call, *rest, **how: sent.append(call.message) or send(call, *rest, **how)
    try:
        for k in (1, 1, 2, 3, 4, 1):
            h = client.put(x, mesh={"x": 4}, spec=("x", None))  # slices of one array are computed once
            mean = (h[k : k + 30] + h[k - 1 : k + 29]) * 0.5
            assert np.array_equal(mean.get(), (x[k : k + 30] + x[k - 1 : k + 29]) * 0.5)
    finally:
        del sender_of(client).send
    programs = [call.parameters["graph"].program for call in sent if call.kernel == "graph"]
    assert all(call.parameters["exact"].bool_value for call in sent if call.kernel == "graph")
    assert [sum(node.kernel == "getitem" for node in program.graphs[0].nodes) for program in programs] == [2] * 6
    texts = [program.SerializeToString() for program in programs]
    assert texts[0] == texts[1] == texts[5]
    assert texts[2] == texts[3] == texts[4]
    assert len(set(texts)) == 2
    has_constants = [any(v.HasField("constant") for n in p.graphs[0].nodes for v in n.operands) for p in programs]
    assert has_constants == [True, True, False, False, False, True]
