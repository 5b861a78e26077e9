"""What ``auto`` stands for, decided by times: whose turn it is, when it is enough, who has won."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

_TIE = 0.05
_FEW_RUNS, _TIE_OF_FEW = 3, 0.25  # single runs differ by so much on a busy host
_ROUNDS = 9
_HOPELESS = 4.0  # a first run has fresh memory to touch, so it must be this many times as slow to end a candidate


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

    All candidates once, to warm up; then, in turns, those that are not hopelessly slow. It is enough after nine turns
    each, or where the next one could not be expected to end within the budget: one that has not run yet is expected
    to take as long as the quickest that has.

    Args:
        candidates: in the order that decides ties.
        budget_s: what all runs together may take.
    """

    candidates: tuple[str, ...]
    budget_s: float
    _spent_s: float = 0.0
    _dropped: set[str] = field(default_factory=set)
    _first_s: dict[str, float] = field(default_factory=dict)
    _runs_s: dict[str, list[float]] = field(default_factory=dict)
    _taken: dict[str, int] = field(default_factory=dict)

    def next(self) -> str | None:
        """The candidate to be timed now; None where it is enough."""
        left = [name for name in self.candidates if name not in self._dropped]
        if len(left) < 2:
            return None
        new = [name for name in left if name not in self._first_s]
        quickest_s = min(self._first_s.values(), default=0.0)
        if new:
            return new[0] if self._spent_s + quickest_s <= self.budget_s else None
        able = [name for name in left if self._first_s[name] <= _HOPELESS * quickest_s]
        if len(able) < 2:
            return None
        due = min(able, key=self._turns)  # the first of those that had the fewest
        enough = self._turns(due) >= _ROUNDS or self._spent_s + self._first_s[due] > self.budget_s
        return None if enough else due

    def add(self, name: str, runs_s: Sequence[float]) -> None:
        """Tells what each run of a turn took."""
        self._spent_s += sum(runs_s)
        if name not in self._first_s:
            self._first_s[name] = min(runs_s)
            return
        self._runs_s.setdefault(name, []).extend(runs_s)
        self._taken[name] = self._turns(name) + 1

    def drop(self, name: str) -> None:
        """Tells that a candidate cannot run."""
        self._dropped.add(name)

    def extend(self, seconds: float) -> bool:
        """Adds time where it would tell more: some candidate has had few runs, and runs are no longer than this."""
        left = [name for name in self.candidates if name not in self._dropped]
        quickest_s = min((s for name, s in self._first_s.items() if name in left), default=seconds)
        able = [name for name in left if self._first_s.get(name, 0.0) <= _HOPELESS * quickest_s]
        few = any(len(self._runs_s.get(name, ())) < _FEW_RUNS for name in able)
        if len(able) < 2 or not few or quickest_s > seconds:
            return False
        self.budget_s += seconds
        return True

    def choice(self) -> Choice:
        """What the times decide. A candidate that had no turn but to warm up has that one's time."""
        runs_s = {
            name: self._runs_s.get(name) or [first_s]
            for name, first_s in self._first_s.items()
            if name not in self._dropped
        }
        if runs_s:
            return decide(self.candidates, runs_s)
        left = [name for name in self.candidates if name not in self._dropped]
        return Choice((left or self.candidates)[0], self.candidates, ())

    def _turns(self, name: str) -> int:
        return self._taken.get(name, 0)


def _told(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
