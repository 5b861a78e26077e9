"""A forked child has none of its parent's threads, and locks that these held stay locked there."""

import json
import os
import subprocess
import sys

import pytest

from client import forking


@pytest.fixture(scope="module")
def errors():
    """Errors of each scenario, from a process that forks without threads of other tests."""
    ended = subprocess.run(
        [sys.executable, forking.__file__], check=True, stdout=subprocess.PIPE, text=True, timeout=300
    )
    return dict(map(json.loads, ended.stdout.splitlines()))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("deed", forking.DEEDS)
def test_forks(errors, deed):
    assert errors[deed] == ""
