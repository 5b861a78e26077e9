"""Telemetry for the administrator: metrics, the log, `shardcall status`."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request

import grpc
import numpy as np
import pytest
from end_to_end.messages import open_channel
from end_to_end.processes import wait_for
from end_to_end.scraping import log_lines, metrics_url, scrape

import shardcall as sc

X = np.arange(77.0).reshape(11, 7)  # of which no other test of this server has a program


@pytest.fixture(scope="module")
def observed(exclusive_server):
    """A server that shows its metrics; itself, where they are, and its log."""
    return exclusive_server, metrics_url(exclusive_server.log), exclusive_server.log


def test_metrics_count_calls_phases_bytes_and_programs(observed, call_stream):
    running, url, _ = observed
    method, x = "CallStream" if call_stream else "Execute", X[2 * call_stream :]
    before = scrape(url)

    def grown(name: str, **labels: str) -> float:
        return now.total(name, **labels) - before.total(name, **labels)

    with sc.connect(running.address, shared_memory=False, call_stream=call_stream) as client:
        for _ in range(3):
            client.gradient(x, axis=0)
        with pytest.raises(sc.AxisError):
            client.gradient(x, axis=7)
        kept = client.put(x)
        now = scrape(url)
        assert now.total("shardcall_resident_arrays") == 1
        assert now.total("shardcall_resident_bytes") == x.nbytes
        assert now.total("shardcall_leases") == 1
        kept.delete()
    now = scrape(url)
    assert grown("shardcall_calls_total", method=method, code="OK") == 3 + call_stream  # the put
    assert grown("shardcall_calls_total", method=method, code="INVALID_ARGUMENT") == 1
    assert grown("shardcall_failed_calls_total", reason="AXIS_OUT_OF_RANGE") == 1
    assert grown("shardcall_phase_seconds_count", kernel="gradient", phase="execute") == 3
    assert grown("shardcall_phase_seconds_count", kernel="gradient", phase="total") == 4
    assert grown("shardcall_phase_seconds_sum", kernel="gradient", phase="total") > 0
    assert grown("shardcall_array_bytes_total", path="received") == 4 * x.nbytes
    assert grown("shardcall_array_bytes_total", path="sent") == 3 * x.nbytes
    assert grown("shardcall_program_lookups_total", outcome="miss") == 1
    assert grown("shardcall_program_lookups_total", outcome="hit") == 2
    assert grown("shardcall_programs_prepared_total") == grown("shardcall_programs") == 1
    assert now.total("shardcall_ready") == 1
    assert now.total("shardcall_build_info", version=sc.__version__) == 1


def test_memory_shared_with_the_client_is_counted_apart(observed):
    running, url, _ = observed
    large = np.zeros((1024, 512))
    before = scrape(url)
    with sc.connect(running.address) as client:
        client.copy(large)
        now = scrape(url)
        assert now.total("shardcall_segments") >= 1
    for path, nbytes in (("shared", 2 * large.nbytes), ("received", 0), ("sent", 0)):
        name = "shardcall_array_bytes_total"
        assert now.total(name, path=path) - before.total(name, path=path) == nbytes


def test_a_connection_that_says_nothing_does_not_keep_metrics_from_others(observed):
    _, url, _ = observed
    host, port = url.removeprefix("http://").partition("/")[0].split(":")
    assert host == "127.0.0.1"
    with socket.create_connection((host, int(port))):
        assert scrape(url).total("shardcall_ready") == 1
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(url.replace("/metrics", "/"), timeout=30)


def test_a_refused_call_is_in_the_log_by_the_id_that_its_client_knows(observed, call_stream):
    running, _, log = observed
    with sc.connect(running.address, call_stream=call_stream) as client, pytest.raises(sc.AxisError) as refused:
        client.diff(X, axis=7)

    def logged() -> list[dict]:
        return [line for line in log_lines(log) if line.get("request_id") == refused.value.request_id]

    wait_for(lambda: bool(logged()))
    (failed,) = logged()
    method = "CallStream" if call_stream else "Execute"
    assert (failed["event"], failed["level"], failed["method"]) == ("call failed", "info", method)
    assert (failed["reason"], failed["code"], failed["kernel"]) == ("AXIS_OUT_OF_RANGE", "INVALID_ARGUMENT", "diff")
    assert failed["owner"]
    assert failed["total_s"] > 0


def test_a_call_of_no_kernel_of_the_mesh_names_none_in_the_log(observed):
    running, _, log = observed
    before = len(list(log_lines(log)))
    with sc.connect(running.address) as client, pytest.raises(sc.KernelNotFoundError):
        client.call("nosuch")
    wait_for(lambda: any(line["event"] == "call failed" for line in list(log_lines(log))[before:]))
    (failed,) = [line for line in list(log_lines(log))[before:] if line["event"] == "call failed"]
    assert "kernel" not in failed


def test_the_log_holds_no_token_no_path_and_no_values(observed):
    running, _, log = observed
    secret = "tell-nobody-" * 3
    with pytest.raises(sc.AccessDeniedError):
        sc.connect(running.address, token=secret)
    with sc.connect(running.address) as client, pytest.raises(sc.KernelNotFoundError):
        client.call("nosuch-private-name", np.full(6, 271828.0))
    text = log.read_text()
    assert secret not in text
    assert "271828" not in text
    assert "nosuch-private-name" not in text


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
