"""A forked child has none of its parent's threads, and locks that these held stay locked there."""

import os
import subprocess
import sys

import pytest

from client import forking


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("deed", forking.DEEDS)
def test_forks(deed):
    """In a process of its own, since a process that forks must have no threads of other tests'."""
    command = [sys.executable, forking.__file__, deed]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
