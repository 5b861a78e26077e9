"""NumPy's own tests against the service: the calls of each case, the rules that skipped cases, and the totals."""

import os
from collections import Counter
from collections.abc import Generator

import numpy as np
import pytest
from numpy_suite import scope
from numpy_suite.service import SERVICE

import shardcall as sc


def pytest_configure(config: pytest.Config) -> None:
    """Registers the markers of NumPy's tests."""
    os.environ["NPY_AVAILABLE_MEM"] = "1 GB"  # cases that need more are NumPy's to skip
    for marker in ("slow", "leaks_references", "thread_unsafe", "valgrind_error"):
        config.addinivalue_line("markers", f"{marker}: of NumPy's own tests")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Gives cases the time that they need, and lets the service be right where NumPy is not."""
    if item.config.getoption("--every-case"):
        item.add_marker(pytest.mark.timeout(3600))  # one that has a thousand sizes has a thousand programs compiled
    for mark in [*item.iter_markers("xfail")]:
        item.add_marker(pytest.mark.xfail(*mark.args, **{**mark.kwargs, "strict": False}), append=False)


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
        with SERVICE.running(item.funcargs["client"], complete=item.config.getoption("--every-case")):
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
