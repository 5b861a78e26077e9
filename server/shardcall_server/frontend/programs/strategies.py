"""What ``auto`` stands for, decided by times: whose turn it is, when it is enough, who has won."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

_TIE = 0.05
_FEW_RUNS, _TIE_OF_FEW = 3, 0.25  # single runs differ by so much on a busy host
_ROUNDS = 9
_HOPELESS = 4.0  # a few runs say little, so they must be this many times as slow to end a candidate


@dataclass(frozen=True)
class Timing:
    """A strategy's time: the median of so many runs."""

    strategy: str
    seconds: float
    run_count: int


@dataclass(frozen=True)
class Choice:
    """What ``auto`` stands for.

    Attributes:
        strategy: the one chosen.
        candidates: all that could serve the call, in the order that decides ties.
        timings: those that were timed, the one chosen first, then by time; empty where there was no other to be had.
    """

    strategy: str
    candidates: tuple[str, ...]
    timings: tuple[Timing, ...]

    @property
    def reason(self) -> str:
        """Why, as a clause: every time, and by how much the winner won."""
        if not self.timings:
            return f"no other of {', '.join(self.candidates)} can run"
        told = "timed: " + ", ".join(f"{t.strategy} {_told(t.seconds)}" for t in self.timings)
        if len(self.timings) < 2:
            return f"{told}; no time was left for others"
        winner, following = self.timings[:2]
        if _is_tie(winner, following):
            return f"{told}; a tie"
        return f"{told}; {following.seconds / winner.seconds:.3g} times as fast as {following.strategy}"


def decide(candidates: Sequence[str], runs_s: Mapping[str, Sequence[float]]) -> Choice:
    """The quickest candidate by its median; those within 5 % of it tie, and the first in order wins.

    So runs that differ a little decide alike, and the last bits of a product stay the same. Where either has fewer
    than three runs, 25 % is a tie.

    Args:
        candidates: in the order that decides ties.
        runs_s: what each run took, by strategy; those that could not be timed are missing. At least one is there.
    """
    timings = [Timing(name, median(runs_s[name]), len(runs_s[name])) for name in candidates if runs_s.get(name)]
    best = min(timings, key=lambda timing: timing.seconds)
    winner = next(timing for timing in timings if timing is best or _is_tie(best, timing))
    others = sorted((t for t in timings if t is not winner), key=lambda timing: timing.seconds)
    return Choice(winner.strategy, tuple(candidates), (winner, *others))


def _is_tie(one: Timing, other: Timing) -> bool:
    tolerance = _TIE if min(one.run_count, other.run_count) >= _FEW_RUNS else _TIE_OF_FEW
    slow, quick = max(one.seconds, other.seconds), min(one.seconds, other.seconds)
    return slow <= quick * (1 + tolerance)


@dataclass(eq=False)
class Turns:
    """Whose turn it is to be timed.

    All candidates once, to warm up: the first run of each loads code and touches fresh memory, and says nothing. Then,
    in turns, those that are not hopelessly slow. It is enough after nine turns each, or where no turn can be expected
    to end within the budget. A candidate is expected to take as long as its quickest run; one that has not run yet, as
    long as the quickest of the others.

    Args:
        candidates: in the order that decides ties.
        budget_s: what all runs together may take.
    """

    candidates: tuple[str, ...]
    budget_s: float
    _spent_s: float = 0.0
    _dropped: set[str] = field(default_factory=set)
    _cold_s: dict[str, float] = field(default_factory=dict)
    _runs_s: dict[str, list[float]] = field(default_factory=dict)
    _taken: dict[str, int] = field(default_factory=dict)

    def next(self) -> str | None:
        """The candidate to be timed now; None where it is enough."""
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
            if self._turns(name) < _ROUNDS and self._spent_s + self._expected_s(name) <= self.budget_s
        ]
        return min(due, key=self._turns, default=None)  # the first of those that had the fewest

    def add(self, name: str, runs_s: Sequence[float]) -> None:
        """Tells what each run of a turn took."""
        self._spent_s += sum(runs_s)
        if name in self._cold_s:
            self._taken[name] = self._turns(name) + 1
        else:
            self._cold_s[name], *runs_s = runs_s
        if runs_s:
            self._runs_s.setdefault(name, []).extend(runs_s)

    def drop(self, name: str) -> None:
        """Tells that a candidate cannot run."""
        self._dropped.add(name)

    def extend(self, seconds: float) -> bool:
        """Adds time where it would tell more: some candidate has had few runs, and runs are no longer than this."""
        able = self._able()
        few = any(len(self._runs_s.get(name, ())) < _FEW_RUNS for name in able)
        if len(able) < 2 or not few or self._quickest_s(able) > seconds:
            return False
        self.budget_s += seconds
        return True

    def choice(self) -> Choice | None:
        """Returns the choice by the times; None where no candidate has had a run but its first."""
        left = self._left()
        if runs_s := {name: runs for name, runs in self._runs_s.items() if name in left}:
            return decide(self.candidates, runs_s)
        return None if len(left) > 1 else Choice((left or self.candidates)[0], self.candidates, ())

    def _left(self) -> list[str]:
        return [name for name in self.candidates if name not in self._dropped]

    def _able(self) -> list[str]:
        """The candidates that can run and are not hopelessly slow."""
        left = self._left()
        slowest_s = _HOPELESS * self._quickest_s(left)
        return [name for name in left if name not in self._runs_s or min(self._runs_s[name]) <= slowest_s]

    def _quickest_s(self, names: Sequence[str]) -> float:
        """The quickest run of some candidates; 0 where none has had one but its first."""
        return min((min(self._runs_s[name]) for name in names if name in self._runs_s), default=0.0)

    def _expected_s(self, name: str) -> float:
        return min(self._runs_s.get(name, ()), default=self._cold_s[name])

    def _turns(self, name: str) -> int:
        return self._taken.get(name, 0)


def _told(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
