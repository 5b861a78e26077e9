"""The namespace has the names and signatures of the array API standard; the rest of its tests is long."""

import pytest
from array_api import suite

SHORT = ("has_names", "signatures", "constants", "inspection_functions")


def check(done):
    assert done.returncode == 0, done.stdout[-4000:]


def test_names_and_signatures_are_those_of_the_standard():
    check(suite.run(1, "-n", "0", *(f"array_api_tests/test_{name}.py" for name in SHORT)))


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("sharded", [False, True])
def test_behaviour_is_that_of_the_standard(pytestconfig, sharded):
    check(suite.run(suite.FULL if pytestconfig.getoption("--full") else 3, "-n", "2", sharded=sharded))


def test_every_expected_failure_has_a_reason():
    lines = [line for line in suite.FAILURES.read_text().splitlines() if line]
    assert lines[0].startswith("#")
    assert len(set(lines)) == len(lines)
    tests = [line for line in lines if not line.startswith("#")]
    assert all(line.startswith("array_api_tests/test_") for line in tests)
