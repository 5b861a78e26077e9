"""The log at the level debug, and `shardcall status` as its own process."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from end_to_end.commands import shardcall
from end_to_end.processes import wait_for
from end_to_end.scraping import log_lines, metrics_url
from end_to_end.test_telemetry import X
from servers import running_server

import shardcall as sc

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def observed(tmp_path_factory):
    """A server that logs every call, and its log."""
    log = tmp_path_factory.mktemp("observed") / "log"
    flags = ("--metrics-port", "0", "--log-level", "debug")
    with running_server(*flags, devices=2, log=log, why="it logs every call") as running:
        yield running, log


def test_calls_and_compilations_are_in_the_log(observed, call_stream):
    running, log = observed
    method, x = "CallStream" if call_stream else "Execute", X[2 * call_stream :]
    before = len(list(log_lines(log)))
    with sc.connect(running.address, call_stream=call_stream) as client:
        client.diff(x, axis=0)
        with pytest.raises(sc.AxisError):
            client.diff(x, axis=7)

    def logged() -> list[dict]:
        return list(log_lines(log))[before:]

    events = {"call", "call failed", "compiled"}
    wait_for(lambda: events <= {line["event"] for line in logged()})
    lines = logged()
    (served,) = [line for line in lines if line["event"] == "call" and line["method"] == method]
    assert len({line["request_id"] for line in lines if "request_id" in line}) >= 3
    (compiled,) = [line for line in lines if line["event"] == "compiled"]
    assert compiled["key"] == served["key"]


def test_a_chain_that_failed_is_one_line_and_the_others_are_at_debug(observed):
    running, log = observed
    before = len(list(log_lines(log)))
    with sc.connect(running.address) as client:
        bad = client.submit("power", client.submit("add", [1, 2], 1), -1)
        for _ in range(20):
            bad = client.submit("add", bad, 1)
        with pytest.raises(sc.InvalidOperandError):
            bad.get()
        wait_for(lambda: sum(line["event"] == "call failed" for line in list(log_lines(log))[before:]) == 21)
    first, *others = [line for line in list(log_lines(log))[before:] if line["event"] == "call failed"]
    assert (first["kernel"], first["level"], first["reason"]) == ("power", "info", "INVALID_VALUE")
    assert {(line["level"], line["reason"]) for line in others} == {("debug", "INVALID_VALUE")}


def test_a_port_of_metrics_in_use_is_named(observed):
    port = metrics_url(observed[1]).removeprefix("http://").partition("/")[0].split(":")[1]
    ended = shardcall("serve", "--port", "0", "--metrics-port", port)
    assert ended.returncode == 2
    assert f"127.0.0.1:{port}" in ended.stderr
    assert "--metrics-port" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_status_that_watches_shows_every_update_in_a_pipe_too(server):
    command = [sys.executable, "-m", "shardcall.cli", "status", server.address, "--watch", "--interval", "0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        looks = (line for line in watching.stdout if "spare worker" in line)
        assert next(looks)
        assert next(looks)
        watching.send_signal(signal.SIGINT)
    assert watching.returncode == 130
