"""Comparing strategies by their times, and the order in which they are timed."""

from collections.abc import Mapping, Sequence

from rows import rows

from shardcall_server.frontend.autotune.rounds import Rounds
from shardcall_server.frontend.autotune.tuning_result import compare

CANDIDATES = ("rule", "b", "c")


@rows(
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
    result = compare(CANDIDATES, runs_s)
    assert result.strategy == result.timings[0].strategy == winner
    assert result.candidates == CANDIDATES
    others = [timing.seconds for timing in result.timings[1:]]
    assert others == sorted(others)
    assert {timing.strategy for timing in result.timings} == {name for name, runs in runs_s.items() if runs}


@rows(
    ("runs_s", "reason"),
    [
        ({"rule": [0.012] * 3, "b": [0.12] * 3}, "timed: rule 12 ms, b 120 ms; 10 times as fast as b"),
        ({"rule": [1.02] * 3, "b": [1.0] * 3}, "timed: rule 1.02 s, b 1 s; a tie"),
        ({"rule": [3.2e-5]}, "timed: rule 32 µs; no time was left for others"),
    ],
)
def test_the_reason_lists_every_time_and_the_winners_margin(runs_s, reason):
    assert compare(CANDIDATES, runs_s).reason == reason


def play(takes_s: Mapping[str, float], budget_s: float) -> tuple[Rounds, list[str]]:
    rounds, order = Rounds(tuple(takes_s), budget_s), []
    while (name := rounds.next()) is not None:
        order.append(name)
        rounds.add(name, [takes_s[name]])
    return rounds, order


def test_candidates_are_timed_in_rounds_after_all_have_warmed_up():
    rounds, order = play({"a": 0.001, "b": 0.002}, 0.5)
    assert order == ["a", "b"] * (1 + 9)
    assert [(t.strategy, t.run_count) for t in rounds.result().timings] == [("a", 9), ("b", 9)]


def test_the_budget_is_kept_and_shared_evenly():
    rounds, order = play({"a": 0.05, "b": 0.06}, 0.5)
    assert sum({"a": 0.05, "b": 0.06}[name] for name in order) <= 0.5
    assert abs(order.count("a") - order.count("b")) <= 1
    assert rounds.result().strategy == "a"


def test_a_hopeless_candidate_has_one_round_after_its_first_run():
    rounds, order = play({"a": 0.001, "b": 0.1, "c": 0.001}, 0.5)
    assert order.count("b") == 2
    assert rounds.result().timings[-1].strategy == "b"
    assert play({"a": 0.001, "b": 0.1}, 0.5)[1] == ["a", "b"] * 2


def test_the_first_run_of_a_candidate_decides_nothing():
    rounds = Rounds(("a", "b"), 0.5)
    rounds.add("a", [0.4, 0.001])
    rounds.add("b", [0.002, 0.002])
    assert [(t.strategy, t.seconds, t.run_count) for t in rounds.result().timings] == [("a", 0.001, 1), ("b", 0.002, 1)]


def test_a_slow_first_run_keeps_no_strategy_from_being_timed():
    rounds, takes_s = Rounds(("a", "b"), 0.5), {"a": iter([0.546] + [0.01] * 20), "b": iter([0.02] * 20)}
    while (name := rounds.next()) is not None or rounds.extend(0.5):
        if name is not None:
            rounds.add(name, [next(takes_s[name])])
    assert rounds.result().strategy == "a"
    assert min(timing.run_count for timing in rounds.result().timings) >= 3


def test_where_one_run_takes_more_than_half_the_budget_no_other_begins():
    rounds, order = play({"a": 0.3, "b": 0.001}, 0.5)
    assert order == ["a"]
    assert rounds.result() is None


def test_a_candidate_that_cannot_run_is_left_out():
    rounds = Rounds(("a", "b", "c"), 0.5)
    rounds.drop("a")
    while (name := rounds.next()) is not None:
        rounds.add(name, [0.001])
    assert [timing.strategy for timing in rounds.result().timings] == ["b", "c"]


def test_one_that_is_left_alone_is_chosen_without_being_timed():
    rounds = Rounds(("a", "b"), 0.5)
    rounds.drop("a")
    assert rounds.next() is None
    assert (rounds.result().strategy, rounds.result().reason) == ("b", "no other of a, b can run")
    rounds.drop("b")
    assert rounds.result().strategy == "a"


def test_time_is_added_as_long_as_there_are_few_runs_and_they_are_not_too_long():
    rounds = Rounds(("a", "b"), 0.5)
    times = {"a": 0.3, "b": 0.2}
    asked = []
    for _ in range(4):
        while (name := rounds.next()) is not None:
            asked.append(name)
            rounds.add(name, [times[name]])
        if not rounds.extend(0.5):
            break
    assert asked == ["a", "b", "a", "b", "a", "b", "a", "b"]
    assert not rounds.extend(0.5)
    assert rounds.result().strategy == "b"
    long = Rounds(("a", "b"), 0.5)
    long.add("a", [0.6, 0.6])
    assert not long.extend(0.5)
