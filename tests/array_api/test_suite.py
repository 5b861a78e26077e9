"""Tests of the command that runs array-api-tests from a folder of the caller."""

import sys

import pytest
from array_api import suite

pytestmark = pytest.mark.long

CONFTEST = """
def pytest_addoption(parser):
    for name in ("xfails-file", "hypothesis-max-examples"):
        parser.addoption(f"--{name}")
    for name in ("hypothesis-disable-deadline", "hypothesis-derandomize"):
        parser.addoption(f"--{name}", action="store_true")
"""
STATUS = 77
TESTS = f"""
import os
import pytest
def test_environment(pytestconfig):
    assert os.environ["ARRAY_API_TESTS_MODULE"] == "subject.xp"
    assert os.environ["ARRAY_API_TESTS_VERSION"]
    assert os.environ["SHARDCALL_TESTS_PLACEMENT"] == "sharded"
    assert pytestconfig.getoption("--hypothesis-max-examples") == "3"
    pytest.exit("the environment is right", returncode={STATUS})
def test_not_requested():
    pytest.exit("arguments are passed on", returncode=1)
"""


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A folder with what the runner looks for, in an environment with the suite's packages."""
    (tmp_path / "array_api_tests").mkdir()
    (tmp_path / "array-api" / "spec" / suite.STANDARD).mkdir(parents=True)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "array_api_tests" / "test_own.py").write_text(TESTS)
    monkeypatch.setattr(suite, "PACKAGES", ("pytest",))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take seconds to load
    return tmp_path


def test_tests_run_in_the_folder_and_their_status_is_returned(checkout):
    assert suite.main([str(checkout), "--sharded", "-k", "environment"]) == STATUS


@pytest.mark.parametrize("arguments", [[], [""], ["", "--full"]])
def test_without_a_folder_it_says_how_to_give_one(arguments, capsys):
    assert suite.main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("SUITE is not set")
    assert "git clone --recurse-submodules" in line
    assert "make test-array-api SUITE=" in line


def test_what_a_folder_lacks_is_named(checkout, monkeypatch, capsys):
    assert suite.main([str(checkout / "array-api")]) == 2
    assert "has no folder array_api_tests" in capsys.readouterr().err
    monkeypatch.setattr(suite, "PACKAGES", ("pytest", "no_such_package"))
    assert suite.main([str(checkout)]) == 2
    assert f"needs no_such_package: {sys.prefix}" in capsys.readouterr().err
    monkeypatch.setattr(suite, "STANDARD", "1999.1")
    assert suite.main([str(checkout)]) == 2
    assert "submodule update --init" in capsys.readouterr().err


def test_every_expected_failure_has_a_reason():
    lines = [line for line in suite.FAILURES.read_text().splitlines() if line]
    assert lines[0].startswith("#")
    assert len(set(lines)) == len(lines)
    tests = [line for line in lines if not line.startswith("#")]
    assert all(line.startswith("array_api_tests/test_") for line in tests)
