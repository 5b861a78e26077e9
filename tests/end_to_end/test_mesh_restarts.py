"""Meshes that restart while arrays, names, puts, reads, recordings and viewers are there."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest
from client_parts import sender_of
from end_to_end.commands import shardcall
from end_to_end.live_pages import PageServer, page_server
from end_to_end.processes import kill_worker, stopped, wait_for
from end_to_end.raw_stream import item, opened, read
from end_to_end.scraping import scrape
from end_to_end.test_profile import ACROSS, events, left_on_the_server

import shardcall as sc

pytestmark = pytest.mark.long

X = np.arange(8.0) ** 2


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> Iterator[PageServer]:
    """A server whose worker the tests kill, with the live page and a folder of its own for what it records."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("tmp")))
        patch.setattr(tempfile, "tempdir", None)
        with page_server(tmp_path_factory.mktemp("page") / "log", why="its worker is killed", devices=8) as server:
            yield server
    tempfile.tempdir = None


@pytest.fixture
def client(pages) -> Iterator[sc.Client]:
    with sc.connect(pages.running.address) as connected:
        yield connected


def test_arrays_are_lost_and_later_ones_are_never_taken_for_them(pages, client):
    before, named = client.put(X), client.put(X, name="u")
    kill_worker(pages.running, client)
    assert client.usage().arrays == 0
    after = client.put(X + 1)  # the next mesh's first, as that was of the last
    for use in (before.get, lambda: client.describe(before), lambda: client.diff(before)):
        with pytest.raises(sc.ArrayLostError, match="which the mesh no longer has"):
            use()
        assert before.lost
    for use in (named.get, lambda: client.open("u"), lambda: named + 1):
        with pytest.raises(sc.ArrayLostError, match=r"no array has the name 'u'.*the mesh or the server restarted"):
            use()
    np.testing.assert_array_equal(after, X + 1)
    assert [array.handle for array in client.list()] == [after.handle]
    client.put(X, name="u")
    np.testing.assert_array_equal(named, X)
    client.delete(named)


def test_a_put_outlasts_a_restart(pages, client):
    lost = client.put(X)
    with ThreadPoolExecutor(1) as pool, stopped(pages.running) as worker:
        waiting = pool.submit(client.put, X + 1)
        wait_for(lambda: sender_of(client)._stream._current.unanswered)
        os.kill(worker, signal.SIGKILL)
    np.testing.assert_array_equal(waiting.result(60), X + 1)
    with pytest.raises(sc.ArrayLostError, match="which the mesh no longer has"):
        lost.get()
    np.testing.assert_array_equal(client.put(X), X)


def test_a_restart_loses_the_arrays_of_reads(pages, client):
    array = client.put(X)
    handle = bytes.fromhex(array.handle)
    with opened(pages.running) as stream:
        with stopped(pages.running) as worker:
            stream.send(read(1, handle))
            stream.send(item(2, X, slot=9))
            stream.refusal(2)
            os.kill(worker, signal.SIGKILL)
        assert stream.refusal(1).partition(":")[0] in ("MESH_RESTARTED", "ARRAY_LOST")
        stream.send(read(3, handle))
        assert stream.refusal(3).startswith("ARRAY_LOST: ")
    with pytest.raises(sc.ArrayLostError, match="which the mesh no longer has"):
        array.get()
    assert "no longer has" in repr(array)


def test_probes_and_page_during_a_restart(pages, client):
    kill_worker(pages.running, client)
    with closing(pages.snapshots()) as snapshots:
        before = next(one for one in snapshots if one["mesh"]["ready"])["mesh"]
        assert pages.get("/readyz") == (200, "ready\n")
        (worker,) = pages.running.worker_pids()
        os.kill(worker, signal.SIGKILL)
        wait_for(lambda: pages.get("/readyz") == (503, "not ready: the mesh starts again\n"))
        assert pages.get("/healthz") == (200, "ok\n")
        shown = next(one for one in snapshots if not one["mesh"]["ready"])["mesh"]
        assert shown["exits"]["killed"] == before["exits"]["killed"] + 1
        assert "signal 9" in shown["last_exit_reason"]
        wait_for(lambda: pages.get("/readyz")[0] == 200)
        ready = next(one for one in snapshots if one["mesh"]["ready"])["mesh"]
        assert ready["restarts"] == before["restarts"] + 1


def test_a_restart_is_counted_by_its_reason_and_begins_an_epoch(pages, client):
    url = f"{pages.base}/metrics"
    before = scrape(url)
    kill_worker(pages.running, client)
    now = scrape(url)
    killed = {"name": "shardcall_mesh_restarts_total", "kind": "killed"}
    assert now.total(**killed) > before.total(**killed)
    assert now.total("shardcall_epoch_start_seconds") > before.total("shardcall_epoch_start_seconds")
    mesh = json.loads(shardcall("status", pages.running.address, "--json").stdout)["usage"]["mesh"]
    assert mesh["restarts"] >= 1
    assert "signal 9" in mesh["last_exit_reason"]


def test_a_restart_throws_a_recording_away(pages, client, tmp_path):
    profile = client.profile(tmp_path / "traces")
    profile.start()
    assert len(left_on_the_server()) == 1
    kill_worker(pages.running, client)
    wait_for(lambda: left_on_the_server() == [])
    with pytest.raises(sc.InvalidRequestError, match=r"the last one ended with the mesh, which restar") as refused:
        profile.stop()
    assert refused.value.reason == "PROFILE_STATE"
    assert not [path for path in (tmp_path / "traces").rglob("*") if path.is_file()]
    with client.profile(tmp_path / "traces") as again:
        client.diff(np.ones((512, 64)), axis=0, **ACROSS)
    assert events(again.path)
