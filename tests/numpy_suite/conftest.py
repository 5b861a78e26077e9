"""NumPy's own tests against the service: the calls of each case, the rules that skipped cases, and the totals."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest
from numpy_suite import scope
from numpy_suite.service import NAMES, SERVICE

import shardcall as sc

_FOLDER = Path(__file__).parent
_SUBJECTS = {name.rpartition(".")[2] for name in NAMES}


def pytest_configure(config: pytest.Config) -> None:
    """Registers the markers of NumPy's tests."""
    os.environ["NPY_AVAILABLE_MEM"] = "1 GB"  # cases that need more are NumPy's to skip
    for marker in ("slow", "leaks_references", "thread_unsafe", "valgrind_error"):
        config.addinivalue_line("markers", f"{marker}: of NumPy's own tests")


def pytest_pycollect_makeitem(collector: pytest.Collector, name: str) -> list[pytest.Item] | None:
    """Leaves out classes of which every case is long, where no long one is wanted: to collect them takes seconds."""
    short = collector.config.getoption("markexpr") == "not long"
    return [] if short and isinstance(collector, pytest.Module) and _subject(name) not in _SUBJECTS else None


@pytest.hookimpl(trylast=True)  # when all parameters are known
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Makes the first case of each test alone, where no long one is wanted."""
    if metafunc.config.getoption("markexpr") == "not long":
        metafunc._calls[:] = metafunc._calls[:1]


@pytest.hookimpl(tryfirst=True)  # before cases are chosen by their markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks as long all but the first of each class that is named after a function."""
    cases = [item for item in items if isinstance(item, pytest.Function) and item.path.parent == _FOLDER]
    for item in cases:
        if config.getoption("--every-case"):  # one that has a thousand sizes has a thousand programs compiled
            item.add_marker(pytest.mark.timeout(3600))
        for mark in [*item.iter_markers("xfail")]:  # the service may be right where NumPy is not
            item.add_marker(pytest.mark.xfail(*mark.args, **{**mark.kwargs, "strict": False}), append=False)
    taken: set[str] = set()
    for item in sorted(cases, key=lambda item: item.location):
        subject = _subject(item.cls.__name__) if item.cls else ""
        if subject in taken or subject not in _SUBJECTS:
            item.add_marker(pytest.mark.long)
        else:
            taken.add(subject)


def _subject(name: str) -> str:
    return name.removeprefix("Test").lower()


@pytest.fixture(autouse=True)
def _client(client: sc.Client) -> sc.Client:
    return client


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Function) -> Generator[None, object, object]:
    """Runs a case with remote functions; one that called none of them counts as skipped, with the rules as reason."""
    if rule := scope.rule_of_source(item.function):
        pytest.skip(rule)
    np.random.seed(0)  # NumPy's tests draw from the global generator
    failure: BaseException | None = None
    result: object = None
    try:
        option = item.config.getoption
        with SERVICE.running(
            item.funcargs["client"], complete=option("--every-case"), short=option("markexpr") == "not long"
        ):
            result = yield
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  # raised below, unless the case is out of scope
        failure = error
    finally:
        item.user_properties.append(("remote", dict(SERVICE.remote)))
        item.user_properties.append(("local", dict(SERVICE.local)))
    if complete := sorted(scope.COMPLETE_CASES.intersection(SERVICE.local)):
        pytest.skip("; ".join(complete) + (f"; raised {type(failure).__name__}" if failure else ""))
    if not SERVICE.remote:  # whatever it raised, the service had no part in it
        rules = "; ".join(sorted(SERVICE.local)) or "calls no function that the client has"
        pytest.skip(rules + (f"; raised {type(failure).__name__}" if failure else ""))
    if failure is not None:
        raise failure
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints how many calls were remote, and how many each rule left to NumPy."""
    calls: dict[str, Counter[str]] = {"remote": Counter(), "local": Counter()}
    classes = set()
    for outcome in ("passed", "failed", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            for key, counts in report.user_properties if report.when == "call" else ():
                if key not in calls:  # what another test recorded
                    continue
                calls[key].update(counts)
                if key == "remote" and counts:
                    classes.add(report.nodeid.rpartition("::")[0])
    line = terminalreporter.line
    terminalreporter.section("NumPy's own tests")
    line(
        f"{calls['remote'].total():6} calls of {len(calls['remote'])} functions were remote, in {len(classes)} classes"
    )
    for rule, count in calls["local"].most_common():
        line(f"{count:6} calls were left to NumPy: {rule}")
