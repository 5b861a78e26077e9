"""How often the tests of faults try, and where they say what they saw."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def full(pytestconfig: pytest.Config) -> bool:
    """Whether the long form was asked for, with ``--full``."""
    return bool(pytestconfig.getoption("full"))


@pytest.fixture(scope="session")
def times(full: bool) -> Callable[[int], int]:
    """How often to do what the long form does so often: a tenth of it in the short form, once at least."""
    return lambda count: count if full else max(1, count // 10)


@pytest.fixture
def figure(record_property: Callable[[str, object], None], request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Records a line that is printed when all tests have run."""
    return lambda line: record_property("figure", f"{request.node.name}: {line}")
