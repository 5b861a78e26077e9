"""Loops of calls that are interrupted at any line of the client: arrays have the values of the last complete call."""

import sys

import numpy as np
import pytest
from client_parts import unanswered_of
from end_to_end.interrupts import interrupted
from rows import rows

import shardcall as sc

ITERATIONS = 3
STEPS = 101  # of which every one is a line to interrupt at; a prime, so that other lines are met in each loop
X = np.arange(4.0)


def add(state):
    state["h"] = state["h"] + 1


def add_in_two_calls(state):
    state["h"] = (state["h"] + 3) - 2


def augment(state):
    h = state["h"]
    h += 1


def augment_a_view(state):
    state["h"][1:] += 1


def run(client, change, number):
    """Runs a loop that is interrupted; returns whether it was, its array and the number of its complete iterations."""
    state, count = {"h": client.put(X)}, 0

    def loop():
        nonlocal count
        for _ in range(ITERATIONS):
            change(state)
            count += 1

    return interrupted(loop, number), state["h"], count


@pytest.mark.parametrize("fuse", [True, False])
@rows("change", [add, add_in_two_calls, augment, augment_a_view])
def test_an_interrupted_loop_leaves_the_values_of_its_last_complete_call(server, fuse, change):
    with sc.connect(server.address, fuse=fuse) as client:
        number, interrupts, is_interrupted = 0, 0, True
        while is_interrupted:
            number += STEPS
            is_interrupted, h, count = run(client, change, number)
            interrupts += is_interrupted
            last = h.get(timeout=20)[-1] - X[-1]
            # A write in place may be complete before the statement is.
            allowed = {count} if change in (add, add_in_two_calls) else {count, count + 1}
            assert last in allowed, f"interrupted at line {number}"
            client.synchronize(timeout=20)
        assert interrupts > 8
        assert not unanswered_of(client)
        assert np.array_equal(h.get()[1:], X[1:] + ITERATIONS)


def test_an_interrupted_wait_for_a_value_leaves_the_array(server):
    with sc.connect(server.address, fuse=True) as client:
        number, is_interrupted = 0, True
        while is_interrupted:
            number += 11
            h = (client.put(X) + 1) * 2
            is_interrupted = interrupted(h.get, number)
            assert np.array_equal(h.get(timeout=20), (X + 1) * 2), f"interrupted at line {number}"
        client.synchronize()


def test_dropping_an_array_runs_no_python_code_that_would_swallow_an_interrupt(client):
    h = client.put(X)
    view = h[1:]
    (view + 1).get()
    codes = []

    def profile(frame, event, argument):
        if event == "call":
            codes.append(frame.f_code.co_qualname)

    sys.setprofile(profile)
    try:
        del view, h
    finally:
        sys.setprofile(None)
    assert codes == []
