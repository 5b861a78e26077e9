"""Known-answer tests of a server that has no verdicts."""

import json

import known_answers
import numpy as np
import pytest
from end_to_end.processes import wait_for
from servers import running_server

import shardcall as sc

pytestmark = pytest.mark.long

X = np.linspace(-2, 2, 4096)


@pytest.mark.parametrize("waits", [False, True])
def test_a_server_without_verdicts_tests_the_kernels_in_use(tmp_path, waits):
    options = ("--known-answers", "strict") * waits
    server = running_server(
        "--cache-dir", str(tmp_path), *options, devices=2, knows_answers=False, why="it has no verdicts"
    )
    with server as running, sc.connect(running.address) as client:
        before = client.usage().programs
        result = client.diff(X, mesh=sc.Mesh(x=2))
        np.testing.assert_array_equal(result.array, np.diff(X))
        assert result.known_answers_pending == result.plan.known_answers_pending == (not waits)
        assert client.usage().programs == before + 1  # the tests' programs are none of the callers'
        wait_for(lambda: client.server_info().known_answers.passed >= 1)
        wait_for(lambda: not client.diff(X, mesh=sc.Mesh(x=2)).known_answers_pending)
    stored = json.loads((tmp_path / known_answers.FILE_NAME).read_text())
    assert "halo exchange" in {verdict["known_answer"] for verdict in stored["verdicts"].values()}


def test_what_a_kernel_computed_before_it_failed_a_test_is_refused_after_a_restart_too(tmp_path):
    folders = ("--cache-dir", str(tmp_path / "cache"), "--array-dir", str(tmp_path / "arrays"))
    with (
        running_server(*folders, devices=2, knows_answers=False, why="it has no verdicts") as running,
        sc.connect(running.address) as client,
    ):
        h = client.diff(client.put(X, mesh=sc.Mesh(x=2)), keep=True).array
        client.name(h + 1.0, "derived")
        client.put(X, name="intact")
        client.save_checkpoint()
        wait_for(lambda: not client.diff(X, mesh=sc.Mesh(x=2)).known_answers_pending)
        np.testing.assert_array_equal(client.open("derived"), np.diff(X) + 1)
    file = tmp_path / "cache" / known_answers.FILE_NAME
    stored = json.loads(file.read_text())
    for verdict in stored["verdicts"].values():
        if verdict["known_answer"] == "halo exchange":
            verdict["failures"] = {"diff": "all is wrong"}
    file.write_text(json.dumps(stored))
    with (
        running_server(*folders, devices=2, knows_answers=False, why="a known-answer test has failed there") as running,
        sc.connect(running.address) as client,
    ):
        derived = client.open("derived")
        opened = client.open("derived")
        uses = (derived.get, (derived + 1).get, lambda: client.sum(derived), lambda: float(derived.sum()), opened.get)
        for use in (*uses, lambda: client.save(derived, "file.npy")):
            with pytest.raises(sc.MiscompiledKernelError, match=r"'diff', which failed .* 'halo exchange': all is wro"):
                use()
        np.testing.assert_array_equal(client.open("intact"), X)
        suspects = {entry.name: entry.suspect.partition(",")[0] for entry in client.list().entries if entry.name}
        assert suspects == {"derived": "kernel 'diff'", "intact": ""}
