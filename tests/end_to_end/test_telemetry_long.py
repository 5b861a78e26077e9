"""Telemetry while the mesh restarts, and what `shardcall status` says."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import grpc
import pytest
from end_to_end.messages import open_channel
from end_to_end.processes import shardcall, wait_for
from end_to_end.scraping import log_lines, scrape
from end_to_end.test_telemetry import X
from servers import ServerProcess

import shardcall as sc

pytestmark = pytest.mark.long


def kill_the_worker(running: ServerProcess, url: str) -> None:
    """Returns when the server has noticed."""
    restarts = scrape(url).total("shardcall_mesh_restarts_total")
    (worker,) = running.worker_pids()
    os.kill(worker, 9)
    wait_for(lambda: scrape(url).total("shardcall_mesh_restarts_total") > restarts)


def test_a_restart_is_counted_by_its_reason_and_begins_an_epoch(observed):
    running, url, _ = observed
    before = scrape(url)
    kill_the_worker(running, url)
    wait_for(lambda: scrape(url).total("shardcall_ready") == 1)
    now = scrape(url)
    killed = {"name": "shardcall_mesh_restarts_total", "kind": "killed"}
    assert now.total(**killed) > before.total(**killed)
    assert now.total("shardcall_epoch_start_seconds") > before.total("shardcall_epoch_start_seconds")


def test_no_label_takes_what_a_client_says(observed):
    running, url, _ = observed
    names = [f"name-{i}" for i in range(50)]
    before = scrape(url).total("shardcall_failed_calls_total", reason="KERNEL_NOT_FOUND")
    with sc.connect(running.address) as client:
        for name in names:
            with pytest.raises(sc.KernelNotFoundError):
                client.call(name, X)
    with open_channel(running.address) as channel:
        for name in names:
            for path in (f"/shardcall.v1.KernelService/{name}", f"/{name}/Execute"):
                method = channel.unary_unary(path, request_serializer=bytes, response_deserializer=bytes)
                with pytest.raises(grpc.RpcError):
                    method(b"", timeout=30, metadata=[("shardcall-request-id", name)])
    now = scrape(url)
    said = {value for label in ("method", "kernel", "reason", "code") for value in now.values(label)}
    assert not [value for value in said if "name-" in value]
    assert now.total("shardcall_failed_calls_total", reason="KERNEL_NOT_FOUND") == before + len(names)
    assert now.total("shardcall_calls_total", method="other") >= len(names)


def test_metrics_are_on_loopback_alone_and_a_port_in_use_is_named(observed):
    _, url, _ = observed
    host, port = url.removeprefix("http://").partition("/")[0].split(":")
    assert host == "127.0.0.1"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(url.replace("/metrics", "/"), timeout=30)
    ended = shardcall("serve", "--port", "0", "--metrics-port", port)
    assert (ended.returncode, "Traceback" in ended.stderr) == (2, False)
    assert f"127.0.0.1:{port}" in ended.stderr
    assert "--metrics-port" in ended.stderr


def test_a_chain_that_failed_is_one_line_and_the_others_are_at_debug(observed):
    running, _, log = observed
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


def test_status_shows_what_the_server_is_and_holds(server, client):
    with client.put(X):
        said = shardcall("status", server.address, COLUMNS="120")
        report = json.loads(shardcall("status", server.address, "--json").stdout)
    assert said.returncode == 0, said.stderr
    for text in (server.address, "ready, for", "8 × cpu", "restarts", "spare worker", "programs", "at work"):
        assert text in said.stdout
    assert report["usage"]["mesh"]["ready"] is True
    assert report["usage"]["arrays"] >= 1
    assert report["server"]["devices"] == 8


def test_status_that_watches_shows_every_update_in_a_pipe_too(server):
    command = [sys.executable, "-m", "shardcall.cli", "status", server.address, "--watch", "--interval", "0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        looks = (line for line in watching.stdout if "spare worker" in line)
        assert next(looks)
        assert next(looks)
        watching.send_signal(signal.SIGINT)
    assert watching.returncode == 130


def test_status_reports_why_the_mesh_ended_while_it_is_away(observed):
    running, url, _ = observed
    kill_the_worker(running, url)
    said = json.loads(shardcall("status", running.address, "--json").stdout)
    assert said["usage"]["mesh"]["restarts"] >= 1
    assert "signal 9" in said["usage"]["mesh"]["last_exit_reason"]
    wait_for(lambda: scrape(url).total("shardcall_ready") == 1)
