"""The report at the end of a run: the time of each folder beside its budget, and the servers that were started."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from servers import Run

BUDGETS_S: Mapping[str, float] = {
    "accuracy": 5,
    "array_api": 22,
    "client": 90,
    "end_to_end": 490,
    "examples": 40,
    "faults": 120,
    "kernels": 180,
    "memory_model": 20,
    "mesh": 20,
    "mutants": 5,
    "project": 80,
    "server": 70,
}
"""Seconds of the tests of each folder in the short form, as four processes of two processors take them."""


class RunReport:
    """Prints, after the short form, what its folders took, and after every run its figures and servers.

    Args:
        run: what the processes of the run share.
        is_short: whether it is the short form.
    """

    def __init__(self, run: Run, is_short: bool) -> None:
        self._run, self._is_short = run, is_short
        self._seconds: Counter[str] = Counter()
        self._tests: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        folder = Path(report.nodeid.partition("::")[0]).parent.name
        self._seconds[folder] += report.duration
        self._tests[folder] += report.when == "call"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        line = terminalreporter.line
        if self._is_short:
            terminalreporter.section("seconds of tests, by folder")
            line(f"{'folder':14} {'tests':>6} {'seconds':>8} {'budget':>7}")
            for folder in sorted(self._tests):
                used, budget = self._seconds[folder], BUDGETS_S.get(folder, 0)
                note = "  over its budget" if used > budget else ""
                line(f"{folder:14} {self._tests[folder]:6} {used:8.0f} {budget:7.0f}{note}")
            total, budget = sum(self._seconds.values()), sum(BUDGETS_S.values())
            line(f"{'all':14} {sum(self._tests.values()):6} {total:8.0f} {budget:7.0f}")
        figures = sorted(
            line
            for kind in ("passed", "failed")
            for report in terminalreporter.stats.get(kind, [])
            for name, line in report.user_properties
            if name == "figure"
        )
        if figures:
            terminalreporter.section("figures")
            for figure in figures:
                line(figure)
        terminalreporter.section("servers")
        compiled = self._run.compile_seconds()
        line(f"{len(compiled)} servers were shared")
        for profile, (programs, seconds) in compiled.items():
            line(f"{profile:14} {programs:6} programs compiled in {seconds:.0f} s")
        reasons = Counter(self._run.reasons())
        line(f"{reasons.total()} servers were of one test or file alone")
        for reason, count in sorted(reasons.items()):
            line(f"{count:6} because {reason}")
