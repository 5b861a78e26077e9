"""Repetitions of the fault tests, and the figures that they record."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def full(pytestconfig: pytest.Config) -> bool:
    """True for the long form, with ``--full``."""
    return bool(pytestconfig.getoption("full"))


@pytest.fixture(scope="session")
def times(full: bool) -> Callable[[int], int]:
    """Scales a count of the long form: a tenth of it in the short form, at least 1."""
    return lambda count: count if full else max(1, count // 10)


@pytest.fixture
def figure(record_property: Callable[[str, object], None], request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Records a line that is printed when all tests have run."""
    return lambda line: record_property("figure", f"{request.node.name}: {line}")
