"""Known-answer tests of a server that has no verdicts."""

import json

import known_answers
import numpy as np
import pytest
from servers import running_server

import shardcall as sc

pytestmark = pytest.mark.long

X = np.linspace(-2, 2, 4096)


def test_a_server_without_verdicts_runs_what_a_call_waits_for(tmp_path):
    server = running_server("--cache-dir", str(tmp_path), devices=2, knows_answers=False, why="it has no verdicts")
    with server as running, sc.connect(running.address) as client:
        before = client.usage().programs
        np.testing.assert_array_equal(client.diff(X, mesh=sc.Mesh(x=2)).array, np.diff(X))
        assert client.usage().programs == before + 1  # the tests' programs are none of the callers'
        assert client.server_info().known_answers.passed >= 1
    stored = json.loads((tmp_path / known_answers.FILE_NAME).read_text())
    assert "halo exchange" in {verdict["known_answer"] for verdict in stored["verdicts"].values()}
