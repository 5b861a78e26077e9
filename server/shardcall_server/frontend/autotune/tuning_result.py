"""Results of trials: timings of strategies and the one that they favour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

_TIE = 0.05
FEW_RUNS, _TIE_OF_FEW = 3, 0.25  # single runs differ by so much on a busy host


@dataclass(frozen=True)
class StrategyTiming:
    """The time of a strategy: the median of its runs."""

    strategy: str
    seconds: float
    run_count: int


@dataclass(frozen=True)
class TuningResult:
    """The strategy that "auto" stands for.

    Attributes:
        strategy: the strategy.
        candidates: all that could serve the call, in the order that decides ties.
        timings: those that were timed, the chosen one first, then by time; empty if no other could run.
        is_passing: whether another trial may have another result, since the devices lacked memory for a candidate.
    """

    strategy: str
    candidates: tuple[str, ...]
    timings: tuple[StrategyTiming, ...]
    is_passing: bool = False

    @property
    def reason(self) -> str:
        """A clause with every time, and the winner's advantage."""
        if not self.timings:
            return f"no other of {', '.join(self.candidates)} can run"
        timed = "timed: " + ", ".join(f"{t.strategy} {_format_s(t.seconds)}" for t in self.timings)
        if len(self.timings) < 2:
            return f"{timed}; no time was left for others"
        winner, second = self.timings[:2]
        if _is_tie(winner, second):
            return f"{timed}; a tie"
        return f"{timed}; {second.seconds / winner.seconds:.3g} times as fast as {second.strategy}"


def compare(candidates: Sequence[str], runs_s: Mapping[str, Sequence[float]]) -> TuningResult:
    """Returns the quickest candidate by its median; those within 5 % of it tie, and the first in order wins.

    So runs that differ a little lead to the same strategy, and the last bits of a product stay the same. If either has
    fewer than three runs, 25 % is a tie.

    Args:
        candidates: the strategies, in the order that decides ties.
        runs_s: the times of the runs, by strategy, without candidates that could not be timed; at least one.
    """
    timings = [StrategyTiming(name, median(runs_s[name]), len(runs_s[name])) for name in candidates if runs_s.get(name)]
    best = min(timings, key=lambda timing: timing.seconds)
    winner = next(timing for timing in timings if timing is best or _is_tie(best, timing))
    others = sorted((t for t in timings if t is not winner), key=lambda timing: timing.seconds)
    return TuningResult(winner.strategy, tuple(candidates), (winner, *others))


def _is_tie(one: StrategyTiming, other: StrategyTiming) -> bool:
    tolerance = _TIE if min(one.run_count, other.run_count) >= FEW_RUNS else _TIE_OF_FEW
    slow, quick = max(one.seconds, other.seconds), min(one.seconds, other.seconds)
    return slow <= quick * (1 + tolerance)


def _format_s(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
