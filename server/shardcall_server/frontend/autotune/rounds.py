"""The order in which the candidates of a trial are timed, and its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from shardcall_server.frontend.autotune.tuning_result import FEW_RUNS, TuningResult, compare

_MAX_ROUNDS = 9
_HOPELESS = 4.0  # a few runs say little, so they must be this many times as slow to drop a candidate


@dataclass(eq=False)
class Rounds:
    """Schedules the runs of a trial.

    All candidates run once to warm up: the first run of each loads code and touches fresh memory, and does not count.
    Then those that are not hopelessly slow run in rounds. The trial ends after nine rounds, or if no candidate can be
    expected to finish within the budget. A candidate is expected to take as long as its quickest run; one that has not
    run yet, as long as the quickest of the others.

    Args:
        candidates: the strategies, in the order that decides ties.
        budget_s: the time for all runs together.
    """

    candidates: tuple[str, ...]
    budget_s: float
    _spent_s: float = 0.0
    _dropped: set[str] = field(default_factory=set)
    _is_passing: bool = False
    _cold_s: dict[str, float] = field(default_factory=dict)
    _runs_s: dict[str, list[float]] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def next(self) -> str | None:
        """Returns the candidate to be timed now; None at the end."""
        able = self._able()
        if len(able) < 2:
            return None
        new = [name for name in able if name not in self._cold_s]
        if new:
            quickest_s = min(map(self._expected_s, self._cold_s), default=0.0)
            return new[0] if self._spent_s + quickest_s <= self.budget_s else None
        due = [
            name
            for name in able
            if self._count(name) < _MAX_ROUNDS and self._spent_s + self._expected_s(name) <= self.budget_s
        ]
        return min(due, key=self._count, default=None)  # the first of those with the fewest rounds

    def add(self, name: str, runs_s: Sequence[float]) -> None:
        """Adds the times of a candidate's runs in one round."""
        self._spent_s += sum(runs_s)
        if name in self._cold_s:
            self._counts[name] = self._count(name) + 1
        else:
            self._cold_s[name], *runs_s = runs_s
        if runs_s:
            self._runs_s.setdefault(name, []).extend(runs_s)

    def drop(self, name: str, *, is_passing: bool = False) -> None:
        """Leaves out a candidate that cannot run, or cannot now, so that the result does not last."""
        self._dropped.add(name)
        self._is_passing |= is_passing

    def extend(self, seconds: float) -> bool:
        """Adds time if some candidate has had few runs and runs are no longer than this; returns whether it did."""
        able = self._able()
        few = any(len(self._runs_s.get(name, ())) < FEW_RUNS for name in able)
        if len(able) < 2 or not few or self._quickest_s(able) > seconds:
            return False
        self.budget_s += seconds
        return True

    def result(self) -> TuningResult | None:
        """Returns the result of the times; None if no candidate has run more than once."""
        left = self._left()
        if runs_s := {name: runs for name, runs in self._runs_s.items() if name in left}:
            return replace(compare(self.candidates, runs_s), is_passing=self._is_passing)
        if len(left) > 1:
            return None
        return TuningResult((left or self.candidates)[0], self.candidates, (), self._is_passing)

    def _left(self) -> list[str]:
        return [name for name in self.candidates if name not in self._dropped]

    def _able(self) -> list[str]:
        """Returns the candidates that can run and are not hopelessly slow."""
        left = self._left()
        slowest_s = _HOPELESS * self._quickest_s(left)
        return [name for name in left if name not in self._runs_s or min(self._runs_s[name]) <= slowest_s]

    def _quickest_s(self, names: Sequence[str]) -> float:
        """Returns the quickest run of some candidates; 0 if none has run more than once."""
        return min((min(self._runs_s[name]) for name in names if name in self._runs_s), default=0.0)

    def _expected_s(self, name: str) -> float:
        return min(self._runs_s.get(name, ()), default=self._cold_s[name])

    def _count(self, name: str) -> int:
        return self._counts.get(name, 0)
