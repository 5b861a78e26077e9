"""Telemetry for the administrator: metrics, the log, `shardcall status`."""

import numpy as np
import pytest
from end_to_end.processes import wait_for
from end_to_end.scraping import log_lines, scrape

import shardcall as sc
from shardcall_core.versions import build_version

X = np.arange(24.0).reshape(6, 4)


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
    assert now.total("shardcall_build_info", version=build_version()) == 1


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


def test_a_call_is_in_the_log_by_the_id_that_its_client_knows(observed, call_stream):
    running, _, log = observed
    method, x = "CallStream" if call_stream else "Execute", X[2 * call_stream :]
    before = len(list(log_lines(log)))
    with sc.connect(running.address, call_stream=call_stream) as client:
        client.diff(x, axis=0)
        with pytest.raises(sc.AxisError) as refused:
            client.diff(x, axis=7)

    def logged() -> list[dict]:
        return list(log_lines(log))[before:]

    events = {"call", "call failed", "compiled"}
    wait_for(lambda: events <= {line["event"] for line in logged()})
    lines = logged()
    (failed,) = [line for line in lines if line.get("request_id") == refused.value.request_id]
    assert (failed["event"], failed["level"], failed["method"]) == ("call failed", "info", method)
    assert (failed["reason"], failed["code"], failed["kernel"]) == ("AXIS_OUT_OF_RANGE", "INVALID_ARGUMENT", "diff")
    assert failed["owner"]
    assert failed["total_s"] > 0
    (served,) = [line for line in lines if line["event"] == "call" and line["method"] == method]
    assert len({line["request_id"] for line in lines if "request_id" in line}) >= 3
    (compiled,) = [line for line in lines if line["event"] == "compiled"]
    assert compiled["key"] == served["key"]


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
