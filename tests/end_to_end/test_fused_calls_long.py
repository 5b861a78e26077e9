"""Recorded programs that the server refuses, that fail or are interrupted, and those of loops and threads."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from client_parts import programs_of, sender_of, submitter_of, uses_of
from end_to_end import test_fused_calls as short
from end_to_end.test_fused_calls import REFUSED, U, connect, ran, refused_program, step

import shardcall as sc
from shardcall._src.programs.call_sender import CallSender
from shardcall._src.programs.pending_calls import PendingCalls

pytestmark = pytest.mark.long

client = short.client


def test_threads_share_a_client(client):
    h = client.put(U)
    first = h + 1

    def work(x, k):
        for _ in range(5):
            x = x * k + k
        return x

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(work, [first] * 4, range(1, 5)))
    for k, result in enumerate(results, 1):
        assert np.array_equal(result.get(), work(U + 1, k))


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
            with pytest.raises(sc.ArrayLostError, match=r"^multiply of .*test_fused_calls_long.py:\d+, failed: "):
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


def test_what_follows_a_loop_needs_no_other_program_of_its_last_iteration(client):
    u, expected = client.put(U, spec=("x", None), mesh={"x": 4}), U
    for _ in range(2):
        for _ in range(2):
            u, expected = step(u), step(expected)
        largest = float(np.abs(u).max())  # not in the assertion, which keeps each array in it
        assert largest == abs(expected).max()
    step_of_11 = ("program", 11, 1)
    assert ran(client) == [step_of_11, step_of_11, ("program", 2, 1), step_of_11, ("program", 13, 2)]
    assert np.array_equal(u.get(), expected)


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
