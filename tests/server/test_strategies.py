"""Which strategy wins by its times, and whose turn it is to be timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from shardcall_server.frontend.programs.strategies import Turns, decide

CANDIDATES = ("rule", "b", "c")


@pytest.mark.parametrize(
    ("runs_s", "winner"),
    [
        ({"rule": [1.0] * 3, "b": [2.0] * 3, "c": [3.0] * 3}, "rule"),
        ({"rule": [2.0] * 3, "b": [1.0] * 3, "c": [3.0] * 3}, "b"),
        ({"rule": [1.04] * 3, "b": [1.02] * 3, "c": [1.0] * 3}, "rule"),  # within 5 %: the rule's choice
        ({"rule": [1.06] * 3, "b": [1.04] * 3, "c": [1.0] * 3}, "b"),  # then the kernel's order
        ({"rule": [1.06] * 3, "b": [1.06] * 3, "c": [1.0] * 3}, "c"),
        ({"rule": [1.0, 1.0, 90.0], "b": [0.9, 2.0, 2.0]}, "rule"),  # medians, not best or mean
        ({"rule": [1.2], "b": [1.0] * 3}, "rule"),  # single runs say less: 25 % is a tie
        ({"rule": [1.3], "b": [1.0] * 3}, "b"),
        ({"b": [1.0] * 3}, "b"),
        ({"rule": [], "c": [1.0]}, "c"),
    ],
)
def test_the_quickest_wins_and_a_tie_goes_to_the_first_in_order(runs_s: Mapping[str, Sequence[float]], winner: str):
    choice = decide(CANDIDATES, runs_s)
    assert choice.strategy == choice.timings[0].strategy == winner
    assert choice.candidates == CANDIDATES
    others = [timing.seconds for timing in choice.timings[1:]]
    assert others == sorted(others)
    assert {timing.strategy for timing in choice.timings} == {name for name, runs in runs_s.items() if runs}


@pytest.mark.parametrize(
    ("runs_s", "reason"),
    [
        ({"rule": [0.012] * 3, "b": [0.12] * 3}, "timed: rule 12 ms, b 120 ms; 10 times as fast as b"),
        ({"rule": [1.02] * 3, "b": [1.0] * 3}, "timed: rule 1.02 s, b 1 s; a tie"),
        ({"rule": [3.2e-5]}, "timed: rule 32 µs; no time was left for others"),
    ],
)
def test_the_reason_tells_every_time_and_by_how_much_the_winner_won(runs_s, reason):
    assert decide(CANDIDATES, runs_s).reason == reason


def play(takes_s: Mapping[str, float], budget_s: float) -> tuple[Turns, list[str]]:
    turns, order = Turns(tuple(takes_s), budget_s), []
    while (name := turns.next()) is not None:
        order.append(name)
        turns.add(name, [takes_s[name]])
    return turns, order


def test_candidates_are_timed_in_turns_after_all_have_warmed_up():
    turns, order = play({"a": 0.001, "b": 0.002}, 0.5)
    assert order == ["a", "b"] * (1 + 9)
    assert [(t.strategy, t.run_count) for t in turns.choice().timings] == [("a", 9), ("b", 9)]


def test_the_budget_is_kept_and_shared_evenly():
    turns, order = play({"a": 0.05, "b": 0.06}, 0.5)
    assert sum({"a": 0.05, "b": 0.06}[name] for name in order) <= 0.5
    assert abs(order.count("a") - order.count("b")) <= 1
    assert turns.choice().strategy == "a"


def test_a_hopeless_candidate_has_one_turn_after_its_first_run():
    turns, order = play({"a": 0.001, "b": 0.1, "c": 0.001}, 0.5)
    assert order.count("b") == 2
    assert turns.choice().timings[-1].strategy == "b"
    assert play({"a": 0.001, "b": 0.1}, 0.5)[1] == ["a", "b"] * 2


def test_the_first_run_of_each_decides_nothing():
    turns = Turns(("a", "b"), 0.5)
    turns.add("a", [0.4, 0.001])
    turns.add("b", [0.002, 0.002])
    assert [(t.strategy, t.seconds, t.run_count) for t in turns.choice().timings] == [("a", 0.001, 1), ("b", 0.002, 1)]


def test_a_slow_first_run_keeps_no_strategy_from_being_timed():
    turns, takes_s = Turns(("a", "b"), 0.5), {"a": iter([0.546] + [0.01] * 20), "b": iter([0.02] * 20)}
    while (name := turns.next()) is not None or turns.extend(0.5):
        if name is not None:
            turns.add(name, [next(takes_s[name])])
    assert turns.choice().strategy == "a"
    assert min(timing.run_count for timing in turns.choice().timings) >= 3


def test_where_one_run_takes_more_than_half_the_budget_no_other_begins():
    turns, order = play({"a": 0.3, "b": 0.001}, 0.5)
    assert order == ["a"]
    assert turns.choice() is None


def test_a_candidate_that_cannot_run_is_left_out():
    turns = Turns(("a", "b", "c"), 0.5)
    turns.drop("a")
    while (name := turns.next()) is not None:
        turns.add(name, [0.001])
    assert [timing.strategy for timing in turns.choice().timings] == ["b", "c"]


def test_one_that_is_left_alone_is_chosen_without_being_timed():
    turns = Turns(("a", "b"), 0.5)
    turns.drop("a")
    assert turns.next() is None
    assert (turns.choice().strategy, turns.choice().reason) == ("b", "no other of a, b can run")
    turns.drop("b")
    assert turns.choice().strategy == "a"


def test_time_is_added_as_long_as_there_are_few_runs_and_they_are_not_too_long():
    turns = Turns(("a", "b"), 0.5)
    times = {"a": 0.3, "b": 0.2}
    asked = []
    for _ in range(4):
        while (name := turns.next()) is not None:
            asked.append(name)
            turns.add(name, [times[name]])
        if not turns.extend(0.5):
            break
    assert asked == ["a", "b", "a", "b", "a", "b", "a", "b"]
    assert not turns.extend(0.5)
    assert turns.choice().strategy == "b"
    long = Turns(("a", "b"), 0.5)
    long.add("a", [0.6, 0.6])
    assert not long.extend(0.5)
