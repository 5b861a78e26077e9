"""The live page of a server that works, restarts and shuts down, and its probes."""

from contextlib import closing

import numpy as np
import pytest
from end_to_end.live_pages import PageServer

import shardcall as sc
from shardcall_server.settings import SettingsError
from shardcall_server.settings_sources import load_settings

X = np.arange(24.0).reshape(8, 3)
PHASES = {"receive", "queue", "compile", "place", "execute", "gather", "send"}


def first(server: PageServer) -> dict:
    with closing(server.snapshots()) as snapshots:
        return next(snapshots)


def test_a_snapshot_shows_mesh_arrays_calls_programs_streams_and_errors(pages):
    with sc.connect(pages.running.address) as client, closing(pages.snapshots()) as snapshots:
        kept = client.put(X[:, :2], mesh=sc.Mesh(x=4), spec=sc.P("x"))
        for _ in range(3):
            client.gradient(X, axis=0)
        with pytest.raises(sc.AxisError):
            client.gradient(X, axis=7)
        client.submit("gradient", X, axis=0).get()
        shown = next(one for one in snapshots if any(error["kernel"] == "gradient" for error in one["errors"]))
        del kept
    mesh = shown["mesh"]
    assert (mesh["ready"], mesh["device_count"], mesh["platform"], mesh["axes"]) == (True, 4, "cpu", [["x", 4]])
    assert sum(device["bytes"] for device in mesh["devices"]) >= X[:, :2].nbytes
    (array,) = [one for one in shown["arrays"] if one["shape"] == [8, 2]]
    assert (array["dtype"], array["counts"], array["blocks"]) == ("float64", [4, 1], [[0], [1], [2], [3]])
    assert array["principal"] == shown["principals"][0]["name"]
    called = [call for call in shown["calls"] if call["kernel"] == "gradient" and not call["reason"]]
    assert len(called) >= 3
    for call in called:
        assert {name for name, _, _ in call["phases"]} <= PHASES
        assert all(begin >= 0 and begin + took <= call["s"] + 1e-3 for _, begin, took in call["phases"])
    (error,) = [one for one in shown["errors"] if one["kernel"] == "gradient"]
    assert (error["reason"], error["count"]) == ("AXIS_OUT_OF_RANGE", 1)
    (program,) = [one for one in shown["programs"] if one["kernel"] == "gradient"]
    assert program["hits"] >= 2
    assert program["compile_s"] > 0
    assert next(one for one in shown["kernels"] if one["name"] == "gradient")["calls"] >= 4
    assert shown["streams"][0]["streams"] == 1
    assert shown["memory"]["max_array_bytes"] > 0


def test_a_loop_that_runs_is_shown_with_its_progress(pages):
    with sc.connect(pages.running.address) as client, closing(pages.snapshots()) as snapshots:
        h = client.xp.fori_loop(0, 10**12, lambda i, s: s + 1, np.zeros(4))
        shown = next(one for one in snapshots if one["loops"])
        del h
    (loop,) = shown["loops"]
    assert loop["iterations"] > 0
    assert loop["iterations"] + loop["left"] == 10**12


def test_a_server_whose_output_is_no_terminal_prints_no_key(pages):
    assert pages.link == f"{pages.base}/"
    assert pages.get("/")[0] == 401


def test_a_page_without_a_port_or_for_other_machines_is_refused():
    with pytest.raises(SettingsError, match="live_page needs a port"):
        load_settings({"live_page": True})
    with pytest.raises(SettingsError, match=r"metrics_host is '0\.0\.0\.0'.*ssh -L"):
        load_settings({"live_page": True, "metrics_port": 9470, "metrics_host": "0.0.0.0"})
    allowed = {"live_page": True, "metrics_port": 9470, "metrics_host": "0.0.0.0", "insecure_allow_remote": True}
    assert load_settings(allowed).live_page
