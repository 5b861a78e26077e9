"""A real server's known-answer tests: all pass here, and what a verdict says has failed is refused and reported."""

import json

import known_answers
import numpy as np
import pytest
from end_to_end.processes import shardcall, wait_for
from end_to_end.scraping import log_lines, metrics_url, scrape
from servers import running_server

import shardcall as sc

X = np.linspace(-2, 2, 4096)
TEST = "elementwise float64 2/"
DETAIL = "3584 of 4096 elements are wrong"


def test_servers_of_the_tests_have_their_verdicts_from_the_start(client):
    verdicts = client.server_info().known_answers
    assert verdicts.passed
    assert (verdicts.pending, verdicts.failures) == (0, ())


@pytest.fixture(scope="module")
def refusing(tmp_path_factory):
    """A server whose compiler, by the verdict on disk, gets arctan of float64 wrong; its log."""
    folder = tmp_path_factory.mktemp("cache")
    known_answers.give(folder)
    file = folder / known_answers.FILE_NAME
    stored = json.loads(file.read_text())
    tests = [test for test in stored["verdicts"].values() if test["known_answer"].startswith(TEST)]
    for test in tests:
        test["failures"] = {"arctan": DETAIL}
    assert tests
    file.write_text(json.dumps(stored))
    log = folder / "log"
    with running_server(
        "--cache-dir", str(folder), "--metrics-port", "0", log=log, why="a known-answer test has failed there"
    ) as running:
        yield running, log


def test_a_kernel_that_failed_is_refused_and_says_what_to_do(refusing):
    with sc.connect(refusing[0].address) as client:
        jaxlib = client.server_info().versions.jaxlib
        for call in (client.arctan, lambda x: client.plan("arctan", x), lambda x: client.arctan(x, mesh=sc.Mesh(x=8))):
            with pytest.raises(sc.MiscompiledKernelError, match="install another version of jaxlib") as caught:
                call(X)
            error = caught.value
            assert error.reason == "KERNEL_FAILED_KNOWN_ANSWERS"
            assert error.metadata["known_answer"].startswith(TEST)
            assert (error.metadata["detail"], error.metadata["jaxlib"]) == (DETAIL, jaxlib)
            assert f"jaxlib {jaxlib}: {DETAIL}" in str(error)
        with pytest.raises(sc.MiscompiledKernelError):
            client.arctan(np.arange(9))  # integers are computed as float64
        np.testing.assert_allclose(client.arctan(X.astype(np.float32)).array, np.arctan(X), rtol=1e-5)
        np.testing.assert_allclose(client.sin(X).array, np.sin(X))


def test_a_kernel_that_failed_is_reported_by_every_view_of_the_server(refusing):
    running, log = refusing
    with sc.connect(running.address) as client:
        for verdicts in (client.server_info().known_answers, client.usage().known_answers):
            assert [(failure.kernel, failure.detail) for failure in verdicts.failures] == [("arctan", DETAIL)]
        assert f"FAILED, and refused: arctan ({TEST}" in str(client.server_info())
    for command in ("status", "info"):
        shown = shardcall(command, running.address, COLUMNS="300")
        assert shown.returncode == 0
        assert f"arctan ({TEST}" in shown.stdout
        assert DETAIL in shown.stdout
    scraped = scrape(metrics_url(log))
    assert scraped.total("shardcall_kernel_failed_known_answers", kernel="arctan") == 1
    assert scraped.total("shardcall_known_answers", verdict="failed") == 1
    wait_for(lambda: any(line.get("known_answer") for line in log_lines(log)))
    lines = [line for line in log_lines(log) if line.get("known_answer")]
    assert [(line["kernel"], line["level"], line["detail"]) for line in lines] == [("arctan", "error", DETAIL)]
