"""A forked child has none of its parent's threads, and locks that these held stay locked there."""

import json
import subprocess
import sys

import pytest

from client import forking


@pytest.fixture(scope="module")
def errors():
    """Errors of each scenario, from a process that forks without threads of other tests."""
    printed = subprocess.check_output([sys.executable, forking.__file__], text=True, timeout=300)
    return dict(map(json.loads, printed.splitlines()))


@pytest.mark.parametrize("deed", forking.DEEDS)
def test_forks(errors, deed):
    assert errors[deed] == ""
